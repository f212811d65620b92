"""Tests sessions of convgrad.aio with a real server."""

import asyncio
import threading
import time

import numpy as np
import pytest
from cutting_proxy import CuttingProxy
from durable_stand_in import DurableStandIn, served

import convgrad
import convgrad.aio

X = np.arange(2 * 4 * 6 * 6, dtype=np.float32).reshape(2, 4, 6, 6) % 7 - 3
W = np.arange(6 * 4 * 3 * 3, dtype=np.float32).reshape(6, 4, 3, 3) % 5 - 2
G = np.arange(2 * 6 * 6 * 6, dtype=np.float32).reshape(2, 6, 6, 6) % 3 - 1


def test_changes_and_reads_in_the_order_they_begin(server, client):
    async def work():
        async with convgrad.aio.Client(server.address, timeout=60) as aio, \
                aio.session() as session:
            await session.put("w", W, layout="OIX")
            calls = [session.conv_backward(
                G, X, "w", padding=1, gradients="grad_weight", scales={"grad_weight": scale},
                add={"grad_weight": "gw"}) for scale in (1, 2, 3)]
            found = await asyncio.gather(
                *calls, session.get("gw"), session.put("x", X), session.put("x", X + 1),
                session.conv_forward("x", "w", padding=1))
            assert session.number == 6
            kept = await session.tensors()
            assert kept.keys() == {"w", "gw", "x"} and kept["x"].version == 6
            await session.drop("x")
            with pytest.raises(convgrad.NotFound):
                await session.get("x")
            return found[3], found[6].output, session.id

    gradient, output, session_id = asyncio.run(work())
    expected = client.conv_backward(G, X, W, padding=1).grad_weight
    np.testing.assert_array_equal(gradient, 6 * expected)
    np.testing.assert_array_equal(output, client.conv_forward(X + 1, W, padding=1).output)
    with pytest.raises(convgrad.SessionExpired):
        client.session(resume=session_id)


class SlowStandIn(DurableStandIn):
    def __init__(self):
        super().__init__()
        self.may_open = threading.Event()

    def session(self, method, request):
        if method == "OpenSession":
            self.may_open.wait(20)
        return super().session(method, request)


def test_a_session_whose_opening_was_cancelled_is_closed():
    handler = SlowStandIn()

    async def work(address):
        async with convgrad.aio.Client(address, timeout=60) as aio:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(aio.session(), 0.1)
            handler.may_open.set()
            while not handler.is_closed:
                await asyncio.sleep(0.01)

    with served(handler) as address:
        asyncio.run(asyncio.wait_for(work(address), 30))


def test_a_session_whose_task_is_cancelled_once_it_is_open_is_closed():
    handler = DurableStandIn()

    async def work(address):
        async with convgrad.aio.Client(address, timeout=60) as aio:
            opening = asyncio.ensure_future(aio.session())
            await asyncio.sleep(0)
            time.sleep(0.5)  # the thread opens it, and the task doesn't know yet
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            while not handler.is_closed:
                await asyncio.sleep(0.01)

    with served(handler) as address:
        asyncio.run(asyncio.wait_for(work(address), 30))


def test_a_close_that_is_cancelled_goes_on(server):
    may_end = threading.Event()

    async def work():
        async with convgrad.aio.Client(server.address, timeout=60) as aio:
            session = await aio.session()
            busy = asyncio.ensure_future(session.blocking(lambda _: may_end.wait(20)))
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(session.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            may_end.set()
            assert await busy
            with pytest.raises(convgrad.Cancelled):
                while await session.tensors() == {}:
                    pass

    asyncio.run(asyncio.wait_for(work(), 30))


def test_ends_and_errors(server):
    async def work():
        aio = convgrad.aio.Client(server.address, timeout=60)
        session = await aio.session(keep_open=True)
        with pytest.raises(convgrad.InvalidArgument):
            await session.put("no/good", X)
        await session.put("x", X)
        # A change may take effect after its task was cancelled. Later changes still work.
        task = asyncio.ensure_future(session.put("y", X))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await session.tensors()).keys() - {"y"} == {"x"}
        async with aio.session(resume=session.id) as other:
            with pytest.raises(convgrad.SessionTakenOver):
                await session.put("x", X)
            assert session.is_lost and not other.is_lost
            np.testing.assert_array_equal(await other.get("x"), X)
        await other.close()
        with pytest.raises(convgrad.Cancelled):
            await other.put("x", X)
        await aio.close()
        with pytest.raises(convgrad.Cancelled):
            await aio.session()

    asyncio.run(work())


