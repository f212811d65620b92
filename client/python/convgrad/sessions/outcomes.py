"""Classifies the server's answer to one attempt of a change."""

from __future__ import annotations

import enum
from typing import Any

import grpc

from convgrad.errors import (
    ConvgradError,
    DeadlineExceeded,
    ReplyLost,
    SessionExpired,
    SessionTakenOver,
    from_rpc,
)
from convgrad.sessions.attempts import Change, number_of

# The server also returns these for a change that waited for its turn; the epoch continues.
_GONE = (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
# gRPC itself reports these for a call without an answer.
_UNKNOWN = (*_GONE, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL,
            grpc.StatusCode.UNKNOWN)


class Outcome(enum.Enum):
    """The state of a change after an attempt that has failed."""

    SESSION_ENDED = enum.auto()
    REPLY_LOST = enum.auto()
    """The change is committed, but the server no longer has its reply."""
    EPOCH_ENDED = enum.auto()
    """An earlier change has failed."""
    COMMITTED = enum.auto()
    """The change was committed before its caller gave it up."""
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
    if isinstance(error, (SessionTakenOver, SessionExpired)):
        return error, Outcome.SESSION_ENDED
    if isinstance(error, ReplyLost):
        return error, Outcome.REPLY_LOST
    if error.reason == "EPOCH_ENDED":
        return error, Outcome.EPOCH_ENDED
    number = number_of(rpc)
    if error.reason == "OUT_OF_ORDER":
        return error, _out_of_order(change, error, number)
    if number is not None and error.code not in _GONE:
        return error, Outcome.REFUSED
    if error.code in _UNKNOWN or error.pushback_seconds is not None:
        return error, Outcome.UNKNOWN
    return error, Outcome.FAILED_BEFORE


def _out_of_order(change: Change, error: ConvgradError, number: int | None) -> Outcome:
    """Classifies OUT_OF_ORDER. `number` is that of the session's last committed change."""
    if change.is_void and number is not None and number >= change.sequence:
        return Outcome.COMMITTED
    if change.is_void or error.code == grpc.StatusCode.ABORTED:
        return Outcome.UNKNOWN
    return Outcome.SESSION_ENDED


def late_error(error: ConvgradError) -> DeadlineExceeded:
    """Returns the error of a change whose last attempt failed with `error`."""
    # gRPC's message for an attempt that the deadline ended adds nothing.
    is_silent = error.code == grpc.StatusCode.DEADLINE_EXCEEDED and not error.field
    late = DeadlineExceeded("the deadline was over before it was known what became of the "
                            "change" + ("" if is_silent else
                                        f": {error.code.name}: {error.message}"))
    late.attempts, late.request_id = error.attempts, error.request_id
    return late
