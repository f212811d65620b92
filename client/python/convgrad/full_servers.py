"""Says which sessions take the room that a change of a session didn't get."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from convgrad.caller import Caller
from convgrad.errors import Cancelled, ConvgradError, ResourceExhausted
from convgrad.requests import Call
from convgrad.sessions.events import EventThread
from convgrad.v1 import session_pb2

_LIST_SECONDS = 5.0
# As many as the server names in a refusal of OpenSession.
_MOST_NAMED = 5


def when_named(client: Caller, target: str, thread: EventThread, error: ConvgradError | None,
               then: Callable[[], None]) -> None:
    """Has `thread` call `then`, once `error` names the sessions that fill the server.

    Calls `then` at once if the error has another reason. Doesn't wait.
    """
    if not isinstance(error, ResourceExhausted) or not (
            error.field == "kept bytes" or error.found.endswith(" in all of its sessions")):
        return then()
    call = Call("ConvGradSessions/ListSessions",
                session_pb2.ListSessionsRequest().SerializeToString(),
                session_pb2.ListSessionsResponse.FromString, target=target)

    def on_listed(rpc: Any) -> None:
        if rpc.code() == grpc.StatusCode.OK:
            error.message += _described(call.decode(rpc.result()).sessions)
        then()

    try:
        rpc = client.start(call, _LIST_SECONDS)
    except Cancelled:
        return then()
    rpc.add_done_callback(lambda rpc: thread.later(0, functools.partial(on_listed, rpc)))


def _described(sessions: Sequence[Any]) -> str:
    """Returns the largest of the sessions, to be added to a message."""
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
