"""Defines the exceptions: one class per status code, with the details of the error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TypeVar

import grpc

from convgrad.v1 import error_pb2

DETAIL_TRAILER = "convgrad-error-bin"
PUSHBACK_TRAILER = "grpc-retry-pushback-ms"

Metadata = Iterable[tuple[str, "str | bytes"]]

# A part of gRPC's error for a peer that accepts a connection and sends nothing.
_SILENCE = "before receiving SETTINGS frame"


E = TypeVar("E", bound="ConvgradError")


class ConvgradError(Exception):
    """A call that failed at the server, in transit or before it was sent.

    `reason` is one of ErrorDetail's (proto/convgrad/v1/error.proto). `reason`, `field`, `found`
    and `expected` are empty if the error has no detail.
    """

    code: grpc.StatusCode
    reason = ""
    field = ""
    found = ""
    expected = ""
    attempts = 0
    """How often the call was sent."""
    request_id = b""
    """The call's request id, as sent to the server."""
    pushback_seconds: float | None = None
    """Seconds after which a full server wants a retry."""

    def __init__(self, message: str, *, detail: error_pb2.ErrorDetail | None = None,
                 code: grpc.StatusCode | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if detail is not None:
            self.reason = detail.reason
            self.field = detail.field
            self.found = detail.found
            self.expected = detail.expected

    @classmethod
    def of(cls: type[E], field: str, found: object, expected: object, reason: str = "") -> E:
        """Returns the error with these details, and the message that the server would give."""
        error = cls(message_of(field, str(found), str(expected)))
        error.reason, error.field = reason, field
        error.found, error.expected = str(found), str(expected)
        return error

    def __str__(self) -> str:
        tries = f" (after {self.attempts} attempts)" if self.attempts > 1 else ""
        return f"{self.code.name}: {self.message}{tries}"


class InvalidArgument(ConvgradError, ValueError):
    code = grpc.StatusCode.INVALID_ARGUMENT


class Unimplemented(ConvgradError, NotImplementedError):
    code = grpc.StatusCode.UNIMPLEMENTED


class NotFound(ConvgradError, LookupError):
    code = grpc.StatusCode.NOT_FOUND


class FailedPrecondition(ConvgradError):
    code = grpc.StatusCode.FAILED_PRECONDITION


class PermissionDenied(ConvgradError, PermissionError):
    code = grpc.StatusCode.PERMISSION_DENIED


class Unauthenticated(ConvgradError, PermissionError):
    code = grpc.StatusCode.UNAUTHENTICATED


class ResourceExhausted(ConvgradError):
    """The server is full (`pushback_seconds` is set), the call is beyond a limit, or a quota is
    full."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class DeadlineExceeded(ConvgradError, TimeoutError):
    code = grpc.StatusCode.DEADLINE_EXCEEDED


class Cancelled(ConvgradError):
    code = grpc.StatusCode.CANCELLED


class Unavailable(ConvgradError, ConnectionError):
    """No server could be reached, or it is shutting down."""

    code = grpc.StatusCode.UNAVAILABLE


class AlreadyExists(ConvgradError):
    code = grpc.StatusCode.ALREADY_EXISTS


class EpochEnded(ConvgradError):
    """A call of a session behind a change that failed; the call had no effect.

    Calls that were submitted after this error start again.
    """

    code = grpc.StatusCode.ABORTED


class ReplyLost(ConvgradError):
    """A committed change whose reply the server no longer keeps, because the client didn't
    acknowledge it for ten minutes. Don't repeat the change."""

    code = grpc.StatusCode.DATA_LOSS


class Internal(ConvgradError):
    """The server failed, or its answer isn't one of convgrad's."""

    code = grpc.StatusCode.INTERNAL


_CLASSES = {cls.code: cls for cls in ConvgradError.__subclasses__()}


class SessionExpired(NotFound):
    """The session has expired, was closed or belongs to another client."""


class SessionTakenOver(FailedPrecondition):
    """Another client has resumed the session and owns it now."""


class SessionRestored(FailedPrecondition):
    """The server was started again with an earlier state of a durable session, and the client
    can't repeat what came after. Resume the session; its trainer_state says where it is."""


class SessionDamaged(Internal):
    """No file of the durable session on the server's disk can be used. Only the server's
    operator can help; closing the session by its handle removes it."""

    code = grpc.StatusCode.DATA_LOSS


class SnapshotDamaged(Internal):
    """Files of a snapshot with a name are damaged on the server's disk. The session is as it
    was before restore_state()."""

    code = grpc.StatusCode.DATA_LOSS


def invalid(reason: str, field: str, found: object, expected: object) -> InvalidArgument:
    return InvalidArgument.of(field, found, expected, reason)


def unimplemented(field: str, found: object, expected: object) -> Unimplemented:
    return Unimplemented.of(field, found, expected, "UNSUPPORTED")


def unavailable(reason: str, field: str, found: object, expected: object) -> Unavailable:
    return Unavailable.of(field, found, expected, reason)


def bad_reply(field: str, found: object, expected: object) -> Internal:
    return Internal.of(f"reply.{field}", found, expected, "MALFORMED")


def is_silent(error: ConvgradError) -> bool:
    """Returns whether the peer of an attempt accepted the connection and didn't answer."""
    return isinstance(error, Unavailable) and not error.reason and _SILENCE in error.message


def unreachable(error: ConvgradError, target: str, has_answered: bool) -> ConvgradError:
    """Returns an error that names the server that didn't answer, instead of gRPC's message.

    Returns `error` itself if the server sent a reason. `has_answered` says whether the target
    has ever answered.
    """
    if not isinstance(error, Unavailable) or error.reason or error.field:
        return error
    why = error.message.rpartition(": ")[2]
    where = (f"({target} accepts connections but doesn't answer)" if is_silent(error)
             else f"at {target} ({why})")
    found = Unavailable.of(
        "server", f"none that answers {where}",
        "the convgrad-server that was there" if has_answered else "a convgrad-server; check "
        "host and port (a server's default port is 7070), and that it runs")
    found.attempts, found.request_id = error.attempts, error.request_id
    return found


@contextlib.contextmanager
def parsing_response() -> Iterator[None]:
    """Raises Internal if the block fails to parse a message."""
    try:
        yield
    except (ConvgradError, Warning):  # a user may have made warnings errors
        raise
    except Exception as error:  # ValueError, or protobuf's DecodeError
        raise bad_reply("message", error, "a response") from None


def message_of(field: str, found: str, expected: str) -> str:
    """Formats a message as MakeError in backends/core/status.cc does."""
    message = field
    if found:
        message += (": " if message else "") + f"found {found}"
    if expected:
        message += (", " if found else ": ") + f"expected {expected}"
    return message


def from_rpc(code: grpc.StatusCode, message: str | None,
             trailers: Metadata | None) -> ConvgradError:
    """Returns the exception for a call that gRPC ended with `code`.

    Returns Unavailable for a connection that closed while gRPC began the call. gRPC itself
    calls that UNKNOWN (grpc/grpc issue 34076).
    """
    if code == grpc.StatusCode.UNKNOWN and message == "Stream removed":
        code = grpc.StatusCode.UNAVAILABLE
    detail = None
    pushback = None
    for key, value in trailers or ():
        if key == DETAIL_TRAILER and isinstance(value, bytes):
            detail = _parse_detail(value)
        elif key == PUSHBACK_TRAILER:
            pushback = _parse_pushback(value)
    cls = _CLASSES.get(code, ConvgradError)
    if detail is not None and detail.reason == "TAKEN_OVER":
        cls = SessionTakenOver
    elif detail is not None and detail.reason == "RESTORED":
        cls = SessionRestored
    elif cls is ReplyLost and detail is not None and detail.reason == "MALFORMED":
        cls = SnapshotDamaged if detail.field == "name" else SessionDamaged
    elif cls is NotFound and detail is not None and detail.field == "session":
        cls = SessionExpired
    error = cls(message or "no message", detail=detail, code=code)
    error.pushback_seconds = pushback
    if cls is Unimplemented and detail is not None and (
            detail.reason == "UNKNOWN_FIELD"
            or detail.field.rpartition(".")[2] in ("method", "operator")):
        error.message += "; the server may be older than this client"
    return error


def _parse_detail(value: bytes) -> error_pb2.ErrorDetail | None:
    try:
        return error_pb2.ErrorDetail.FromString(value)
    except Exception:  # protobuf's DecodeError; another server's bytes
        return None


def number_in(value: str | bytes) -> int | None:
    """Returns the number that a trailer has in decimal; None if it isn't one below 2^63."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
    # int() refuses thousands of digits, and takes digits of other scripts.
    is_short = text.isascii() and text.isdigit() and len(text) <= 19
    return int(text) if is_short and int(text) < 2**63 else None


def _parse_pushback(value: str | bytes) -> float | None:
    milliseconds = number_in(value)
    # gRFC A6: a value that isn't a number of milliseconds in 32 bits means "don't retry".
    return milliseconds / 1000 if milliseconds is not None and milliseconds < 2**31 else None
