"""Makes the attempts of one change and of one read of a session."""

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
# Timeout of an attempt that only finds out the outcome of a change.
_VOID_SECONDS = 10.0
# Replaces a change that its caller has given up. If the server has neither begun nor committed
# that change, this one fails there and ends the epoch of the changes behind it.
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
    """A change in flight. Owned by the session's thread after submission."""

    call: Call[Any]
    sequence: int
    deadline: float | None
    instead: Instead | None
    """Returns the call to send instead if the server has refused this one; None: nothing."""
    future: Future[Any] = field(default_factory=Future)
    call_id: bytes = field(default_factory=lambda: os.urandom(16))
    attempts: int = 0
    error: ConvgradError | None = None
    """The server's refusal."""
    is_over: bool = False
    """Its epoch has ended, and it isn't committed."""
    is_void: bool = False
    """Its caller was told that it has failed."""
    void_since: float = 0.0

    def attempt(self, opened: Opened, epoch: int,
                acknowledged: int) -> tuple[Call[Any], float | None]:
        """Returns the call to send and its timeout in seconds."""
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
        except Exception as error:  # a malformed reply
            return self.fail(error)
        with contextlib.suppress(InvalidStateError):  # the session was closed meanwhile
            self.future.set_result(result)

    def fail(self, error: Exception) -> None:
        """Fails the caller's future, unless it is done."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)

    def give_up(self, error: ConvgradError) -> None:
        """Fails the caller's future. Later attempts of the change have no effect."""
        self.fail(error)
        # Drops the message, because its memory belongs to the caller again.
        self.call = replace(self.call, message=None, frames=None, place=None)
        self.instead = None
        self.is_void, self.void_since = True, time.monotonic()
        self.call_id = os.urandom(16)

    def begin_again(self) -> None:
        """Moves it to the next epoch."""
        self.is_over, self.error, self.call_id = False, None, os.urandom(16)

    def is_late_in(self, seconds: float) -> bool:
        return self.deadline is not None and time.monotonic() + seconds >= self.deadline


@dataclass(eq=False)
class Read:
    """A read in flight. begin() and lose() may run on two threads."""

    after: int
    is_lost: bool = False
    """A change that it would have seen has failed."""
    rpc: Any = None

    def begin(self, rpc: Any) -> None:
        """Sets the call to cancel if the read is lost."""
        self.rpc = rpc
        if self.is_lost:
            rpc.cancel()

    def lose(self) -> None:
        self.is_lost = True
        if self.rpc is not None:
            self.rpc.cancel()


def number_of(rpc: Any) -> int | None:
    """Returns the session's number; None if the server hasn't decided."""
    for key, value in rpc.trailing_metadata() or ():
        if key == _NUMBER_TRAILER and str(value).isdigit():
            return int(value)
    return None
