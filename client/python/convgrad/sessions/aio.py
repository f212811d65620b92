"""Defines sessions for asyncio, with convgrad.Session's methods as coroutines."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from convgrad import attached
from convgrad.sessions import session as sessions

R = TypeVar("R")
S = TypeVar("S")


def _awaited(method: Callable[..., R]) -> Callable[..., Coroutine[Any, Any, R]]:
    """Makes a coroutine function of one of sessions.Session's methods."""

    @functools.wraps(method)
    async def awaited(self: Session, /, *args: Any, **kwargs: Any) -> R:
        self._session.client.check_process()
        bound: Callable[..., R] = getattr(self._session, awaited.__name__)
        future: Future[R] = await self._in_turn(
            functools.partial(self._session.submit, bound, *args, **kwargs))
        return await asyncio.wrap_future(future)

    return awaited


def _same(name: str) -> Any:
    """Makes the same property as sessions.Session has."""
    return property(lambda self: getattr(self._session, name),
                    doc=getattr(sessions.Session, name).__doc__)


def _without_stop(function: Callable[[S], R], session: S) -> R:
    """Calls the function. A future can't hold StopIteration, so that its task would hang."""
    try:
        return function(session)
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration") from error


class Session:
    """The same as convgrad.Session, for one event loop. aio.Client.session() opens one.

        async with client.session() as session:
            await session.put("w", w, layout="OIX")
            first, second = await asyncio.gather(
                session.conv_forward(x, "w", keep={"output": "y"}), session.get("w"))

    A call sees the calls that began before it; gather() begins its arguments in order. A change
    whose task is cancelled may still take effect.
    """

    conv_forward = _awaited(sessions.Session.conv_forward)
    conv_backward = _awaited(sessions.Session.conv_backward)
    conv_transpose_forward = _awaited(sessions.Session.conv_transpose_forward)
    conv_transpose_backward = _awaited(sessions.Session.conv_transpose_backward)
    linear_forward = _awaited(sessions.Session.linear_forward)
    linear_backward = _awaited(sessions.Session.linear_backward)

    load_program = _awaited(sessions.Session.load_program)
    drop_programs = _awaited(sessions.Session.drop_programs)
    run = _awaited(sessions.Session.run)
    backward = _awaited(sessions.Session.backward)
    update = _awaited(sessions.Session.update)

    put = _awaited(sessions.Session.put)
    get = _awaited(sessions.Session.get)
    drop = _awaited(sessions.Session.drop)
    tensors = _awaited(sessions.Session.tensors)
    save_state = _awaited(sessions.Session.save_state)
    restore_state = _awaited(sessions.Session.restore_state)
    drop_state = _awaited(sessions.Session.drop_state)

    id: bytes = _same("id")
    number: int = _same("number")
    durable_number: int | None = _same("durable_number")
    trainer_state: bytes = _same("trainer_state")
    is_lost: bool = _same("is_lost")
    quota_bytes: int = _same("quota_bytes")

    def __init__(self, session: sessions.Session) -> None:
        self._session = session
        # One thread packs arrays and numbers changes, so that they stay in order. It ends when
        # the session is garbage collected.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="convgrad-aio")

    async def blocking(self, function: Callable[[sessions.Session], R]) -> R:
        """Calls a function with the convgrad.Session, on a thread. Returns its result.

            await session.blocking(lambda s: my_checkpoint(s, path))

        The session's calls that begin later wait until it has returned, so it must not wait for
        one of them. If the task is cancelled, the function goes on.
        """
        self._session.client.check_process()
        context = contextvars.copy_context()
        return await self._in_turn(
            functools.partial(context.run, _without_stop, function, self._session))

    async def close(self) -> None:
        """Closes the session and drops everything, after the outcomes of all changes are known.

        Ignores `keep_open`.
        """
        if self._session.is_at_home:
            await self._end(self._session.close)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._session.is_at_home:
            await self._end(functools.partial(self._session.__exit__, *exception))

    async def _in_turn(self, function: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def _end(self, function: Callable[[], None]) -> None:
        """Does the same for a function that must run even if the task is cancelled."""
        await asyncio.shield(asyncio.wrap_future(self._thread.submit(function)))


def _on_thread(method: Callable[..., R]) -> Callable[..., Coroutine[Any, Any, R]]:
    """Makes a coroutine function of a method of attached.Attached. Several may run at once."""

    @functools.wraps(method)
    async def awaited(self: Attached, /, *args: Any, **kwargs: Any) -> R:
        return await asyncio.to_thread(method, self._attached, *args, **kwargs)

    return awaited


class Attached:
    """The same as convgrad.Attached, as coroutines. aio.Client.attach() makes one.

        attached = await client.attach(session_id)
        first, second = await asyncio.gather(attached.get("w"), attached.get("b"))
    """

    conv_forward = _on_thread(attached.Attached.conv_forward)
    conv_transpose_forward = _on_thread(attached.Attached.conv_transpose_forward)
    linear_forward = _on_thread(attached.Attached.linear_forward)
    get = _on_thread(attached.Attached.get)
    tensors = _on_thread(attached.Attached.tensors)
    run = _on_thread(attached.Attached.run)
    save_state = _on_thread(attached.Attached.save_state)
    drop_state = _on_thread(attached.Attached.drop_state)

    def __init__(self, attached: attached.Attached) -> None:
        self._attached = attached
        self.id = attached.id
        """The session's id. Keep it secret: who knows it may use the session."""

    async def blocking(self, function: Callable[[attached.Attached], R]) -> R:
        """Calls a function with the convgrad.Attached, on a thread. Returns its result."""
        return await asyncio.to_thread(_without_stop, function, self._attached)

    async def close(self) -> None:
        """Ends the attachment; the session stays open."""
        self._attached.close()

    async def __aenter__(self) -> Attached:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


for _name in attached.CHANGES:
    setattr(Attached, _name, _on_thread(getattr(attached.Attached, _name)))


class Opening:
    """A session that is being opened; use `await` or `async with`."""

    def __init__(self, open_session: Callable[[], sessions.Session], *, is_new: bool) -> None:
        self._open = open_session
        self._is_new = is_new
        self._session: Session | None = None

    def __await__(self) -> Generator[Any, None, Session]:
        return self._opened().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._opened()
        return self._session

    async def __aexit__(self, *exception: object) -> None:
        assert self._session is not None
        await self._session.__aexit__(*exception)

    async def _opened(self) -> Session:
        thread = ThreadPoolExecutor(1, thread_name_prefix="convgrad-aio")
        opening = thread.submit(contextvars.copy_context().run, self._open)
        try:
            return Session(await asyncio.wrap_future(opening))
        except asyncio.CancelledError:
            if self._is_new:  # nobody knows its id
                thread.submit(lambda: opening.result().close())
            raise
        finally:
            thread.shutdown(wait=False)
