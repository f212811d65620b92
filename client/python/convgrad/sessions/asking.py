"""Asks a session's server something, beside the session's changes and reads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from convgrad.caller import Caller
from convgrad.errors import ConvgradError, ResourceExhausted, from_rpc, unavailable
from convgrad.requests import Call, session_call
from convgrad.sessions.events import EventThread
from convgrad.v1 import session_pb2

_LIST_SECONDS = 5.0
# The same number as in the server's refusal of OpenSession.
_MOST_NAMED = 5

Answered = Callable[[Any, "ConvgradError | None"], None]


def ask(client: Caller, thread: EventThread, call: Call[Any], seconds: float,
        then: Answered) -> None:
    """Sends the call once. Makes `thread` call `then` with the decoded answer, or with None and
    the error.

    Calls `then` at once if the call can't be started. Never blocks.
    """
    def done(rpc: Any) -> None:
        if rpc.code() != grpc.StatusCode.OK:
            return then(None, from_rpc(rpc.code(), rpc.details(), rpc.trailing_metadata()))
        try:
            answer = call.decoded(rpc.result())
        except ConvgradError as error:
            return then(None, error)
        then(answer, None)

    try:
        rpc = client.start(call, seconds)
    except BaseException as error:
        return then(None, not_started(error))
    rpc.add_done_callback(lambda rpc: thread.later(0, functools.partial(done, rpc)))


def ask_again(client: Caller, thread: EventThread, call: Call[Any], seconds: float,
              then: Answered, attempts: int = 1) -> None:
    """Does the same as ask(), and repeats the call while that may help. `attempts` counts them.
    """
    def answered(answer: Any, error: ConvgradError | None) -> None:
        delay = None if error is None else client.retry.delay(error, attempts)
        if error is None or delay is None or client.is_closed:
            return then(answer, error)
        client.note_repeat(call.method.rpartition("/")[2], str(call.target), error, attempts,
                           delay, None)
        thread.later(delay, functools.partial(
            ask_again, client, thread, call, seconds, then, attempts + 1))

    ask(client, thread, call, seconds, answered)


def not_started(error: BaseException) -> ConvgradError:
    """Returns the error of a call whose start has raised `error`, such as an exception of the
    user's function for the token."""
    if isinstance(error, ConvgradError):
        return error
    return unavailable("", "start of a call", f"{type(error).__name__}: {error}",
                       "no exception")


def when_named(client: Caller, target: str, thread: EventThread, error: ConvgradError | None,
               then: Callable[[], None]) -> None:
    """Makes `thread` call `then` after adding the names of the largest sessions to `error`.

    Calls `then` at once if the error has another reason. Never blocks.
    """
    if not isinstance(error, ResourceExhausted) or not (
            error.field == "kept bytes" or error.found.endswith(" in all of its sessions")):
        return then()
    call = session_call("ListSessions", session_pb2.ListSessionsRequest(),
                        session_pb2.ListSessionsResponse.FromString, target=target)

    def on_listed(answer: Any, _: ConvgradError | None) -> None:
        if answer is not None:
            error.message += _described(answer.sessions)
        then()

    ask(client, thread, call, _LIST_SECONDS, on_listed)


def _described(sessions: Sequence[Any]) -> str:
    """Returns the text about the largest sessions, to append to a message."""
    largest = sorted(filter(lambda one: one.kept_bytes, sessions),
                     key=lambda one: -one.kept_bytes)
    if not largest:
        return ""
    words = []
    for one in largest[:_MOST_NAMED]:
        name = f" '{one.name}'" if one.name else ""
        rest = (f"ends in {one.remaining_seconds:.0f} s" if one.remaining_seconds
                else "in use by a call")
        words.append(f"{one.handle}{name} with {one.kept_bytes} bytes, {rest}")
    if len(largest) > _MOST_NAMED:
        words.append(f"and {len(largest) - _MOST_NAMED} more")
    return (f"; your sessions there: {'; '.join(words)}; "
            "client.close_session(handle) ends one")
