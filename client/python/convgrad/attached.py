"""Reads a session that another process or thread trains."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import numpy.typing as npt

from convgrad import networks, operations
from convgrad.caller import Caller
from convgrad.errors import Cancelled, FailedPrecondition, invalid, unimplemented
from convgrad.kept import Kept, find, listed_tensors
from convgrad.networks import Run
from convgrad.options import Options
from convgrad.problem import OPERANDS
from convgrad.requests import Call, session_call
from convgrad.sessions.leases import ask_each
from convgrad.sessions.session import Session
from convgrad.v1 import session_pb2

R = TypeVar("R")

_ID_BYTES = 16
# Keywords of an operation and of run() that change a session.
_CHANGING = ("keep", "add", "tape", "backward", "update", "change")


def refuse(name: str, thing: str = "session") -> NoReturn:
    """Raises the error for a method that would change an attached session."""
    raise FailedPrecondition.of(
        name, f"a {thing} that is attached to be read",
        f"the {thing} of the process that trains, which alone changes it")


def refused(name: str, thing: str = "session") -> Callable[..., Any]:
    """Makes a method that always raises the error of refuse()."""
    def method(self: object, /, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(name, thing)

    method.__name__ = name
    method.__doc__ = "Raises FailedPrecondition: only the process that trains may call it."
    return method


def _forward(prepare: Callable[..., Call[R]]) -> Callable[..., R]:
    """Makes a method of an operation that accepts names of kept tensors for arrays."""

    @functools.wraps(prepare)
    def method(self: Attached, /, *args: Any, **kwargs: Any) -> R:
        _check_reads(kwargs)
        named = {key: kwargs[key] for key in OPERANDS if key in kwargs}
        # The trainer may change shapes at any time, so don't cache them.
        has_names = any(isinstance(one, str) for one in (*args, *named.values()))
        kept = self.tensors() if has_names else {}
        operands = {key: _operand(one, kept) for key, one in named.items()}
        return self._perform(prepare(*(_operand(one, kept) for one in args),
                                 **(kwargs | operands)))

    return method


class Attached:
    """Reads a session that another process or thread trains. Client.attach() makes one.

        attached = client.attach(session_id)
        y = attached.conv_forward(x, "w", padding=1).output
        weights = attached.get(["w", "b"])

    Each call sees the session as of one committed change, which is the newest one when the
    server runs the call. Calls don't wait for the session's changes, and the server takes them
    before calls of the priority `batch`. Methods that would change the session raise
    FailedPrecondition without sending anything.

    Neither the calls nor this object renew the session's lease, and close() doesn't end the
    session. The session ends when its trainer closes it, or is gone for as long as the lease.
    Calls then raise SessionExpired. Thread-safe.
    """

    conv_forward = _forward(operations.conv_forward)
    conv_transpose_forward = _forward(operations.conv_transpose_forward)
    linear_forward = _forward(operations.linear_forward)

    get = Session.get
    tensors = Session.tensors
    save_state = Session.save_state
    drop_state = Session.drop_state

    _durable = None  # keeps no changes

    def __init__(self, client: Caller, session_id: bytes, target: str) -> None:
        self.client = client
        """The client that attached it."""
        self.id = session_id
        """The session's id. Keep it secret: who knows it may use the session."""
        self._target = target
        self._is_closed = False

    def run(self, program: str, inputs: Mapping[str, npt.ArrayLike | str],
            **keywords: Any) -> Run:
        """Runs one of the session's programs forward, as Session.run() does.

        Errors: NotFound if the trainer hasn't loaded a program of this name.
        """
        _check_reads(keywords)
        return self._perform(networks.run(program, inputs, **keywords))

    def close(self) -> None:
        """Ends the attachment; the session stays open."""
        self._is_closed = True

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _perform(self, call: Call[R]) -> R:
        if self._is_closed:
            raise Cancelled("the attachment is closed")
        return self.client.run(_attached(call, self.id, self._target))


# Methods of Session that would change the session.
CHANGES = ("conv_backward", "conv_transpose_backward", "linear_backward", "put", "drop",
           "load_program", "drop_programs", "backward", "update", "restore_state")
for _name in CHANGES:
    setattr(Attached, _name, refused(_name))


def attach(client: Caller, session: bytes | str) -> Attached:
    """Attaches to the session, on whichever of the client's servers has it.

    Errors: see Client.attach().
    """
    if isinstance(session, str):
        raise unimplemented("session", f"'{session}', a name or handle",
                            "session.id: servers find a session by its name only for "
                            "session(resume=True), which takes it over")
    check_id("session", session)
    call = session_call("ListTensors", session_pb2.ListTensorsRequest(page_size=1),
                        listed_tensors)
    target, _ = ask_each(client, _attached(call, session, None))
    return Attached(client, session, target)


def check_id(field: str, session: object) -> None:
    """Raises InvalidArgument, which names the field, unless it has the id of a session."""
    if not isinstance(session, bytes) or len(session) != _ID_BYTES:
        found = (f"{len(session)} bytes" if isinstance(session, bytes)
                 else f"a {type(session).__name__}")
        raise invalid("OUT_OF_RANGE", field, found, f"session.id, {_ID_BYTES} bytes")


def _attached(call: Call[R], session_id: bytes, target: str | None) -> Call[R]:
    """Returns the call as a read of the session that doesn't renew its lease."""
    urgent = Options(priority="interactive")
    return replace(call, target=target, options=urgent | call.options, metadata=(
        ("convgrad-session-bin", session_id), ("convgrad-session-attached", "1")))


def _check_reads(keywords: Mapping[str, Any]) -> None:
    """Raises FailedPrecondition for a keyword that changes the session."""
    for name in _CHANGING:
        if keywords.get(name):
            refuse(name)


def _operand(tensor: Any, kept: Mapping[str, Kept]) -> Any:
    return find(tensor, kept) if isinstance(tensor, str) else tensor
