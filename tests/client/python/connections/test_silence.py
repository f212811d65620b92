"""Tests half an hour of silence behind a firewall that forgets connections after four minutes.

Runs only as root: it makes a network namespace whose firewall drops packets of unknown
connections, and trains there.
"""

import os
import subprocess
import sys
import time

import pytest
from server_process import ServerProcess

pytestmark = pytest.mark.skipif(
    not os.environ.get("CONVGRAD_FULL"), reason="half an hour: only in tests/run full")

SECONDS = int(os.environ.get("CONVGRAD_SILENCE_SECONDS", "1800"))
FORGETS_AFTER = 240
NAMESPACE, OUTSIDE, INSIDE = "convgrad-silence", "10.77.0.1", "10.77.0.2"
RULES = """
table ip firewall {
  chain input {
    type filter hook input priority 0; policy drop
    iif lo accept
    ct state established,related accept
  }
  chain output {
    type filter hook output priority 0; policy drop
    oif lo accept
    ct state established,related accept
    ct state new tcp flags & (fin | syn | rst | ack) == syn accept
  }
}
"""
SESSION = """
import sys, time
import numpy as np
import convgrad
with convgrad.Client(sys.argv[1]) as client, client.session() as session:
    session.put("x", np.ones((1, 4), np.float32))
    time.sleep(float(sys.argv[2]))
    start = time.monotonic()
    session.put("y", np.ones((1, 4), np.float32))
    session.get("x")
    print(time.monotonic() - start)
"""


def run(*command, **keywords):
    subprocess.run(command, check=True, **keywords)


@pytest.fixture
def inside():
    """Returns a function that runs commands in the namespace."""
    enter = ("ip", "netns", "exec", NAMESPACE)
    run("ip", "netns", "add", NAMESPACE)
    try:
        run("ip", "link", "add", "silence0", "type", "veth", "peer", "name", "silence1",
            "netns", NAMESPACE)
        run("ip", "address", "add", f"{OUTSIDE}/24", "dev", "silence0")
        run("ip", "link", "set", "silence0", "up")
        run(*enter, "ip", "address", "add", f"{INSIDE}/24", "dev", "silence1")
        run(*enter, "ip", "link", "set", "silence1", "up")
        run(*enter, "nft", "-f", "-", input=RULES, text=True)
        run(*enter, "sysctl", "-q", "-w", "net.netfilter.nf_conntrack_tcp_loose=0",
            f"net.netfilter.nf_conntrack_tcp_timeout_established={FORGETS_AFTER}")
        yield enter
    finally:
        run("ip", "netns", "delete", NAMESPACE)


def test_a_session_survives_a_firewall_that_forgets(inside):
    server = ServerProcess(f"--listen={OUTSIDE}:0", "--insecure")
    try:
        start = time.monotonic()
        said = subprocess.run([*inside, sys.executable, "-c", SESSION, server.address,
                               str(SECONDS)], check=True, text=True,
                              capture_output=True).stdout
    finally:
        server.kill()
    assert time.monotonic() - start > SECONDS
    # The client would take 20 s to give up a connection that the firewall has forgotten.
    assert float(said) < 10
