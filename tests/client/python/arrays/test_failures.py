"""Tests that each failure gives one clear exception, without a hang or a leak."""

import collections
import concurrent.futures
import contextlib
import gc
import inspect
import os
import threading
import traceback

import numpy as np
import pytest
import torch
from server_process import ServerProcess
from stand_in import grpc_server, tcp_server

import convgrad
from convgrad.requests import Call
from convgrad.tracebacks import short_traceback
from convgrad.v1 import network_pb2, service_pb2, tensor_pb2
from convgrad.wire import join_message

X, W = np.ones((1, 1, 6, 6), np.float32), np.ones((1, 1, 3, 3), np.float32)
# The right head with a payload of another size.
WRONG_SIZE = join_message(service_pb2.ConvForwardResponse(results=[
    service_pb2.NamedTensor(which=tensor_pb2.RESULT_OUTPUT, tensor=tensor_pb2.Tensor(
        dtype=tensor_pb2.DATA_TYPE_F32, layout=tensor_pb2.LAYOUT_NCX, dims=[1, 1, 4, 4],
        inline=tensor_pb2.Tensor.Inline(payload_index=0)))]).SerializeToString(),
    [memoryview(bytes(60))])
# A call with a deadline of a second or two that takes this long hangs. A shorter time may be
# caused by a slow machine.
HANGS_SECONDS = 300


def failure_of(target, timeout=1.0, **settings):
    """Returns the exception of a call, which must fail."""
    client = convgrad.Client(target, timeout=timeout, **settings)
    executor = concurrent.futures.ThreadPoolExecutor(1)
    error = executor.submit(client.conv_forward, X, W).exception(HANGS_SECONDS)
    client.close()
    executor.shutdown()
    assert error is not None
    return error


def test_nobody_listens():
    error = failure_of("127.0.0.1:1")
    assert isinstance(error, convgrad.Unavailable) and isinstance(error, ConnectionError)
    assert error.attempts > 1


def test_no_such_socket_and_no_such_host(tmp_path):
    assert isinstance(failure_of(f"unix:{tmp_path}/none"), convgrad.Unavailable)
    assert isinstance(failure_of("no-such-host.invalid:7070"), convgrad.Unavailable)


@pytest.mark.parametrize("target", ["", [], ["127.0.0.1:1", ""]])
def test_no_target(target):
    with pytest.raises(convgrad.InvalidArgument, match="server: found nothing"):
        convgrad.Client(target)


@pytest.mark.parametrize("target", [
    "localhost", "localhost:", "localhost:http", "localhost:70700", "localhost:0", "[::1]",
    "::1:7070", "http://localhost:7070", "dns:///localhost", "/run/convgrad.sock", "unix:",
    "unix:///", "unix-abstract:", "ipv4:"])
def test_a_target_without_a_port_is_refused(target):
    with pytest.raises(convgrad.InvalidArgument) as caught:
        convgrad.Client(["localhost:7070", target])
    assert caught.value.message == (
        f"server: found '{target}', expected HOST:PORT (a server's default port is 7070) or "
        "unix:PATH")


@pytest.mark.parametrize("target", [
    "localhost:7070", "[::1]:7070", "10.0.0.1:65535", "dns:///some.host:1", "dns:host:1",
    "dns://8.8.8.8/host:1", "unix:/path", "unix:///path", "ipv4:10.0.0.1:1,10.0.0.2:1"])
def test_targets_that_grpc_has_names_for(target):
    convgrad.Client(target).close()


def test_who_says_nothing():
    with tcp_server(b"") as address:
        error = failure_of(address)
    assert isinstance(error, (convgrad.DeadlineExceeded, convgrad.Unavailable))


