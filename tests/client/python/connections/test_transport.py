"""Tests the native module: arrays, signals and ends that it handles in its own way."""

import gc
import os
import signal
import threading
import time
import weakref
from dataclasses import replace

import grpc
import numpy as np
import pytest
from shared_steps import python, wait_until
from stand_in import grpc_server, tcp_server

import convgrad
from convgrad import operations, wire
from convgrad.connections import transport
from convgrad.requests import Call

native_only = pytest.mark.skipif(
    os.environ.get("CONVGRAD_TRANSPORT") == "python", reason="asked for the other transport")

X, W = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32)


@native_only
def test_the_wheel_has_the_native_module():
    assert convgrad.native


def test_one_transport_can_be_asked_for():
    found = python("import convgrad; print(convgrad.native)", "python")
    assert found.stdout.strip() == "False"
    assert "found 'neither', expected native or python" in (
        python("import convgrad", "neither").stderr)


def test_an_operations_message_lends_the_arrays():
    call = operations.conv_forward(X, W)
    parts = [part for part in wire.parts_of(call.message) if isinstance(part, memoryview)]
    assert all(any(np.shares_memory(np.asarray(part), array) for part in parts)
               for array in (X, W))
    assert len(call.message) == len(wire.joined(call.message))


def test_what_a_session_is_given_may_change_at_once(client):
    x, w = np.ones((8, 16, 256, 256), np.float32), np.ones((1, 16, 1, 1), np.float32)
    with client.session() as session:
        kept = session.submit(session.conv_forward, x, w, keep={"output": "y"})
        read = session.submit(session.conv_forward, x, w)
        x[:] = 0
        kept.result()
        assert session.get("y").min() == 16 and read.result().output.min() == 16


def test_a_large_message_waits_no_longer_than_its_deadline():
    """The server doesn't read, so the connection's buffers keep a part of the message."""
    x = np.ones((1, 1, 4096, 4096), np.float32)
    with tcp_server(None) as address, convgrad.Client(address) as client:
        for _ in range(3):
            with pytest.raises((convgrad.DeadlineExceeded, convgrad.Unavailable)):
                client.conv_forward(x, W, timeout=0.2)


def test_a_refused_message_may_be_large():
    """The server answers before it has read the whole message, and doesn't read the rest."""
    x = np.ones((1, 1, 4096, 4096), np.float32)
    with grpc_server() as address, convgrad.Client(address) as client:
        with pytest.raises(convgrad.Unimplemented):
            client.conv_forward(x, W, timeout=20)


@pytest.fixture
def interrupts():
    """Enables interrupts, because shells disable them for background processes."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_a_call(interrupts):
    ended = threading.Event()

    def answer(request, context):
        ended.wait(20)
        return b""

    with grpc_server(answer) as address, convgrad.Client(address) as client:
        timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            client.conv_forward(np.ones((1, 1, 512, 512), np.float32), W, timeout=60)
        timer.join()
        ended.set()
        gc.collect()


@native_only
def test_an_interrupt_while_a_call_starts(server, monkeypatch):
    """The call is over before its future has begun; other futures still end."""
    start, is_over = transport.NativeMethod._start, threading.Event()

    def interrupted(*arguments):
        start(*arguments).wait()
        wait_until(lambda: not transport._completions._futures)
        raise KeyboardInterrupt

    with convgrad.Client(server.address, timeout=20) as client:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(transport.NativeMethod, "_start", interrupted)
            client.start(operations.capabilities(), 20)
        client.start(operations.capabilities(), 20).add_done_callback(lambda _: is_over.set())
        assert is_over.wait(20)


def test_a_call_that_is_cancelled_twice_stays_cancelled():
    may_end, is_over = threading.Event(), threading.Event()

    def answer(request, context):
        may_end.wait(20)
        return b""

    with grpc_server(answer) as address, convgrad.Client(address) as client:
        future = client.start(operations.capabilities(), 20)
        future.add_done_callback(lambda _: is_over.set())
        future.cancel()
        assert is_over.wait(20)
        future.cancel()
        with pytest.raises(grpc.FutureCancelledError):
            future.result()
        may_end.set()


@native_only
def test_metadata_that_no_header_can_hold(client):
    with pytest.raises(ValueError, match="metadata was invalid"):
        client.run(replace(operations.conv_forward(X, W), metadata=(("name", "a\nb"),)))


@pytest.mark.parametrize("answer", [b"\xff", b"\x0a\xff\x01", b"\xfa\xff\xff\xff\x0f\x7f"])
def test_a_reply_that_is_none(answer):
    with grpc_server(lambda *_: answer) as address, convgrad.Client(address) as client:
        with pytest.raises(convgrad.Internal):
            client.conv_forward(X, W)


def test_an_interpreter_ends_while_calls_are_under_way(server):
    found = python(f"""
import numpy as np, convgrad
client = convgrad.Client({server.address!r})
x, w = np.ones((8, 64, 56, 56), np.float32), np.ones((64, 64, 3, 3), np.float32)
for i in range(4):
    client.submit(client.conv_forward, x, w)
session = client.session()
for i in range(8):
    session.submit(session.put, "x", x)
print("there")
""")
    assert (found.returncode, found.stdout) == (0, "there\n"), found.stderr


@native_only
def test_an_interpreter_ends_while_daemon_threads_call(server):
    found = python(f"""
import threading, time, numpy as np, convgrad
client = convgrad.Client({server.address!r})
x, w = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 2, 2), np.float32)
def call():
    while True:
        client.conv_forward(x, w)
for i in range(8):
    threading.Thread(target=call, daemon=True).start()
time.sleep(0.5)
print("there")
""")
    assert (found.returncode, found.stdout) == (0, "there\n"), found.stderr


@native_only
def test_futures_end_in_any_order():
    def answer(request, context):
        time.sleep(0.01 * (len(request) % 3))
        return request

    with grpc_server(answer) as address, convgrad.Client(address) as client:
        messages = [b"\x0a" + bytes([i]) + b"." * i for i in range(100)]
        futures = [client.start(Call("Echo", message, bytes), 20) for message in messages]
        assert [future.result() for future in futures] == messages


def test_a_call_that_is_over_is_kept_by_nobody(server):
    """The threads that reported its end now wait for the next call."""
    with convgrad.Client(server.address, timeout=60) as client, client.session() as session:
        future = session.submit(session.put, "x", X)
        future.result()
        gone = weakref.ref(future)
        del future
        deadline = time.monotonic() + 10
        while gone() is not None and time.monotonic() < deadline:
            time.sleep(0.01)
            gc.collect()
        assert gone() is None
