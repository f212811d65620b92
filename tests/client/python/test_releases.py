"""Tests that the last release and this tree work together (proto/README.md, Compatibility)."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import server_process
from releases.calls import calls

pytestmark = pytest.mark.remote  # because some of the calls need a current PyTorch

RELEASES = pathlib.Path(__file__).parent / "releases"
WHEELS = sorted(RELEASES.glob("convgrad-*-py3-none-any.whl"))


@pytest.fixture(scope="module")
def expected(server):
    """Returns the results of this tree's client and server."""
    return calls(server.address)


@pytest.fixture(params=WHEELS, ids=lambda wheel: wheel.name.split("-")[1])
def release(request, tmp_path):
    """Returns a folder with a released client."""
    folder = tmp_path / "release"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                    "--no-index", "--target", folder, request.param], check=True)
    return folder


def test_there_is_a_release():
    assert WHEELS


def test_the_last_releases_client_works_with_this_server(server, expected, release, tmp_path):
    file = tmp_path / "found.npz"
    run = subprocess.run(
        [sys.executable, RELEASES / "calls.py", server.address, file], text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(release)})
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str(release)
    found = np.load(file)
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.skipif(not os.environ.get("CONVGRAD_FULL")
                    or not os.environ.get("CONVGRAD_RELEASED_SERVER"),
                    reason="tests/run full with CONVGRAD_RELEASED_SERVER, a released program")
def test_this_client_works_with_the_last_releases_server(expected, monkeypatch):
    monkeypatch.setattr(server_process, "BINARY", os.environ["CONVGRAD_RELEASED_SERVER"])
    released = server_process.ServerProcess()
    found = calls(released.address)
    assert released.terminate() == 0
    assert set(found) == set(expected)
    for name, array in expected.items():
        if array.dtype.kind == "f":  # the order of a sum may differ
            np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-3, err_msg=name)
        else:
            assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype), name
