"""Names the sessions that use up a server's memory in the error of a refused change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from convgrad.caller import Caller
from convgrad.errors import ConvgradError, ResourceExhausted
from convgrad.requests import session_call
from convgrad.sessions.asking import ask
from convgrad.sessions.events import EventThread
from convgrad.v1 import session_pb2

_LIST_SECONDS = 5.0
# The same number as in the server's refusal of OpenSession.
_MOST_NAMED = 5


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
