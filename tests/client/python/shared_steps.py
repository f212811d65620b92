"""Provides functions for tests in several folders."""

import os
import subprocess
import sys
import time

from convgrad.requests import Call
from convgrad.v1 import session_pb2


def sessions_of(client):
    return client.run(Call("ConvGradSessions/ListSessions", b"",
                           session_pb2.ListSessionsResponse.FromString)).sessions


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def python(code, transport="", arguments=(), **settings):
    """Runs the code in a new interpreter and returns the finished process."""
    environment = {**os.environ, "CONVGRAD_TRANSPORT": transport}
    return subprocess.run([sys.executable, "-c", code, *arguments], env=environment, text=True,
                          capture_output=True, timeout=60, **settings)
