"""Tests both clients: overlapping calls, pools, copies, and asyncio against threads."""

import asyncio
import copy
import pickle
import signal
import textwrap
import threading
import time

import grpc
import numpy as np
import pytest
from server_process import ServerProcess
from shared_steps import python
from stand_in import grpc_server

import convgrad
import convgrad.aio
from convgrad.streams import StreamReply

X, W = np.ones((2, 4, 8, 8), np.float32), np.ones((4, 4, 3, 3), np.float32)


def test_futures_overlap(server):
    with convgrad.Client(server.address, connections=3) as client:
        calls = [client.submit(client.conv_backward, X * i, X, W, padding=1)
                 for i in range(20)]
        for i, call in enumerate(calls):
            np.testing.assert_array_equal(call.result().grad_bias, np.full(4, 128 * i))


def test_a_futures_callback_closes_the_client(server):
    client = convgrad.Client(server.address)
    ended, is_over = [], threading.Event()

    def close(future):
        ended.extend((future, client.close()))
        is_over.set()

    client.submit(client.conv_forward, X, W).add_done_callback(close)
    assert is_over.wait(20) and client.is_closed and ended[0].result().output.size


def test_a_futures_error_is_the_calls(server):
    with convgrad.Client(server.address) as client:
        error = client.submit(client.conv_forward, X, W, stride=-1).exception()
    assert isinstance(error, convgrad.InvalidArgument)


def test_calls_of_one_connection_run_beside_each_other():
    """Each call waits for the other one at the server, so sequential calls would never end."""
    import threading
    barrier = threading.Barrier(2, timeout=60)

    def answer(request, context):
        barrier.wait()
        context.abort(grpc.StatusCode.INTERNAL, "met")

    with grpc_server(answer) as address, convgrad.Client(address) as client:
        for call in [client.submit(client.conv_forward, X, W) for _ in range(2)]:
            assert "met" in str(call.exception())


def test_copies(server):
    with convgrad.Client(server.address, timeout=60) as client:
        assert copy.deepcopy(client) is client
        with pickle.loads(pickle.dumps(client)) as other:
            assert other is not client
            np.testing.assert_array_equal(other.conv_forward(X, W).output,
                                          client.conv_forward(X, W).output)


def test_asyncio(server):
    async def main():
        async with convgrad.aio.Client(server.address, connections=2) as client:
            assert (await client.capabilities()).workers >= 1
            calls = [client.conv_backward(X * i, X, W, padding=1) for i in range(10)]
            return await asyncio.gather(*calls, client.conv_forward(X, W))

    *gradients, forward = asyncio.run(main())
    for i, found in enumerate(gradients):
        np.testing.assert_array_equal(found.grad_bias, np.full(4, 128 * i))
    assert forward.output.shape == (2, 4, 6, 6)


def test_asyncio_failures(server):
    async def main():
        async with convgrad.aio.Client(server.address) as client:
            with pytest.raises(convgrad.InvalidArgument):
                await client.conv_forward(X, W, stride=0)
            with pytest.raises(convgrad.DeadlineExceeded):
                await client.conv_forward(X, W, timeout=0)
        with pytest.raises(convgrad.Cancelled):
            await client.conv_forward(X, W)
        async with convgrad.aio.Client("127.0.0.1:1", timeout=0.5) as client:
            with pytest.raises(convgrad.Unavailable) as caught:
                await client.conv_forward(X, W)
        assert caught.value.attempts > 1
        with grpc_server() as address:
            async with convgrad.aio.Client(address) as client:
                with pytest.raises(convgrad.Unimplemented):
                    await client.capabilities()

    asyncio.run(main())


@pytest.mark.parametrize("keywords", [{}, {"slice_items": 1}])
def test_closing_ends_coroutines(keywords):
    process = ServerProcess()

    async def main():
        client = convgrad.aio.Client(process.address)
        await client.conv_forward(X, W, **keywords)
        with process.standing_still():
            calls = [asyncio.create_task(client.conv_forward(X, W, **keywords))
                     for _ in range(2)]
            await asyncio.sleep(0.2)
            await client.close()
            for call in calls:
                with pytest.raises(convgrad.Cancelled):
                    await call

    asyncio.run(main())
    process.kill()


def test_a_close_that_is_cancelled(server):
    async def main():
        client = convgrad.aio.Client(server.address)
        assert (await client.sessions()) is not None  # by a blocking client of its own
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(convgrad.Cancelled):
            await client.conv_forward(X, W)

    asyncio.run(main())


def test_asyncio_cancellation_and_restart():
    process = ServerProcess()

    async def main():
        async with convgrad.aio.Client(process.address) as client:
            await client.conv_forward(X, W)
            process.process.send_signal(signal.SIGSTOP)
            given_up = asyncio.create_task(client.conv_forward(X, W))
            repeated = asyncio.create_task(client.conv_forward(X, W))
            await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            process.kill()
            process.restart()
            return await asyncio.wait_for(repeated, 60)

    assert asyncio.run(main()).output.shape == (2, 4, 6, 6)
    process.kill()


def test_a_cancelled_stream_writes_no_more(server, monkeypatch):
    take, begun, ended = StreamReply.take, threading.Event(), []

    def take_slowly(self, response):
        begun.set()
        time.sleep(0.2)
        take(self, response)
        ended.append(response)

    monkeypatch.setattr(StreamReply, "take", take_slowly)

    async def main():
        async with convgrad.aio.Client(server.address) as client:
            call = asyncio.create_task(client.conv_forward(X, W, slice_items=1))
            assert await asyncio.to_thread(begun.wait, 20)
            for _ in range(3):
                call.cancel()
                await asyncio.sleep(0.01)
            assert not call.done()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert len(ended) == 1

    asyncio.run(main())


@pytest.mark.parametrize("keywords", [{}, {"slice_items": 1}])
def test_a_loop_that_is_closed_before_its_calls_end(keywords):
    process = ServerProcess()
    found = textwrap.dedent(f"""
        import asyncio, numpy as np, convgrad.aio
        loop = asyncio.new_event_loop()
        x, w = np.ones({X.shape}, np.float32), np.ones({W.shape}, np.float32)
        call = loop.create_task(convgrad.aio.Client("{process.address}").conv_forward(
            x, w, **{keywords}))
        loop.run_until_complete(asyncio.sleep(0.2))
        loop.close()
        print("over")""")
    with process.standing_still():
        started = time.monotonic()
        assert python(found).stdout == "over\n"
        assert time.monotonic() - started < 20  # without a wait for the calls
    process.kill()
