"""Defines the asyncio client: the same operations and sessions, as coroutines."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import grpc
import grpc.aio

from convgrad import client, operations
from convgrad.client_base import ClientBase, is_unexplained
from convgrad.connections.retries import Attempts
from convgrad.errors import Cancelled, ConvgradError
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

    _library = grpc.aio

    conv_forward = _runs(operations.conv_forward)
    conv_backward = _runs(operations.conv_backward)
    conv_transpose_forward = _runs(operations.conv_transpose_forward)
    conv_transpose_backward = _runs(operations.conv_transpose_backward)
    linear_forward = _runs(operations.linear_forward)
    linear_backward = _runs(operations.linear_backward)
    capabilities = _runs(operations.capabilities)

    _blocking: client.Client | None = None

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
        return Opening(lambda: self._session_client().session(
            name, lease=lease, quota=quota, readers=readers, resume=resume,
            keep_open=keep_open, durable=durable, replay_bytes=replay_bytes),
            is_new=not resume)

    async def attach(self, session: bytes | str) -> Attached:
        """Attaches to a session to read it, as convgrad.Client.attach() does.

            async with await client.attach(session_id) as attached: ...
        """
        return Attached(await asyncio.to_thread(self._session_client().attach, session))

    async def sessions(self, *, everybody: bool = False) -> list[OpenSession]:
        """Returns open sessions, as convgrad.Client.sessions() does."""
        return await asyncio.to_thread(self._session_client().sessions, everybody=everybody)

    async def close_session(self, handle: str) -> None:
        """Ends a session in the list of sessions(), as convgrad.Client.close_session() does."""
        await asyncio.to_thread(self._session_client().close_session, handle)

    def _session_client(self) -> client.Client:
        """Returns the blocking client that sessions use on threads."""
        self.check_process()
        with self._lock:
            if self._closed.is_set():
                raise Cancelled("the client is closed")
            if self._blocking is None:
                self._blocking = self.sibling(client.Client)
            return self._blocking

    async def region(self, nbytes: int) -> Region:
        """Returns memory that is shared with the server, as convgrad.Client.region() does.

            with await client.region(2**28) as region: ...
        """
        region = await asyncio.to_thread(self._session_client().region, nbytes)
        self._share(region)
        return region

    async def run(self, call: Call[R]) -> R:
        """Sends a prepared call, and repeats it if that may help. Returns its result."""
        self.check_process()
        call = self.placed(call)
        attempts = Attempts(self.deadline_of(call))
        while True:
            attempts.begin()
            slot = self._pool.pick(call.target)
            try:
                answer = self._send(slot, call, attempts.deadline)
                result = (await self._receive(call, answer) if call.message is None
                          else call.decoded(await answer))
                self.answered(slot)
                return result
            except grpc.aio.AioRpcError as rpc:
                error = self._failed(rpc, slot, call)
            except grpc.aio.UsageError:
                raise Cancelled("the client is closed") from None
            except ConvgradError:  # nothing was sent, or the answer is here
                raise
            except BaseException as ended:  # the task was cancelled, or close() its call
                call.loan.give_up()
                if (isinstance(ended, asyncio.CancelledError) and self._closed.is_set()
                        and not _is_cancelled(asyncio.current_task())):
                    raise Cancelled("the client is closed") from None
                raise
            if is_unexplained(error, slot):
                await asyncio.to_thread(self._explain, error, slot, attempts)
            call, delay = self._after(error, slot, call, attempts)
            await asyncio.sleep(delay)

    async def _receive(self, call: Call[R], responses: Any) -> R:
        assert call.stream is not None
        reply = call.stream.reply()
        try:
            async for response in responses:
                reply.take(response)
        finally:
            responses.cancel()
        return reply.finish()

    async def close(self) -> None:
        """Cancels running calls, then closes the connections, as the blocking client does."""
        if not self.is_at_home:
            return
        with self._lock:
            self._closed.set()
            blocking, self._blocking = self._blocking, None
        try:
            if blocking is not None:
                await asyncio.to_thread(blocking.close)
        finally:  # also if the task is cancelled
            for channel in self._pool.close():
                await channel.close()
            self._end_others()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


def _is_cancelled(task: asyncio.Task[Any] | None) -> bool:
    """Returns whether somebody cancelled the task; False in Python 3.10, which can't tell."""
    return task is not None and hasattr(task, "cancelling") and task.cancelling() > 0


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
