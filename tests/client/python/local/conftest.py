"""Fixtures that run code in a process of its own, where no server of a test exists yet."""

import os
import subprocess
import sys
import tempfile

import pytest
from server_process import BINARY


@pytest.fixture
def folder():
    """Where sockets are made; short, as a socket's path has to be."""
    with tempfile.TemporaryDirectory() as path:
        yield path


@pytest.fixture
def environment(folder):
    """Returns a function that makes the environment of a process from its own variables."""

    def make(**settings):
        return {**os.environ, "TMPDIR": str(folder), "CONVGRAD_SERVER": str(BINARY),
                "CONVGRAD_TRANSPORT": "", **settings}

    return make


@pytest.fixture
def run(environment):
    """Runs code in a process of its own, in which none has a server; returns its lines."""

    def run_one(code, **settings):
        found = subprocess.run(
            [sys.executable, "-c", "import convgrad, os, sys, time\n" + code], text=True,
            timeout=100, env=environment(**settings), capture_output=True, check=False)
        assert found.returncode == 0, found.stderr
        return found.stdout.splitlines()

    return run_one
