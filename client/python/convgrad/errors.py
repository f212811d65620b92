"""Exceptions: one class for each status code, with what the error names."""

from __future__ import annotations

import contextlib
import datetime
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import grpc

from convgrad.v1 import error_pb2

DETAIL_TRAILER = "convgrad-error-bin"
PUSHBACK_TRAILER = "grpc-retry-pushback-ms"

Metadata = Iterable[tuple[str, "str | bytes"]]

P = ParamSpec("P")
R = TypeVar("R")

# As NoSuchSession in server/sessions/session.cc says it.
_START = re.compile(r"before its start at (\d+-\d+-\d+ \d+:\d+:\d+) UTC")

# Names of modules whose frames tell a user nothing.
_OWN = re.compile(r"(convgrad|concurrent\.futures)(\.|$)")


class ConvgradError(Exception):
    """A call that failed, at the server, on the way or before it was sent.

    `reason` is one of ErrorDetail's (proto/convgrad/v1/error.proto); it,
    `field`, `found` and `expected` are empty where nobody said.
    """

    code: grpc.StatusCode
    reason = ""
    field = ""
    found = ""
    expected = ""
    attempts = 0
    """How often the call was sent."""
    request_id = b""
    """Of the call, as the server saw it."""
    pushback_seconds: float | None = None
    """When a server that is full wants to be asked again."""

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
    """The server is full (`pushback_seconds` is set), or the call can never fit."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class DeadlineExceeded(ConvgradError, TimeoutError):
    code = grpc.StatusCode.DEADLINE_EXCEEDED


class Cancelled(ConvgradError):
    code = grpc.StatusCode.CANCELLED


class Unavailable(ConvgradError, ConnectionError):
    """No server could be reached, or it is going away."""

    code = grpc.StatusCode.UNAVAILABLE


class AlreadyExists(ConvgradError):
    code = grpc.StatusCode.ALREADY_EXISTS


class EpochEnded(ConvgradError):
    """A session's call that came behind a change which failed, and had no effect.

    Calls that were submitted after the error came begin anew.
    """

    code = grpc.StatusCode.ABORTED


class ReplyLost(ConvgradError):
    """A change that is committed, whose reply the server no longer keeps: nobody
    acknowledged it for ten minutes. It mustn't be made again."""

    code = grpc.StatusCode.DATA_LOSS


class Internal(ConvgradError):
    """The server failed, or its answer isn't one of convgrad's."""

    code = grpc.StatusCode.INTERNAL


_CLASSES = {cls.code: cls for cls in ConvgradError.__subclasses__()}


class SessionExpired(NotFound):
    """The session has expired or was closed, or it is another client's: nothing is kept."""


class SessionTakenOver(FailedPrecondition):
    """Somebody else has resumed the session; it is theirs now."""


def invalid(reason: str, field: str, found: object, expected: object) -> InvalidArgument:
    """Returns the error in the server's words."""
    return InvalidArgument(**_words(reason, field, found, expected))


def unimplemented(field: str, found: object, expected: object) -> Unimplemented:
    return Unimplemented(**_words("UNSUPPORTED", field, found, expected))


def unavailable(reason: str, field: str, found: object, expected: object) -> Unavailable:
    return Unavailable(**_words(reason, field, found, expected))


def bad_reply(field: str, found: object, expected: object) -> Internal:
    return Internal(**_words("MALFORMED", f"reply.{field}", found, expected))


def unreachable(error: ConvgradError, target: str, has_answered: bool) -> ConvgradError:
    """Returns the error that names the server that didn't answer, in place of gRPC's words.

    Returns `error` itself if a server has said why. `has_answered` says whether the target
    has ever answered.
    """
    if not isinstance(error, Unavailable) or error.reason or error.field:
        return error
    why = error.message.rpartition(": ")[2]
    words = _words("", "server", f"none that answers at {target} ({why})",
                   "the convgrad-server that was there" if has_answered else
                   "a convgrad-server; check host and port (a server's default port is 7070), "
                   "and that it runs")
    found = Unavailable(**words)
    found.attempts, found.request_id = error.attempts, error.request_id
    return found


def lost_with_server(error: SessionExpired, target: str, since: float,
                     number: int) -> SessionExpired:
    """Returns the error that says that the server was started again, if it was so after
    `since`, a time.time(). Otherwise returns `error`.

    Compares the clocks of both machines, which may differ. `number` is that of the session's
    last change.
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


def short_traceback(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a function whose ConvgradErrors have tracebacks without frames of this package.

    Frames of other code stay, such as those of a user's forward(). An Internal keeps all
    frames, because it may be a fault of the package. Cause and context stay as they are.
    """
    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ConvgradError as error:
            if error.code == grpc.StatusCode.INTERNAL:
                raise
            # Without `from`, which would hide the exception that the caller handles.
            raise error.with_traceback(  # noqa: B904
                _without_own_frames(error.__traceback__))

    return called


def _without_own_frames(first: TracebackType | None) -> TracebackType | None:
    """Returns a copy of the traceback without frames of convgrad, and of concurrent.futures,
    by which convgrad waits."""
    kept = []
    while first is not None:
        if not _OWN.match(first.tb_frame.f_globals.get("__name__", "")):
            kept.append(first)
        first = first.tb_next
    shortened = None
    for entry in reversed(kept):
        shortened = TracebackType(shortened, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return shortened


@contextlib.contextmanager
def parsing_response() -> Iterator[None]:
    """Raises Internal where what the block parses is no message."""
    try:
        yield
    except Exception as error:  # ValueError, or protobuf's DecodeError
        raise bad_reply("message", error, "a response") from None


def _words(reason: str, field: str, found: object, expected: object) -> dict[str, Any]:
    """Returns the message and the detail that says the same."""
    found, expected = str(found), str(expected)
    return {"message": message_of(field, found, expected),
            "detail": error_pb2.ErrorDetail(reason=reason, field=field, found=found,
                                            expected=expected)}


def message_of(field: str, found: str, expected: str) -> str:
    """As MakeError in backends/core/status.cc."""
    message = field
    if found:
        message += (": " if message else "") + f"found {found}"
    if expected:
        message += (", " if found else ": ") + f"expected {expected}"
    return message


def from_rpc(code: grpc.StatusCode, message: str | None,
             trailers: Metadata | None) -> ConvgradError:
    """Returns the exception for a call that gRPC ended with `code`."""
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
    elif cls is NotFound and detail is not None and detail.field == "session":
        cls = SessionExpired
    error = cls(message or "no message", detail=detail, code=code)
    error.pushback_seconds = pushback
    return error


def _parse_detail(value: bytes) -> error_pb2.ErrorDetail | None:
    try:
        return error_pb2.ErrorDetail.FromString(value)
    except Exception:  # protobuf's DecodeError; another server's bytes
        return None


def _parse_pushback(value: str | bytes) -> float | None:
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
    # gRFC A6: what isn't a number of milliseconds means "don't".
    return int(text) / 1000 if text.isdigit() else None
