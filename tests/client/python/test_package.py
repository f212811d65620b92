"""Tests `import convgrad` before any call."""

import pathlib
import re
import subprocess
import sys

import pytest

import convgrad

ROOT = pathlib.Path(__file__).parents[3]


def python(code):
    """Returns the output of a new interpreter."""
    return subprocess.run([sys.executable, "-c", code], check=True, text=True,
                          capture_output=True).stdout.strip()


@pytest.mark.parametrize("name", ["aio.Client", "torch.offload"])
def test_parts_are_there_without_an_import_of_their_own(name):
    assert python(f"import convgrad; print(convgrad.{name}.__name__)") == name.split(".")[1]


def test_importing_convgrad_loads_no_pytorch():
    assert python("import sys, convgrad; print('torch' in sys.modules)") == "False"


def test_what_isnt_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'convgrad' has no attribute 'jax'"):
        convgrad.jax  # noqa: B018


def test_the_version_is_the_projects():
    project = re.search(r"project\(convgrad VERSION ([\d.]+)",
                        (ROOT / "CMakeLists.txt").read_text())
    assert convgrad.__version__ == project[1]


def test_the_extra_server_is_of_the_same_version():
    project = (ROOT / "client/python/pyproject.toml").read_text()
    assert f'"convgrad-server=={convgrad.__version__};' in project


def test_a_pytorch_that_is_too_old_for_numpy_is_named(monkeypatch):
    torch = pytest.importorskip("torch")

    def refuse(tensor):
        raise RuntimeError("Numpy is not available")

    from convgrad.torch.tensors import check_numpy
    check_numpy()
    monkeypatch.setattr(torch.Tensor, "numpy", refuse)
    with pytest.raises(ImportError, match=r"PyTorch \S+ can't use NumPy \S+ .*'numpy<2'"):
        check_numpy()
