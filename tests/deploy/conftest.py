"""What several tests of this folder use and takes long to make."""
import os
import subprocess

import pytest

import deployed
import engine


@pytest.fixture(name="image", scope="session")
def built_image():
    if not os.environ.get("CONVGRAD_FULL"):
        pytest.skip("builds an image, some minutes: tests/run full")
    deployed.need("docker")
    if subprocess.run(["docker", "info"], capture_output=True,
                      check=False).returncode:
        pytest.skip("no Docker engine answers")
    return engine.build_image()
