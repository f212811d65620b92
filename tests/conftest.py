"""Skips Python tests that need a current PyTorch or onnx where these are missing."""

import importlib.util
import re

import pytest

NEEDED = (2, 6)


def pytest_configure(config):
    config.addinivalue_line("markers",
                            "remote: the test uses convgrad.torch.remote or convgrad.onnx")


def has_torch_export():
    if importlib.util.find_spec("torch") is None:
        return False
    import torch
    return tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) >= NEEDED


def pytest_ignore_collect(collection_path):
    # deploy/dependencies installs the package where PyTorch is current.
    is_missing = importlib.util.find_spec("onnx") is None and not has_torch_export()
    return True if is_missing and collection_path.parent.name == "onnx_models" else None


def pytest_collection_modifyitems(items):
    for item in items:
        is_of_networks = {"networks", "onnx_models"} & {
            item.path.parent.name, item.path.parent.parent.name}
        if is_of_networks or "make_remote" in item.fixturenames:
            item.add_marker("remote")
    marked = [item for item in items if item.get_closest_marker("remote")]
    if marked and not has_torch_export():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs PyTorch 2.6 or newer"))
