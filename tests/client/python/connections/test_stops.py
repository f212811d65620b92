"""Tests a server that is stopped under load and started again, and calls that end CANCELLED:
the client repeats them unless the caller cancelled them."""

import asyncio
import functools
import threading
from dataclasses import replace

import grpc
import numpy as np
import pytest
from server_process import ServerProcess
from stand_in import grpc_server

import convgrad
from convgrad import operations
from convgrad.connections import transport

X, W = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 2, 2), np.float32)
QUICK = convgrad.RetryPolicy(max_attempts=1000, initial_seconds=0.001, max_seconds=0.02)
STOPS = 10
THREADS = 8


@pytest.fixture(params=["native", "python"])
def each_transport(request, monkeypatch):
    if request.param == "native" and not transport.NATIVE:
        pytest.skip("the native module isn't there")
    monkeypatch.setattr(transport, "NATIVE", request.param == "native")


class Load:
    """Makes calls from several threads until the block ends."""

    def __init__(self, client):
        self.client = client
        self.stops = False
        self.calls = 0
        self.errors = []
        self.threads = [threading.Thread(target=self.run) for _ in range(THREADS)]

    def run(self):
        while not self.stops:
            try:
                self.client.conv_forward(X, W)
            except convgrad.ConvgradError as error:
                self.errors.append(error)
            self.calls += 1

    def await_calls(self):
        """Returns once calls are answered again."""
        enough = self.calls + 4 * THREADS
        while self.calls < enough:
            self.threads[0].join(0.001)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self.stops = True
        for thread in self.threads:
            thread.join()


@pytest.mark.usefixtures("each_transport")
def test_no_call_is_lost_when_a_server_stops_under_load():
    server = ServerProcess("--noprove_at_start")
    with convgrad.Client(server.address, timeout=60, retry=QUICK) as client, \
            Load(client) as load:
        for _ in range(STOPS):
            load.await_calls()
            assert server.terminate() == 0
            server.restart()
        load.await_calls()
    server.kill()
    assert load.errors == []


class Cancelling(grpc.GenericRpcHandler):
    """Forwards each call to a real server, but answers the first attempts with CANCELLED
    instead of the server's answer."""

    def __init__(self, server, attempts):
        self.channel = grpc.insecure_channel(server.address)
        self.attempts = attempts
        self.seen = []

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(
            functools.partial(self.answer, details.method))

    def answer(self, method, request, context):
        metadata = dict(context.invocation_metadata())
        self.seen.append((method, metadata.get("convgrad-session-sequence"),
                          metadata.get("convgrad-call-id-bin")))
        try:
            reply, call = self.channel.unary_unary(method).with_call(
                request, metadata=[(key, value) for key, value in metadata.items()
                                   if key.startswith("convgrad-")])
        except grpc.RpcError as error:
            context.set_trailing_metadata(error.trailing_metadata())
            context.abort(error.code(), error.details())
        if [one[0] for one in self.seen].count(method) <= self.attempts:
            context.abort(grpc.StatusCode.CANCELLED, "CANCELLED")
        context.set_trailing_metadata(call.trailing_metadata())
        return reply


@pytest.mark.usefixtures("each_transport")
def test_a_sessions_changes_take_effect_once_though_their_replies_are_cancelled(server):
    cancelling = Cancelling(server, attempts=2)
    with grpc_server(cancelling) as address, \
            convgrad.Client(address, timeout=60, retry=QUICK) as client, \
            client.session() as session:
        session.put("w", W)
        for _ in range(2):
            session.conv_backward(np.ones((1, 1, 2, 2), "f4"), X, "w",
                                  gradients=["grad_weight"], add={"grad_weight": "sum"})
        np.testing.assert_array_equal(session.get("sum"), np.full((1, 1, 2, 2), 8))
    changes = [one for one in cancelling.seen if one[1] is not None]
    assert len(changes) > 3 and len({one[1:] for one in changes}) == 3, changes


def test_asyncio_repeats_too(server):
    async def main(address):
        async with convgrad.aio.Client(address, timeout=60, retry=QUICK) as client:
            return await client.conv_forward(X, W)

    cancelling = Cancelling(server, attempts=2)
    with grpc_server(cancelling) as address:
        asyncio.run(main(address))
    assert len(cancelling.seen) == 3


@pytest.mark.usefixtures("each_transport")
@pytest.mark.parametrize("slice_items", [None, 1], ids=["message", "stream"])
def test_who_closes_the_client_has_nothing_repeated(slice_items):
    waits = threading.Event()
    calls = []

    def answer(_request, context):
        calls.append(context)
        context.add_callback(waits.set)
        waits.wait(60)
        return b""

    options = {} if slice_items is None else {"slice_items": slice_items}
    with grpc_server(answer) as address:
        client = convgrad.Client(address, timeout=60, retry=QUICK)
        future = client.submit(client.conv_forward, X, W, **options)
        while not calls:
            assert not future.done(), future.exception()
            threading.Event().wait(0.001)
        client.close()
        with pytest.raises(convgrad.Cancelled):
            future.result()
    assert len(calls) == 1


def test_who_cancels_a_stream_has_nothing_repeated():
    calls = []

    def answer(_request, context):
        calls.append(context)
        ended = threading.Event()
        context.add_callback(ended.set)
        ended.wait(60)
        return b""

    with grpc_server(answer) as address, \
            convgrad.Client(address, timeout=60, retry=QUICK) as client:
        call = replace(operations.conv_forward(X, W, slice_items=1),
                       on_start=lambda rpc: rpc.cancel())
        with pytest.raises(convgrad.Cancelled) as caught:
            client.run(call)
    assert len(calls) < 2 and caught.value.attempts < 2
