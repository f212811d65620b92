"""Provides fixtures that run code in a new process, in which no test has started a server."""

import os
import subprocess
import sys
import tempfile

import pytest
from server_process import BINARY


@pytest.fixture
def folder():
    """Returns the folder for sockets; its path is short, because a socket's path must be."""
    with tempfile.TemporaryDirectory() as path:
        yield path


@pytest.fixture
def environment(folder):
    """Returns a function that makes a process's environment, with additional variables."""

    def make(**settings):
        return {**os.environ, "TMPDIR": str(folder), "CONVGRAD_SERVER": str(BINARY),
                "CONVGRAD_TRANSPORT": "", **settings}

    return make


@pytest.fixture
def run(environment):
    """Returns a function that runs code in a new process and returns the printed lines."""

    def run_one(code, **settings):
        found = subprocess.run(
            [sys.executable, "-c", "import convgrad, os, sys, time\n" + code], text=True,
            timeout=100, env=environment(**settings), capture_output=True, check=False)
        assert found.returncode == 0, found.stderr
        return found.stdout.splitlines()

    return run_one
