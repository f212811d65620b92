"""Defines the session: tensors on the server, whose changes take effect exactly once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

import numpy.typing as npt

from convgrad import networks, operations
from convgrad.caller import Caller
from convgrad.errors import Cancelled, invalid
from convgrad.kept import Kept, find, listed_tensors
from convgrad.layouts import Descriptor
from convgrad.options import timeout_of
from convgrad.requests import Call, session_call
from convgrad.sessions import snapshots
from convgrad.sessions.attempts import Opened
from convgrad.sessions.changes import Changes
from convgrad.sessions.durable import DurableChanges
from convgrad.sessions.known_tensors import KnownTensors
from convgrad.sessions.leases import close_session, renew_regularly
from convgrad.sessions.methods import method, operation, plain
from convgrad.sessions.outcomes import ENDS
from convgrad.sessions.recorder import Recorder
from convgrad.sessions.transfers import (
    PutRequest,
    Uploads,
    get_call,
    get_request,
    put_of,
    sent,
)
from convgrad.v1 import session_pb2

R = TypeVar("R")


class Session:
    """Tensors and programs on the server, by name. Client.session() opens one. Thread-safe.

        session.put("w", w, layout="OIX")
        y = session.conv_forward(x, "w", padding=1).output
        session.conv_backward(dy, x, "w", padding=1, add={"grad_weight": "gw"})
        gw = session.get("gw")

    A call sees the changes that any thread submitted before it. A change takes effect exactly
    once: the client repeats a change whose answer it didn't receive.

    Errors: each method may raise SessionExpired and SessionTakenOver, those of a durable
    session also SessionRestored and SessionDamaged; the session is then unusable. EpochEnded: a
    change submitted before has failed.
    """

    conv_forward = operation(operations.conv_forward)
    conv_backward = operation(operations.conv_backward)
    conv_transpose_forward = operation(operations.conv_transpose_forward)
    conv_transpose_backward = operation(operations.conv_transpose_backward)
    linear_forward = operation(operations.linear_forward)
    linear_backward = operation(operations.linear_backward)

    load_program = plain(networks.load_program)
    drop_programs = plain(networks.drop_programs)
    run = plain(networks.run)
    backward = plain(networks.backward)
    update = plain(networks.update)

    save_state = snapshots.save_state
    restore_state = snapshots.restore_state
    drop_state = snapshots.drop_state

    def __init__(self, client: Caller, opened: Opened, keep_open: bool,
                 replay_bytes: int = 0, recorder: Recorder | None = None) -> None:
        self.client = client
        """The client that opened it."""
        self._opened = opened
        self._keep_open = keep_open
        self._durable = (DurableChanges(client, opened, recorder, replay_bytes)
                         if opened.answer.durable else None)
        self._changes: Changes = self._durable or Changes(client, opened, recorder)
        self._known = KnownTensors(self._changes)
        self._uploads = Uploads(client, opened.target)
        renew_regularly(client, opened, self._changes)
        # A session that nobody closes expires after its lease.
        closed = Cancelled("the session is closed")
        self._stop = weakref.finalize(self, self._changes.stop, closed)

    @property
    def id(self) -> bytes:
        """The session's id. Keep it secret: who knows it may use the session."""
        return self._opened.answer.session_id

    @property
    def number(self) -> int:
        """Number of the last change up to which all are known to have taken effect."""
        return self._changes.number

    @property
    def durable_number(self) -> int | None:
        """Number of the newest change on the server's disk, as far as is known; None if the
        session isn't durable."""
        return None if self._durable is None else self._durable.replay.durable_number

    @property
    def trainer_state(self) -> bytes:
        """The newest `trainer_state` of a change before the session was resumed here."""
        return self._opened.answer.trainer_state

    @property
    def is_lost(self) -> bool:
        """Whether it is closed, or was ended by an error."""
        return self._changes.error is not None

    @property
    def failures(self) -> int:
        """How often a change has failed, together with those behind it."""
        return self._changes.failures

    @property
    def quota_bytes(self) -> int:
        """Limit on the bytes that the session keeps."""
        return self._opened.answer.quota_bytes

    def submit(self, method: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Starts one of the session's methods and returns its future.

            futures = [session.submit(session.put, name, array) for name, array in ...]

        Changes take effect in the order of these calls. Blocks only while 64 changes are in
        flight, while a durable session makes room or is restored, or while the client asks the
        server for shapes or digests. A future's callbacks must not wait for the session.

        Errors: in the future those of the method; here InvalidArgument, DeadlineExceeded if
        there is no room in time, and those of a session that has ended.
        """
        prepare = getattr(method, "prepare", None)
        if prepare is None or getattr(method, "__self__", None) is not self:
            raise invalid("INVALID_ENUM", "method", method, "a method of this session")
        self.client.check_process()
        call = prepare(self, *args, **kwargs).with_own_bytes()
        if call.is_change:
            return self._submitted(call, call.whole or call)
        return self.client.submit(self._changes.run_read, call, self._changes.begin_read())

    @method
    def put(self, name: str | Mapping[str, npt.ArrayLike],
            array: npt.ArrayLike | None = None, *, layout: str = "NCX",
            layouts: Mapping[str, str] | None = None, dedupe: bool = False,
            trainer_state: bytes = b"", timeout: float | None = None) -> Call[None]:
        """Keeps an array under a name, or all arrays of a mapping, all or none.

        A weight's `layout` is OIX, OXI or XIO; `layouts` overrides it by name. With `dedupe`
        the client first asks which of the bytes the server has in any of this client's
        sessions, and doesn't send those. If one message can't hold the arrays, the client sends
        a stream. `put({}, trainer_state=state)` only keeps the state.

        Errors: ResourceExhausted if the session's quota or the server's memory is full.
        """
        arrays = name if isinstance(name, Mapping) else {name: array}
        if any(value is None for value in arrays.values()):
            raise invalid("MISSING", "array", "nothing", "one beside the name")
        puts = [put_of(key, value, (layouts or {}).get(key, layout))  # type: ignore[arg-type]
                for key, value in arrays.items()]
        call: Call[None] = Call("ConvGradSessions/PutTensors", None, lambda _: None,
                                options=timeout_of(timeout), is_change=True)
        limit = self._uploads.message_limit(sum(put.payload.nbytes for put in puts), timeout)
        digests = {put.name: put.digest() for put in puts} if dedupe else {}
        known = self._uploads.known(digests.values(), timeout)
        self._known.remember({put.name: put.descriptor for put in puts})
        request = PutRequest(puts, digests, trainer_state)
        whole = sent(call, request, limit)
        if not known:
            return whole
        return replace(sent(call, replace(request, known=known), limit), whole=whole)

    @method
    def get(self, name: str | Iterable[str], *, dtype: npt.DTypeLike | None = None,
            layout: str | None = None, first_item: int = 0, items: int = 0,
            timeout: float | None = None) -> Call[Any]:
        """Returns a kept tensor, by default with the dtype and layout in which it is kept.

        For several names returns a dict of arrays, all as of one change. `items` selects that
        many items of the batch, from `first_item` on; 0: the rest. Errors: NotFound.
        """
        names = (name,) if isinstance(name, str) else name
        request = get_request(names, dtype, layout, first_item, items)
        return get_call(
            request, lambda arrays, _: arrays[name] if isinstance(name, str) else arrays,
            timeout)

    @method
    def drop(self, *names: str, timeout: float | None = None) -> Call[None]:
        """Drops these tensors, all or none; without names, all tensors. Errors: NotFound."""
        request = session_pb2.DropTensorsRequest(names=names, all=not names)
        self._known.forget(names)
        return session_call("DropTensors", request, lambda _: None, timeout, is_change=True)

    @method
    def tensors(self, *, timeout: float | None = None) -> Call[dict[str, Kept]]:
        """Returns the kept tensors by name."""
        return session_call("ListTensors", session_pb2.ListTensorsRequest(), listed_tensors,
                            timeout)

    @property
    def is_at_home(self) -> bool:
        """Whether this process may use the session; processes forked later may not."""
        return self.client.is_at_home

    def close(self) -> None:
        """Closes the session and drops everything, after the outcomes of all changes are known.

        Ignores `keep_open`. Does nothing in a process that was forked since, because the
        session is its parent's.
        """
        self._close(keep_open=False)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        self._close(self._keep_open, awaits_changes=kind is None)

    def _close(self, keep_open: bool, awaits_changes: bool = True) -> None:
        if not self._stop.alive or not self.is_at_home:
            return
        if awaits_changes:
            self._changes.flush()
        else:
            self._changes.settle()
        # After any other error the server may still have the session.
        has_ended = isinstance(self._changes.error, ENDS)
        self._stop()
        if not has_ended and not keep_open:
            close_session(self.client, self._opened, self._changes)

    def _perform(self, call: Call[R]) -> R:
        """Sends a read or a change and blocks until its outcome is known."""
        if not call.is_change:
            return self._changes.run_read(call, self._changes.begin_read())
        placed, kept = self._changes.forms_of(call)
        future = self._submitted(placed, kept)
        try:
            return future.result()
        except BaseException:
            if not future.done():  # Ctrl-C
                placed.loan.give_up()
            raise

    def _submitted(self, call: Call[R], kept: Call[R] | None) -> Future[R]:
        try:
            return self._changes.submit(call, kept)
        except BaseException:  # so that the tensors aren't as the call was to leave them
            self._known.forget(())
            raise

    def _operand(self, tensor: Any) -> Any:
        return Kept(tensor, self._descriptor(tensor)) if isinstance(tensor, str) else tensor

    def _descriptor(self, name: str) -> Descriptor:
        known = self._known.find(name)
        if known is None:
            known = find(name, self.tensors()).descriptor
            self._known.remember({name: known})
        return known
