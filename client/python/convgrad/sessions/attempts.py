"""Makes the attempts of one change and of one read of a session."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace
from typing import Any

from convgrad.errors import ConvgradError, number_in
from convgrad.requests import Call, session_call
from convgrad.v1 import session_pb2
from convgrad.wire import Response

_LOG = logging.getLogger("convgrad")

NUMBER_TRAILER = "convgrad-session-number"
DURABLE_TRAILER = "convgrad-durable-number"
# Timeout of an attempt that only finds out the outcome of a change.
_VOID_SECONDS = 10.0
# Replaces a change that its caller has given up. If the server has neither begun nor committed
# that change, this one fails there and ends the epoch of the changes behind it.
VOID: Call[None] = session_call(
    "DropTensors", session_pb2.DropTensorsRequest(names=[""]), lambda _: None)


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
    kept: Call[Any] | None = None
    """The call with its own bytes, as a durable session repeats it after a restart."""
    future: Future[Any] = field(default_factory=Future)
    call_id: bytes = field(default_factory=lambda: os.urandom(16))
    given_up_id: bytes = b""
    """The call id before its caller was told that it has failed."""
    attempts: int = 0
    error: ConvgradError | None = None
    """The server's refusal."""
    is_over: bool = False
    """Its epoch has ended, and it isn't committed."""
    is_void: bool = False
    """Its caller was told that it has failed."""
    void_since: float = 0.0
    is_fresh: bool = False
    """The callers of all changes before it knew their outcomes when it was submitted."""
    was_committed: bool = False
    """The client knows that it was committed before the server's restart."""
    is_repeat: bool = False
    """It was committed before the server's restart, and its caller has an answer."""

    @classmethod
    def repeated(cls, sequence: int, call: Call[Any], call_id: bytes) -> Change:
        """Returns a change whose answer is ignored."""
        change = cls(call, sequence, None, call, call_id=call_id, is_repeat=True)
        change.future.set_result(None)
        return change

    def attempt(self, opened: Opened, epoch: int,
                acknowledged: int) -> tuple[Call[Any], float | None]:
        """Returns the call to send and its timeout in seconds."""
        self.attempts += 1
        seconds: float | None = _VOID_SECONDS
        if not self.is_void:
            seconds = (None if self.deadline is None
                       else max(self.deadline - time.monotonic(), 0.001))
        call = VOID if self.is_void else self.call
        return replace(call, target=opened.target, metadata=(
            ("convgrad-session-bin", opened.answer.session_id),
            ("convgrad-session-epoch", str(epoch)),
            ("convgrad-session-sequence", str(self.sequence)),
            ("convgrad-call-id-bin", self.call_id),
            ("convgrad-session-acknowledged", str(acknowledged)))), seconds

    def succeed(self, response: Response) -> None:
        if self.is_repeat:
            return
        try:
            result = self.call.decoded(response)
        except Exception as error:  # a malformed reply
            return self.fail(error)
        self._end(self.future.set_result, result)

    def fail(self, error: BaseException) -> None:
        """Fails the caller's future, unless it is done."""
        self._end(self.future.set_exception, error)

    def _end(self, end: Callable[[Any], None], outcome: Any) -> None:
        try:
            end(outcome)
        except InvalidStateError:  # the session was closed meanwhile
            pass
        except BaseException:  # such as SystemExit in a callback of the user's
            _LOG.exception("change %d of a session goes on", self.sequence)

    def abandon(self, error: BaseException) -> None:
        """Fails the caller's future although an attempt may still use the caller's regions."""
        self.call.loan.give_up()
        self.fail(error)

    def give_up(self, error: BaseException) -> None:
        """Abandons the change. Later attempts of it have no effect, unless it was committed
        before the server's restart."""
        self.abandon(error)
        if self.was_committed:
            return self._become_repeat()
        # Drops the message, because its memory belongs to the caller again.
        self.call = replace(self.call, message=None, frames=None, place=None, whole=None)
        self.is_void, self.void_since = True, time.monotonic()
        self.given_up_id, self.call_id = self.call_id, os.urandom(16)

    def begin_again(self) -> None:
        """Moves it to the next epoch."""
        self.is_over, self.error, self.call_id = False, None, os.urandom(16)

    def start_over(self, *, is_committed: bool) -> None:
        """Prepares it for a server that was started again. `is_committed`: the client knows
        that the server had committed it."""
        self.is_over, self.error, self.attempts = False, None, 0
        self.was_committed |= is_committed
        if self.is_repeat or self.is_void and self.was_committed:
            self._become_repeat()
        elif self.kept is not None and self.call.loan.parts:
            self.call = self.kept  # the server no longer has the client's regions

    def _become_repeat(self) -> None:
        """Repeats the change as it was, however long that takes. Nobody waits for it."""
        if self.is_void:
            self.call_id = self.given_up_id
        self.is_void, self.is_repeat, self.deadline, self.attempts = False, True, None, 0
        if self.kept is not None:
            self.call = self.kept

    def is_late_in(self, seconds: float) -> bool:
        return self.deadline is not None and time.monotonic() + seconds >= self.deadline


@dataclass(eq=False)
class Read:
    """A read in flight. begin() and cancel() may run on two threads."""

    after: int
    restores: int
    """How often the session had been restored when it began."""
    is_fresh: bool = False
    """The callers of all changes before it knew their outcomes when it began."""
    is_moved: bool = False
    """`after` has changed since the call began."""
    is_noticed: bool = False
    """Whether the session's thread knows that the server was started again."""
    is_lost: bool = False
    """A change that it would have seen has failed."""
    rpc: Any = None

    def begin(self, rpc: Any) -> None:
        """Sets the call to cancel if the read is lost or moved."""
        self.rpc = rpc
        if self.is_lost or self.is_moved:
            rpc.cancel()

    def move(self, after: int | None) -> None:
        """Makes the read see the changes up to `after` instead, or fail if that is None, once
        cancel() is called."""
        if after is None:
            self.is_lost = True
        else:
            self.after, self.is_moved = after, True

    def cancel(self) -> None:
        """Cancels the call that is in flight, if any."""
        if self.rpc is not None:
            self.rpc.cancel()


def number_of(rpc: Any, trailer: str = NUMBER_TRAILER) -> int | None:
    """Returns the session's number, or another one; None if the server hasn't sent it."""
    for key, value in rpc.trailing_metadata() or ():
        if key == trailer:
            return number_in(value)
    return None
