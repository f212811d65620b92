"""Marks Python tests that need a current PyTorch, and skips them without one."""

import importlib.util
import re

import pytest

NEEDED = (2, 6)


def pytest_configure(config):
    config.addinivalue_line("markers", "remote: the test uses convgrad.torch.remote")


def has_torch_export():
    if importlib.util.find_spec("torch") is None:
        return False
    import torch
    return tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) >= NEEDED


def pytest_collection_modifyitems(items):
    for item in items:
        is_of_networks = item.path.parent.name in ("networks", "random_trainings")
        if is_of_networks or "make_remote" in item.fixturenames:
            item.add_marker("remote")
    marked = [item for item in items if item.get_closest_marker("remote")]
    if marked and not has_torch_export():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs PyTorch 2.6 or newer"))
