"""Defines the asyncio client: the same operations and sessions, as coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Concatenate, ParamSpec, TypeVar

from convgrad import client, operations
from convgrad.client_base import ClientBase, is_unexplained
from convgrad.connections.channels import Slot
from convgrad.connections.retries import Attempts
from convgrad.moving import transfer
from convgrad.region import Region
from convgrad.requests import Call
from convgrad.sessions.aio import Attached, Opening, Session
from convgrad.sessions.leases import OpenSession
from convgrad.sessions.replay import DEFAULT_REPLAY_BYTES

P = ParamSpec("P")
R = TypeVar("R")


def _runs(
    prepare: Callable[P, Call[R]],
) -> Callable[Concatenate[Client, P], Coroutine[Any, Any, R]]:
    @functools.wraps(prepare)
    async def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.run(prepare(*args, **kwargs))

    return method


class Client(ClientBase):
    """The same as convgrad.Client, for one event loop.

        async with convgrad.aio.Client("localhost:7070") as client:
            first, second = await asyncio.gather(
                client.conv_backward(...), client.conv_backward(...))
    """

    conv_forward = _runs(operations.conv_forward)
    conv_backward = _runs(operations.conv_backward)
    conv_transpose_forward = _runs(operations.conv_transpose_forward)
    conv_transpose_backward = _runs(operations.conv_transpose_backward)
    linear_forward = _runs(operations.linear_forward)
    linear_backward = _runs(operations.linear_backward)
    capabilities = _runs(operations.capabilities)

    @functools.cached_property
    def _blocking(self) -> client.Client:
        """The blocking client with the same connections, which sessions use on threads."""
        return self.sibling(client.Client)

    def session(
        self, name: str = "", *, lease: float = 600.0, quota: int = 0,
        readers: Sequence[str] = (), resume: bool | bytes = False,
        keep_open: bool = False, durable: bool = False,
        replay_bytes: int = DEFAULT_REPLAY_BYTES,
    ) -> Opening:
        """Opens a session, as convgrad.Client.session() does.

            async with client.session() as session: ...
            session = await client.session(keep_open=True)
        """
        return Opening(functools.partial(
            self._blocking.session, name, lease=lease, quota=quota, readers=readers,
            resume=resume, keep_open=keep_open, durable=durable, replay_bytes=replay_bytes),
            is_new=not resume)

    async def attach(self, session: bytes | str) -> Attached:
        """Attaches to a session to read it, as convgrad.Client.attach() does.

            async with await client.attach(session_id) as attached: ...
        """
        return Attached(await asyncio.to_thread(self._blocking.attach, session))

    async def sessions(self, *, everybody: bool = False) -> list[OpenSession]:
        """Returns open sessions, as convgrad.Client.sessions() does."""
        return await asyncio.to_thread(self._blocking.sessions, everybody=everybody)

    async def close_session(self, handle: str) -> None:
        """Ends a session in the list of sessions(), as convgrad.Client.close_session() does."""
        await asyncio.to_thread(self._blocking.close_session, handle)

    async def region(self, nbytes: int) -> Region:
        """Returns memory that is shared with the server, as convgrad.Client.region() does.

            with await client.region(2**28) as region: ...
        """
        return await asyncio.to_thread(self._blocking.region, nbytes)

    async def run(self, call: Call[R]) -> R:
        """Sends a prepared call, and repeats it if that may help. Returns its result."""
        self.check_process()
        call = self.placed(call)
        attempts = Attempts(self.deadline_of(call))
        while True:
            attempts.begin()
            slot = self._pool.pick(call.target)
            with self._attempting(slot, call) as failed:
                return await self._attempt(slot, call, attempts.seconds_left())
            (error,) = failed
            if is_unexplained(error, slot):
                await asyncio.to_thread(self._explain, error, slot, attempts)
            call, delay = self._after(error, slot, call, attempts)
            await asyncio.sleep(delay)

    async def _attempt(self, slot: Slot, call: Call[R], seconds: float | None) -> R:
        """Sends the call once. Cancels it if the task is cancelled."""
        rpc = self._start(slot, call, seconds)
        received: Future[R] | None = None
        try:
            if call.message is None:
                received = _on_own_thread(self._receive, call, rpc)
            await _end_of(received or rpc)
        except asyncio.CancelledError:
            rpc.cancel()
            while received and not received.done():  # it may be writing to the caller's arrays
                with contextlib.suppress(asyncio.CancelledError):
                    await _end_of(received)
            raise
        except BaseException:
            rpc.cancel()
            raise
        return call.decoded(rpc.result()) if received is None else received.result()

    async def close(self) -> None:
        """Cancels running calls, then closes the connections, as the blocking client does."""
        if not self.is_at_home:
            return
        self._blocking.close_connections()  # also if the task is cancelled
        await asyncio.to_thread(self._blocking.close)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


async def _end_of(future: Any) -> None:
    """Waits until the future, of grpc or a thread, is done."""
    loop, is_over = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(is_over.set)

    future.add_done_callback(tell)
    await is_over.wait()


def _on_own_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
    """Calls the function on a new thread. With the loop's threads, which are few, streams that
    the server has begun could wait for the threads of streams that wait for these.

    The interpreter doesn't wait for the thread, as a loop may be closed before its calls end.
    """
    result: Future[R] = Future()

    def run() -> None:
        try:
            result.set_result(function(*args, **kwargs))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="convgrad-stream", daemon=True).start()
    return result


async def export_session(session: Session | Attached, path: transfer.Path, *,
                         trainer_state: bytes = b"") -> int:
    """Writes the session's tensors to a file, as convgrad.export_session() does.

    Sees the calls that began before it. A Session's later calls wait for it.
    """
    return await session.blocking(functools.partial(
        transfer.export_session, path=path, trainer_state=trainer_state))


async def import_session(session: Session, path: transfer.Path, *,
                         optimizer: bool = True) -> transfer.Imported:
    """Puts a file's tensors into the session, as convgrad.import_session() does.

    The session's later calls wait for it.
    """
    return await session.blocking(functools.partial(
        transfer.import_session, path=path, optimizer=optimizer))
