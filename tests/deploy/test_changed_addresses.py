"""Tests a name whose addresses change, such as a headless Service's in a rolling restart: a
client that connected a moment ago finds the new addresses."""
import contextlib
import os
import subprocess
import sys

import pytest

import deployed
import pods

pytest.importorskip("convgrad")
pytest.importorskip("numpy")

# Long for a call, but shorter than the 30 s between gRPC's name resolutions by default.
TIMEOUT = 15
CLIENT = f"""
import numpy, convgrad
ones = numpy.ones((1, 1, 3), "f4")
with convgrad.Client("dns:///replicas.test:7070", timeout={TIMEOUT}) as client:
    client.conv_forward(ones, ones)
    print("called", flush=True)
    input()
    client.conv_forward(ones, ones)
    print("called", flush=True)
"""


@contextlib.contextmanager
def replica(pod):
    with deployed.running(
            *pod.enter(), deployed.SERVER, "--listen=0.0.0.0:7070", "--insecure",
            "--metrics_listen=", "--memory_budget_bytes=268435456",
            "--noprove_at_start", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True) as process:
        while "listening on " not in (line := process.stdout.readline()):
            assert line, "convgrad-server didn't start"
        yield


@pytest.mark.parametrize("chosen", ["", "python"], ids=["native", "python"])
def test_a_client_finds_replicas_that_came_after_it_connected(tmp_path, chosen):
    with pods.node(tmp_path) as node:
        old, new, caller = (node.pod(name) for name in ("old", "new", "caller"))
        hosts = caller.etc / "hosts"
        with replica(new):
            with replica(old):
                hosts.write_text(f"{old.address} replicas.test\n")
                client = node.stack.enter_context(deployed.running(
                    *caller.enter(), sys.executable, "-c", CLIENT,
                    env={**os.environ, "CONVGRAD_TRANSPORT": chosen},
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
                assert client.stdout.readline() == "called\n"
                hosts.write_text(f"{new.address} replicas.test\n")
            assert client.communicate("\n")[0] == "called\n"