def frames_of(error):
    """Returns the names of the functions in a traceback."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_a_traceback_has_the_frames_of_the_user(server):
    class Conv(torch.nn.Module):
        def forward(self, x):
            return client.conv_forward(np.asarray(x), W, stride=0)

    @short_traceback
    def ours():
        return Conv()(X)

    # short_traceback() keeps its own frame, and none below it.
    with convgrad.Client(server.address) as client:
        with pytest.raises(convgrad.InvalidArgument) as caught:
            ours()
    mine = inspect.currentframe().f_code.co_name
    # PyTorch 2 has one frame more.
    found = [name for name in frames_of(caught.value) if name != "_wrapped_call_impl"]
    assert found == [mine, "called", "ours", "_call_impl", "forward"]


def test_a_traceback_of_an_internal_error_is_whole():
    with grpc_server(lambda request, context: b"hello") as address:
        with convgrad.Client(address) as client, pytest.raises(convgrad.Internal) as caught:
            client.conv_forward(X, W)
    assert "run_somewhere" in frames_of(caught.value)


@pytest.mark.parametrize("wrong", [{"stride": 0}, {"stride": "x"}])
def test_the_exception_that_was_handled_stays(server, wrong):
    with convgrad.Client(server.address) as client:
        with pytest.raises(convgrad.InvalidArgument) as caught:
            try:
                raise KeyError("mine")
            except KeyError:
                client.conv_forward(X, W, **wrong)
    text = "".join(traceback.format_exception(caught.value))
    assert "KeyError: 'mine'" in text and "During handling of the above" in text


def test_a_suppressed_exception_and_a_cause_stay():
    @short_traceback
    def fail(cause):
        try:
            raise KeyError("hidden")
        except KeyError:
            raise convgrad.Unavailable("none") from cause

    for cause in (None, OSError("why")):
        with pytest.raises(convgrad.Unavailable) as caught:
            fail(cause)
        assert caught.value.__cause__ is cause and caught.value.__suppress_context__
        assert isinstance(caught.value.__context__, KeyError)


def test_another_protocol():
    with tcp_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        assert isinstance(failure_of(address), convgrad.Unavailable)


def test_another_grpc_service():
    with grpc_server() as address:
        error = failure_of(address, timeout=HANGS_SECONDS)
    assert isinstance(error, convgrad.Unimplemented)


@pytest.mark.parametrize("method, message, found", [
    ("ConvGradNetworks/LoadProgram", network_pb2.LoadProgramRequest(
        name="p", program=network_pb2.Program(steps=[network_pb2.Program.Step(
            operator="newest")])),
     "steps\\[0\\].operator: found 'newest'"),
    ("ConvGradNetworks/Newest", network_pb2.LoadProgramRequest(), "method: found .*Newest"),
    ("ConvForward", b"\x9a\x06\0", "request: found field 99 of")])
def test_what_an_older_server_lacks(client, method, message, found):
    head = message if isinstance(message, bytes) else message.SerializeToString()
    with client.session() as session, pytest.raises(convgrad.Unimplemented, match=(
            f"{found}.*; the server may be older than this client$")):
        session._perform(Call(method, head, lambda _: None, is_change=True))


@pytest.mark.parametrize("answer", [
    b"", WRONG_SIZE, b"\xff", b"\x0a\xff\x01", b"hello", b"\x0b\x0c"])
def test_answers_that_are_none(answer):
    with grpc_server(lambda request, context: answer) as address:
        error = failure_of(address, timeout=HANGS_SECONDS)
    assert isinstance(error, convgrad.Internal) and error.field.startswith("reply.")


def test_an_expired_deadline(server):
    error = failure_of(server.address, timeout=0)
    assert isinstance(error, convgrad.DeadlineExceeded) and isinstance(error, TimeoutError)


@pytest.fixture
def own_server():
    process = ServerProcess()
    yield process
    process.kill()


def test_a_server_that_stands_still(own_server):
    own_server.stand_still()
    assert isinstance(failure_of(own_server.address), convgrad.DeadlineExceeded)


def test_a_server_killed_during_a_call(own_server):
    once = convgrad.RetryPolicy(max_attempts=1)
    with convgrad.Client(own_server.address, retry=once) as client:
        client.conv_forward(X, W)
        # It can't answer before it is killed.
        own_server.stand_still()
        call = client.submit(client.conv_forward, X, W)
        own_server.kill()
        error = call.exception(HANGS_SECONDS)
    assert isinstance(error, convgrad.Unavailable)


def test_a_server_killed_and_restarted_during_a_call(own_server):
    with convgrad.Client(own_server.address) as client:
        expected = client.conv_forward(X, W).output
        own_server.stand_still()
        call = client.submit(client.conv_forward, X, W)
        own_server.kill()
        own_server.restart()
        np.testing.assert_array_equal(call.result(HANGS_SECONDS).output, expected)


def test_closing_ends_calls(own_server):
    client = convgrad.Client(own_server.address)
    own_server.stand_still()
    calls = [client.submit(client.conv_forward, X, W) for _ in range(3)]
    client.close()
    for call in calls:
        if not call.cancelled():
            assert isinstance(call.exception(HANGS_SECONDS), convgrad.Cancelled)
    for use in (client.conv_forward, lambda x, w: client.submit(client.conv_forward, x, w)):
        with pytest.raises(convgrad.Cancelled, match="closed"):
            use(X, W)
    client.close()


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# gRPC's pools start a thread when their threads are busy, which depends on the machine's load,
# and end idle ones only after a while.
GRPC_POOLS = {"default-executo", "resolver-execut", "event_engine", "grpc_global_tim",
              "timer_manager"}


def threads():
    """Returns the number of threads with each name."""
    counts = collections.Counter()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError):  # it has ended
            with open(f"/proc/self/task/{task}/comm") as file:
                counts[file.read().strip()] += 1
    return counts


def test_a_thousand_failures_leave_nothing(server):
    """Each call has 1 MiB and there are 200 of each kind, so that a leak would show."""
    x, w = np.ones((1, 1, 512, 512), np.float32), np.ones((1, 1, 3, 3), np.float32)
    once = convgrad.RetryPolicy(max_attempts=1)
    with (convgrad.Client("127.0.0.1:1", retry=once) as nobody,
          convgrad.Client(server.address) as client, grpc_server() as other_address,
          convgrad.Client(other_address) as other):
        failures = [
            lambda: nobody.conv_forward(x, w),
            lambda: other.conv_forward(x, w),
            lambda: client.conv_forward(x, w, timeout=0),
            lambda: client.conv_forward(x, w, stride=0),
            lambda: client.conv_forward(x, w, backend="cuda"),
        ]

        def fail(times):
            for i in range(times):
                with pytest.raises(convgrad.ConvgradError):
                    failures[i % len(failures)]()
            gc.collect()

        fail(200)
        before, threads_before = resident_bytes(), threads()
        fail(1000)
        assert resident_bytes() - before < 64 << 20
        for name, count in (threads() - threads_before).items():
            assert name in GRPC_POOLS and count < 100, (name, count)


def test_clients_that_fail_leave_no_threads():
    failure_of("127.0.0.1:1", timeout=0.01)
    before = threading.active_count()
    for _ in range(20):
        failure_of("127.0.0.1:1", timeout=0.01)
    assert threading.active_count() <= before


@pytest.mark.parametrize("call", [
    lambda client: client.capabilities(),
    lambda client: client.session(),
    lambda client: client.sessions(),
])
def test_a_truncated_reply_is_internal(call):
    with (grpc_server(lambda request, context: b"\x0a\x05") as target,
          convgrad.Client(target, timeout=10) as client,
          pytest.raises(convgrad.Internal) as caught):
        call(client)
    assert caught.value.field == "reply.message"
