"""One change and one read of a session, attempt by attempt."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace
from typing import Any

from convgrad.errors import ConvgradError
from convgrad.requests import Call
from convgrad.v1 import session_pb2
from convgrad.wire import Response

_NUMBER_TRAILER = "convgrad-session-number"
# Of an attempt that only finds out what became of a change.
_VOID_SECONDS = 10.0
# In place of a change that its caller has given up: it fails at the server, where that
# was neither begun nor committed, and ends the epoch of what waits behind it.
_VOID: Call[None] = Call(
    "ConvGradSessions/DropTensors",
    session_pb2.DropTensorsRequest(names=[""]).SerializeToString(), lambda _: None)

Instead = Callable[[ConvgradError], "Call[Any] | None"]


@dataclass(frozen=True)
class Opened:
    """A session as the server opened or resumed it."""

    target: str
    answer: session_pb2.SessionResponse = field(repr=False)


@dataclass(eq=False)
class Change:
    """A change under way. Owned by the session's thread once it was sent."""

    call: Call[Any]
    sequence: int
    deadline: float | None
    instead: Instead | None
    """Returns what to send where the server has refused the call, None if nothing."""
    future: Future[Any] = field(default_factory=Future)
    call_id: bytes = field(default_factory=lambda: os.urandom(16))
    attempts: int = 0
    error: ConvgradError | None = None
    """What the server refused it with."""
    is_over: bool = False
    """Its epoch has ended, and it isn't committed."""
    is_void: bool = False
    """Its caller was told that it has failed."""
    void_since: float = 0.0

    def attempt(self, opened: Opened, epoch: int,
                acknowledged: int) -> tuple[Call[Any], float | None]:
        """Returns what to send, and how many seconds it may take."""
        self.attempts += 1
        seconds: float | None = _VOID_SECONDS
        if not self.is_void:
            seconds = (None if self.deadline is None
                       else max(self.deadline - time.monotonic(), 0.001))
        call = _VOID if self.is_void else self.call
        return replace(call, target=opened.target, metadata=(
            ("convgrad-session-bin", opened.answer.session_id),
            ("convgrad-session-epoch", str(epoch)),
            ("convgrad-session-sequence", str(self.sequence)),
            ("convgrad-call-id-bin", self.call_id),
            ("convgrad-session-acknowledged", str(acknowledged)))), seconds

    def succeed(self, response: Response) -> None:
        try:
            result = self.call.decode(response)
        except Exception as error:  # a reply that isn't one
            return self.fail(error)
        with contextlib.suppress(InvalidStateError):  # who closed the session was quicker
            self.future.set_result(result)

    def fail(self, error: Exception) -> None:
        """Tells the caller, unless that has happened."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)

    def give_up(self, error: ConvgradError) -> None:
        """Tells the caller. What is sent from now on has no effect."""
        self.fail(error)
        # The message isn't sent again: its memory is the caller's.
        self.call = replace(self.call, message=None, frames=None, place=None)
        self.instead = None
        self.is_void, self.void_since = True, time.monotonic()
        self.call_id = os.urandom(16)

    def begin_again(self) -> None:
        """Makes it a change of the next epoch."""
        self.is_over, self.error, self.call_id = False, None, os.urandom(16)

    def is_late_in(self, seconds: float) -> bool:
        return self.deadline is not None and time.monotonic() + seconds >= self.deadline


@dataclass(eq=False)
class Read:
    """A read under way. begin() and lose() may come from two threads."""

    after: int
    is_lost: bool = False
    """A change that it would have seen has failed."""
    rpc: Any = None

    def begin(self, rpc: Any) -> None:
        """Says what to cancel where the read is lost."""
        self.rpc = rpc
        if self.is_lost:
            rpc.cancel()

    def lose(self) -> None:
        self.is_lost = True
        if self.rpc is not None:
            self.rpc.cancel()


def number_of(rpc: Any) -> int | None:
    """Returns the session's number, which is there if the server has decided."""
    for key, value in rpc.trailing_metadata() or ():
        if key == _NUMBER_TRAILER and str(value).isdigit():
            return int(value)
    return None
