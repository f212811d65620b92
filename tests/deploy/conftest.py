"""Provides fixtures that take long to make and that several tests of this folder use."""
import os
import subprocess

import pytest

import deployed
import engine


def build_or_skip(variant):
    if not os.environ.get("CONVGRAD_FULL"):
        pytest.skip("builds an image, some minutes: tests/run full")
    deployed.need("docker")
    if subprocess.run(["docker", "info"], capture_output=True,
                      check=False).returncode:
        pytest.skip("no Docker engine answers")
    return engine.build_image(variant)


@pytest.fixture(name="image", scope="session")
def built_image():
    return build_or_skip("cpu")


@pytest.fixture(name="each_image", scope="session", params=["cpu", "cuda"])
def each_built_image(request):
    return build_or_skip(request.param)