def test_many_at_once_wait_for_no_other_task(server):
    """The event loop continues while a session's window is full."""

    async def work():
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with convgrad.aio.Client(server.address, timeout=60) as aio, \
                aio.session() as session:
            counting = asyncio.ensure_future(count())
            await asyncio.gather(*[session.put("x", X + i) for i in range(200)])
            np.testing.assert_array_equal(await session.get("x"), X + 199)
            assert session.number == 200 and turns > 200
            counting.cancel()

    asyncio.run(work())


def test_connections_that_are_cut_change_no_bit(server, client):
    proxy = CuttingProxy(server.address, cuts=20, mean_bytes=20_000)
    retry = convgrad.RetryPolicy(max_attempts=10_000, max_seconds=0.05)

    async def work():
        steps = 0
        async with convgrad.aio.Client(proxy.address, retry=retry) as aio, \
                aio.session() as session:
            await session.put("w", W, layout="OIX")
            while proxy.cuts < 20:
                await asyncio.gather(*[session.conv_backward(
                    G, X, "w", padding=1, gradients="grad_weight",
                    add={"grad_weight": "gw"}) for _ in range(10)])
                steps += 10
            assert session.number == steps + 1
            return steps, await session.get("gw")

    steps, found = asyncio.run(work())
    expected = client.conv_backward(G, X, W, padding=1).grad_weight
    np.testing.assert_array_equal(found, steps * expected)
    proxy.close()


def test_an_attached_session(server, client):
    async def work(session_id):
        async with convgrad.aio.Client(server.address, timeout=60) as aio:
            async with await aio.attach(session_id) as attached:
                assert attached.id == session_id
                w, kept, forward = await asyncio.gather(
                    attached.get("w"), attached.tensors(),
                    attached.conv_forward(X, "w", padding=1))
                np.testing.assert_array_equal(w, W)
                assert kept.keys() == {"w"}
                for use in (attached.put("w", W), attached.drop(), attached.update(None),
                            attached.conv_forward(X, "w", keep={"output": "y"})):
                    with pytest.raises(convgrad.FailedPrecondition, match="to be read"):
                        await use
            with pytest.raises(convgrad.Cancelled):
                await attached.get("w")
            with pytest.raises(convgrad.SessionExpired):
                await aio.attach(bytes(16))
            return forward.output

    with client.session() as session:
        session.put("w", W, layout="OIX")
        output = asyncio.run(work(session.id))
        np.testing.assert_array_equal(output, session.conv_forward(X, "w", padding=1).output)


def test_sessions_are_listed_and_closed_by_handle(server):
    async def work():
        async with convgrad.aio.Client(server.address, timeout=60) as aio, \
                aio.session("listed here") as session:
            await session.put("w", W)
            (found,) = [one for one in await aio.sessions() if one.name == "listed here"]
            assert isinstance(found, convgrad.OpenSession)
            assert found.tensors == 1 and found.target == server.address
            assert found.handle in [one.handle for one in await aio.sessions(everybody=True)]
            await aio.close_session(found.handle)
            assert found.handle not in [one.handle for one in await aio.sessions()]
            with pytest.raises(convgrad.SessionExpired):
                await aio.close_session(found.handle)
            with pytest.raises(convgrad.SessionExpired):
                await session.tensors()

    asyncio.run(work())


def test_exports_and_imports(server, tmp_path):
    async def work():
        async with convgrad.aio.Client(server.address, timeout=60) as aio, \
                aio.session() as session, aio.session() as moved:
            found = await asyncio.gather(
                session.put("w", W), session.put("w", W + 1),
                convgrad.aio.export_session(session, tmp_path / "x", trainer_state=b"two"),
                session.put("w", W + 2))
            assert found[2] == 2 and session.number == 3
            imported = await convgrad.aio.import_session(moved, tmp_path / "x")
            assert (imported.number, imported.trainer_state) == (2, b"two")
            np.testing.assert_array_equal(await moved.get("w"), W + 1)
            async with await aio.attach(session.id) as attached:
                assert await convgrad.aio.export_session(attached, tmp_path / "y") == 3
            with pytest.raises(convgrad.InvalidArgument, match="header"):
                await convgrad.aio.import_session(session, __file__)

    asyncio.run(work())


def test_a_function_that_stops_ends_its_task(server):
    async def work():
        async with convgrad.aio.Client(server.address, timeout=60) as aio, \
                aio.session() as session, await aio.attach(session.id) as attached:
            assert await session.blocking(lambda blocking: blocking.id) == session.id
            for one in (session, attached):
                with pytest.raises(RuntimeError, match="StopIteration"):
                    await asyncio.wait_for(one.blocking(lambda _: next(iter(()))), 20)

    asyncio.run(work())
