"""Provides functions for tests in several folders."""

import contextlib
import dis
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
    """Interrupts this package at place number `at` of those where Python looks for Ctrl-C: the
    beginnings of functions and loops, and behind calls. Yields a function that returns the
    number of places so far.

    Unlike Ctrl-C, it leaves the lock of a `with` that returns a call's result.
    """
    numbers, package = itertools.count(), str(pathlib.Path(convgrad.__file__).parent)
    last = {}

    def trace(frame, event, _):
        code = frame.f_code
        # A generator that is freed ignores it.
        if not code.co_filename.startswith(package) or code.co_flags & inspect.CO_GENERATOR:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            before = last.get(frame, "")
            last[frame] = dis.opname[code.co_code[frame.f_lasti]]
            if before.startswith(("RESUME", "CALL", "JUMP_BACKWARD")) and next(numbers) == at:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: next(numbers)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
