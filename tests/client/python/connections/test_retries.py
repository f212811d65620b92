"""Tests which calls are repeated, with a scripted server."""

import logging

import grpc
import numpy as np
import pytest
from server_process import ServerProcess
from stand_in import grpc_server

import convgrad
from convgrad.connections.channels import ChannelPool, Connections
from convgrad.errors import from_rpc
from convgrad.v1 import error_pb2, service_pb2
from convgrad.wire import split_bytes

X, W = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 2, 2), np.float32)
QUICK = convgrad.RetryPolicy(initial_seconds=0.001, max_seconds=0.002)


class Script:
    """Fails with each of `failures`, then forwards calls to a real server."""

    def __init__(self, failures, server):
        self.failures = list(failures)
        self.channel = grpc.insecure_channel(server.address)
        self.requests, self.metadata, self.remaining = [], [], []

    def __call__(self, request, context):
        self.requests.append(service_pb2.ConvForwardRequest.FromString(
            split_bytes(request)[0]))
        self.metadata.append(dict(context.invocation_metadata()))
        self.remaining.append(context.time_remaining())
        if self.failures:
            code, *trailers = self.failures.pop(0)
            context.set_trailing_metadata(trailers)
            context.abort(code, "as scripted")
        return self.channel.unary_unary("/convgrad.v1.ConvGrad/ConvForward")(request)


UNAVAILABLE = (grpc.StatusCode.UNAVAILABLE,)
FULL = (grpc.StatusCode.RESOURCE_EXHAUSTED, ("grpc-retry-pushback-ms", "2"))


def test_a_repeat_is_the_same_request(server):
    script = Script([UNAVAILABLE, FULL, UNAVAILABLE], server)
    with grpc_server(script) as address:
        with convgrad.Client(address, retry=QUICK) as client:
            y = client.conv_forward(X, W).output
    np.testing.assert_array_equal(y, np.full((1, 1, 2, 2), 4))
    ids = {bytes(request.options.request_id) for request in script.requests}
    assert len(script.requests) == 4 and len(ids) == 1 and len(ids.pop()) == 16
    sizes = {metadata["convgrad-request-bytes"] for metadata in script.metadata}
    assert len(sizes) == 1 and int(sizes.pop()) > X.nbytes + W.nbytes


@pytest.mark.parametrize("failure, kind", [
    ((grpc.StatusCode.RESOURCE_EXHAUSTED,), convgrad.ResourceExhausted),
    ((grpc.StatusCode.RESOURCE_EXHAUSTED, ("grpc-retry-pushback-ms", "-1")),
     convgrad.ResourceExhausted),
    ((grpc.StatusCode.RESOURCE_EXHAUSTED, ("grpc-retry-pushback-ms", 5000 * "9")),
     convgrad.ResourceExhausted),
    ((grpc.StatusCode.RESOURCE_EXHAUSTED, ("grpc-retry-pushback-ms", 19 * "9")),
     convgrad.ResourceExhausted),
    ((grpc.StatusCode.INTERNAL,), convgrad.Internal),
    ((grpc.StatusCode.FAILED_PRECONDITION,), convgrad.FailedPrecondition),
    ((grpc.StatusCode.NOT_FOUND,), convgrad.NotFound),
    ((grpc.StatusCode.PERMISSION_DENIED,), convgrad.PermissionDenied),
    ((grpc.StatusCode.UNAUTHENTICATED,), convgrad.Unauthenticated),
    ((grpc.StatusCode.DATA_LOSS,), convgrad.ConvgradError),
])
def test_the_rest_is_final(server, failure, kind):
    script = Script([failure], server)
    with grpc_server(script) as address:
        with convgrad.Client(address, retry=QUICK) as client:
            with pytest.raises(kind) as caught:
                client.conv_forward(X, W)
    assert len(script.requests) == 1 and caught.value.attempts == 1
    assert caught.value.code == failure[0]
    assert caught.value.request_id == script.requests[0].options.request_id


def test_each_retry_is_a_line_of_the_log(server, caplog):
    script = Script([UNAVAILABLE, FULL], server)
    with grpc_server(script) as address, caplog.at_level(logging.INFO, "convgrad"):
        with convgrad.Client(address, retry=QUICK, token="tell-nobody") as client:
            client.conv_forward(X, W)
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines == [
        ("INFO", f"ConvForward at {address}: UNAVAILABLE: as scripted; attempt 1 of 20, the "
         "next one in 0.00 s"),
        ("INFO", f"ConvForward at {address}: RESOURCE_EXHAUSTED: as scripted; attempt 2 of 20, "
         "the next one in 0.00 s")]


def test_attempts_end(server):
    script = Script([UNAVAILABLE] * 9, server)
    policy = convgrad.RetryPolicy(max_attempts=3, initial_seconds=0.001)
    with grpc_server(script) as address:
        with convgrad.Client(address, retry=policy) as client:
            with pytest.raises(convgrad.Unavailable, match=r"after 3 attempts"):
                client.conv_forward(X, W)
    assert len(script.requests) == 3


