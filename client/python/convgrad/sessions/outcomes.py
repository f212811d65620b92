"""Classifies the server's answer to one attempt of a change."""

from __future__ import annotations

import datetime
import enum
import re
from typing import Any

import grpc

from convgrad.connections.retries import RetryPolicy
from convgrad.errors import (
    ConvgradError,
    DeadlineExceeded,
    NotFound,
    ReplyLost,
    SessionDamaged,
    SessionExpired,
    SessionRestored,
    SessionTakenOver,
    from_rpc,
)
from convgrad.sessions.attempts import Change, number_of

# The server also returns these for a change that waited for its turn; the epoch continues.
_GONE = (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
# gRPC itself reports these for a call without an answer.
_UNKNOWN = (*_GONE, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL,
            grpc.StatusCode.UNKNOWN)


# Parses the message of NoSuchSession in server/sessions/session.cc.
_START = re.compile(r"before its start at (\d+-\d+-\d+ \d+:\d+:\d+) UTC")


# After these errors, the client can't use the session any more.
ENDS = (SessionDamaged, SessionExpired, SessionTakenOver)


class Outcome(enum.Enum):
    """The state of a change after an attempt that has failed."""

    SESSION_ENDED = enum.auto()
    RESTORED = enum.auto()
    """The server was started again and has the session as of its durable number."""
    EPOCH_ENDED = enum.auto()
    """An earlier change has failed."""
    COMMITTED = enum.auto()
    """The change is committed, but the server no longer has its reply, or the caller has given
    it up."""
    REFUSED = enum.auto()
    """The server has refused the change and those behind it."""
    UNKNOWN = enum.auto()
    """The change may be committed or may be next, so the same call is repeated."""
    FAILED_BEFORE = enum.auto()
    """The server refused the call before it looked at the session."""


def outcome_of(change: Change, rpc: Any) -> tuple[ConvgradError, Outcome]:
    """Returns the error of an attempt that has failed, and the state of its change."""
    error = from_rpc(rpc.code(), rpc.details(), rpc.trailing_metadata())
    error.request_id, error.attempts = change.call.request_id, change.attempts
    if isinstance(error, ENDS):
        return error, Outcome.SESSION_ENDED
    if isinstance(error, SessionRestored):
        return error, Outcome.RESTORED
    if isinstance(error, ReplyLost):
        return error, Outcome.COMMITTED
    number = number_of(rpc)
    if change.is_void and number is not None and number >= change.sequence:
        return error, Outcome.COMMITTED  # even in an epoch that has ended
    if error.reason == "EPOCH_ENDED":
        return error, Outcome.EPOCH_ENDED
    if error.reason == "OUT_OF_ORDER":
        if change.is_void or error.code == grpc.StatusCode.ABORTED:
            return error, Outcome.UNKNOWN
        # Another field is one of the request, which this change alone has.
        if error.field.startswith("convgrad-session-"):
            return error, Outcome.SESSION_ENDED
    if number is not None and error.code not in _GONE:
        return error, Outcome.REFUSED
    if error.code in _UNKNOWN or error.pushback_seconds is not None:
        return error, Outcome.UNKNOWN
    return error, Outcome.FAILED_BEFORE


def delay_after(change: Change, retry: RetryPolicy) -> float | None:
    """Returns the seconds until the change that ended its epoch is repeated; None: never."""
    if change.is_void:
        return None
    if change.error is None:  # the reply with the reason was lost
        delay: float | None = retry.backoff(change.attempts)
    else:
        is_unknown = isinstance(change.error, NotFound) and (
            change.error.field.endswith(".digest"))
        if is_unknown and change.call.whole is not None:  # bytes that the server had before
            change.call = change.call.whole
            return 0.0
        delay = retry.delay(change.error, change.attempts)
    # A committed change is repeated even if its caller no longer waits.
    is_late = change.is_late_in(delay or 0) and not change.was_committed
    return None if is_late else delay


def late_error(error: ConvgradError | None) -> DeadlineExceeded:
    """Returns the error of a change whose last attempt failed with `error`; None: the server
    refused it, and the answer with the reason was lost."""
    if error is None:
        return DeadlineExceeded("the deadline was over before the change was repeated")
    # gRPC's message for an attempt that the deadline ended adds nothing.
    is_silent = error.code == grpc.StatusCode.DEADLINE_EXCEEDED and not error.field
    late = DeadlineExceeded("the deadline was over before it was known what became of the "
                            "change" + ("" if is_silent else
                                        f": {error.code.name}: {error.message}"))
    late.attempts, late.request_id = error.attempts, error.request_id
    return late


def lost_with_server(error: SessionExpired, target: str, since: float,
                     number: int) -> SessionExpired:
    """Returns an error that says that the server was restarted, if that was after `since` (a
    time.time()). Otherwise returns `error`.

    Compares the clocks of two machines, which may differ. `number` is the number of the
    session's last change.
    """
    start = _START.search(error.expected)
    if start is None:
        return error
    started = datetime.datetime.strptime(start[1], "%Y-%m-%d %H:%M:%S").replace(
        tzinfo=datetime.timezone.utc)
    if started.timestamp() < since:
        return error
    lost = SessionExpired(
        f"the server at {target} was started again at "
        f"{started.astimezone():%Y-%m-%d %H:%M:%S}; the session, and all that it kept, was "
        f"lost after change {number}. Open a new session and put a checkpoint there: of a "
        "network by convgrad.torch.remote, then load_state_dict of network and optimizer")
    vars(lost).update({key: value for key, value in vars(error).items() if key != "message"})
    return lost
