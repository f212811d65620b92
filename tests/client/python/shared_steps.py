"""Provides functions for tests in several folders."""

import contextlib
import inspect
import itertools
import os
import pathlib
import subprocess
import sys
import time

import convgrad
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


@contextlib.contextmanager
def interrupted(at):
    """Interrupts this package's function number `at`, where it begins, as Ctrl-C may. Yields a
    function that returns the number of functions so far."""
    numbers, package = itertools.count(), str(pathlib.Path(convgrad.__file__).parent)

    def trace(frame, event, _):
        # A generator that is freed ignores it.
        if frame.f_code.co_filename.startswith(package) and not (
                frame.f_code.co_flags & inspect.CO_GENERATOR) and next(numbers) == at:
            raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: next(numbers)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