def test_one_deadline_for_all_attempts(server):
    script = Script([UNAVAILABLE] * 1000, server)
    policy = convgrad.RetryPolicy(max_attempts=1000, initial_seconds=0.05, max_seconds=0.05)
    with grpc_server(script) as address:
        with convgrad.Client(address, retry=policy) as client:
            # DeadlineExceeded occurs if the machine wakes the client late.
            with pytest.raises((convgrad.Unavailable, convgrad.DeadlineExceeded)):
                client.conv_forward(X, W, timeout=1)
    assert 1 < len(script.requests) < 1000
    assert script.remaining == sorted(script.remaining, reverse=True)


@pytest.mark.parametrize("name, value", [
    ("max_attempts", 0), ("max_attempts", 1.5), ("max_attempts", None), ("max_seconds", -1),
    ("max_seconds", None), ("initial_seconds", float("nan")), ("multiplier", -2),
    ("jitter", -0.1)])
def test_policies_that_say_nothing(name, value):
    with pytest.raises(convgrad.InvalidArgument, match=f"retry.{name}: found {value}, exp"):
        convgrad.RetryPolicy(**{name: value})


def test_numpys_numbers_in_a_policy():
    policy = convgrad.RetryPolicy(max_attempts=np.int64(3), max_seconds=np.float32(0.5))
    assert policy.backoff(2) == 0.1


def test_delays():
    policy = convgrad.RetryPolicy()
    for unavailable in (from_rpc(grpc.StatusCode.UNAVAILABLE, "", []),
                        from_rpc(grpc.StatusCode.UNKNOWN, "Stream removed", [])):
        assert isinstance(unavailable, convgrad.Unavailable)
    delays = [policy.delay(unavailable, n) for n in range(1, 20)]
    for n, delay in enumerate(delays):
        least = min(0.05 * 2**n, 2.0)
        assert least <= delay <= 1.25 * least
    assert policy.delay(unavailable, 20) is None
    # A stopping server ends calls in this way.
    assert policy.delay(from_rpc(grpc.StatusCode.CANCELLED, "CANCELLED", []), 1) >= 0.05
    full = from_rpc(grpc.StatusCode.RESOURCE_EXHAUSTED, "",
                    [("grpc-retry-pushback-ms", "700")])
    assert 0.7 <= policy.delay(full, 1) <= 1.25 * 0.7


def test_errors_name_the_field(client):
    with pytest.raises(convgrad.ConvgradError) as caught:
        client.conv_forward(np.zeros((1, 1024, 300, 300), "f4"),
                            np.zeros((1024, 1024, 11, 11), "f4"), timeout=300)
    error = caught.value
    assert error.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.reason == "LIMIT_EXCEEDED" and error.field and error.expected
    assert error.field in error.message and len(error.request_id) == 16


def test_details_that_are_no_details_are_ignored():
    for trailer in (b"\xff\xff", error_pb2.ErrorDetail().SerializeToString()):
        error = from_rpc(grpc.StatusCode.INTERNAL, None, [("convgrad-error-bin", trailer)])
        assert isinstance(error, convgrad.Internal) and error.field == ""


def test_a_wait_that_outlasts_the_deadline_ends_with_the_error_before_it(server, monkeypatch):
    """As on a machine under load."""
    retry = convgrad.RetryPolicy(initial_seconds=0.1, jitter=0)
    with grpc_server(Script([UNAVAILABLE], server)) as address, \
            convgrad.Client(address, retry=retry) as client:
        wait = client._closed.wait
        monkeypatch.setattr(client._closed, "wait", lambda seconds: wait(seconds + 2))
        with pytest.raises(convgrad.Unavailable) as caught:
            client.conv_forward(X, W, timeout=1.5)
    assert caught.value.attempts == 1


def test_who_was_unavailable_waits_its_turn():
    pool = ChannelPool(Connections(("a:1", "b:1", "c:1")))
    assert [pool.pick().target for _ in range(4)] == ["a:1", "b:1", "c:1", "a:1"]
    pool.mark_down(pool.pick())
    assert [pool.pick().target for _ in range(4)] == ["c:1", "a:1", "c:1", "a:1"]
    for _ in range(2):
        pool.mark_down(pool.pick())
    assert {pool.pick().target for _ in range(3)} == {"a:1", "b:1", "c:1"}
    for channel in pool.close():
        channel.close()


def test_turns_and_a_dead_server(server):
    other = ServerProcess()
    with convgrad.Client([server.address, other.address], retry=QUICK) as client:
        for _ in range(4):
            client.conv_forward(X, W)
        other.kill()
        for _ in range(8):
            client.conv_forward(X, W)
        other.restart()
        for _ in range(4):
            client.conv_forward(X, W)
    assert other.terminate() == 0
