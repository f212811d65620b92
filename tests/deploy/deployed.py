"""Programs as an operator starts them, for the tests of this folder."""
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CONVGRAD_BUILD_DIR",
                                    ROOT / "build" / "release"))
SERVER = BUILD / "server" / "convgrad-server"
CLIENT = BUILD / "client" / "cpp" / "convgrad"
# kubectl and Kubernetes' schemas, as deploy/dependencies test puts them.
KUBERNETES = ROOT / ".cache" / "kubernetes"


def need(*programs):
    """Skips the test unless all `programs` are installed."""
    for program in programs:
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") is None:
            pytest.skip(f"{program} isn't installed: deploy/dependencies test")


def free_port():
    """Returns a port that was free a moment ago, for programs that can't say
    which one they took."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def wait_until(true, what, seconds=60):
    """Waits until `true()` is; fails the test if that never happens."""
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, f"never: {what}"
        time.sleep(0.05)


@contextlib.contextmanager
def running(*command, **options):
    """Runs a program, and kills it in the end."""
    process = subprocess.Popen([str(part) for part in command], **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Server:
    """A convgrad-server on ports of its own."""

    def __init__(self, process):
        self.process = process
        self.metrics = None
        self.health = None
        self.address = None
        while self.address is None:
            line = process.stdout.readline()
            assert line, "convgrad-server didn't start"
            for name, mark in (("metrics", "metrics on port "),
                               ("health", "health at "),
                               ("address", "listening on ")):
                if mark in line:
                    setattr(self, name, line.split(mark)[1].strip())


@contextlib.contextmanager
def server(*flags):
    with running(SERVER, "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                 "--memory_budget_bytes=268435456", "--threads_per_worker=1",
                 "--backends=onednn,reference", *flags, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                 text=True) as process:
        yield Server(process)


def convgrad(address, *arguments):
    """Runs the command line tool; fails the test if it fails."""
    done = subprocess.run([CLIENT, *arguments, f"--server={address}"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
