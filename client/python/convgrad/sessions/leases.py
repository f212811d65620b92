"""Opens, resumes, renews, lists and closes sessions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import grpc

from convgrad.caller import Caller
from convgrad.connections.addresses import followed
from convgrad.connections.retries import IS_GOING
from convgrad.errors import (
    ConvgradError,
    FailedPrecondition,
    SessionExpired,
    SessionTakenOver,
    bad_reply,
)
from convgrad.options import Options
from convgrad.requests import Call, session_call
from convgrad.sessions.asking import ask
from convgrad.sessions.attempts import Opened
from convgrad.sessions.changes import Changes
from convgrad.v1 import session_pb2

_RENEWALS_PER_LEASE = 3
# Firewalls and NATs forget connections that are silent for minutes. A call reaches the server,
# whereas a ping would end at a proxy.
_LONGEST_SILENCE_SECONDS = 30.0
_CLOSE_SECONDS = 10.0
_BRIEF_SECONDS = 2.0
# Codes of a server that may still have a session that it was asked for.
_MAY_HAVE_IT = (*IS_GOING, grpc.StatusCode.DEADLINE_EXCEEDED)

R = TypeVar("R")


@dataclass(frozen=True)
class OpenSession:
    """A session on a server, as Client.sessions() returns it."""

    handle: str
    """Identifies it in Client.close_session(); gives no right to use it."""
    name: str
    client: str
    """Name of the client that owns it."""
    number: int
    """Number of its last committed change."""
    tensors: int
    kept_bytes: int
    """Bytes that count in quotas, beside `reply_bytes`."""
    reply_bytes: int
    quota_bytes: int
    lease_seconds: float
    remaining_seconds: float
    """Seconds until it ends without a call; 0 while a call uses it."""
    target: str
    """Address of its server."""
    durable_number: int | None = None
    """Number of its newest change on the server's disk; None if it isn't durable."""
    on_disk: bool = False
    """Whether it is only on disk, since the server's restart or the end of its lease."""
    snapshots: Mapping[str, int] = field(default_factory=dict)
    """The changes after which Session.save_state() has kept snapshots, by name."""


def call_of(method: str, request: Any, timeout: float | None = None,
            **settings: Any) -> Call[Any]:
    """Returns a call that is answered with a session."""
    return session_call(method, request, session_pb2.SessionResponse.FromString, timeout,
                        **settings)


def open_session(client: Caller, name: str, lease_seconds: float, quota_bytes: int,
                 readers: Sequence[str], durable: bool) -> Opened:
    """Opens a session on the next server of the client."""
    request = session_pb2.OpenSessionRequest(
        open_id=os.urandom(16), name=name, lease_seconds=lease_seconds,
        quota_bytes=quota_bytes, readers=readers, durable=durable)
    call = call_of("OpenSession", request)
    target, answer = "", None
    try:
        target, answer = client.run_somewhere(call)
        return _found(client, target, answer)
    except BaseException as error:  # Ctrl-C, too
        # Nobody else knows its id, and its name would stay in use.
        with contextlib.suppress(ConvgradError):
            if answer is None and not isinstance(error, ConvgradError):
                # The server may have opened it, and finds it by its open_id.
                target, answer = client.run_somewhere(replace(
                    call, options=Options(timeout=_BRIEF_SECONDS)))
            if answer is not None:
                close = session_pb2.CloseSessionRequest(session_id=answer.session_id)
                client.run(call_of("CloseSession", close, _BRIEF_SECONDS, target=target))
        raise


def _found(client: Caller, target: str, answer: session_pb2.SessionResponse) -> Opened:
    """Returns the session that the server at `target` has opened, with the address at which to
    call that server.

    Errors: FailedPrecondition if that is another server's; Unavailable if it can't be reached;
    Internal for a lease that would be renewed without a pause.
    """
    if not answer.lease_seconds >= 1:
        raise bad_reply("lease_seconds", answer.lease_seconds, "at least 1")
    address = followed(target, answer.address)
    if address == target:
        return Opened(target, answer)
    check = session_pb2.RenewSessionRequest(session_id=answer.session_id)
    try:
        client.run(call_of("RenewSession", check, target=address))
    except SessionExpired:
        raise FailedPrecondition.of(
            "server", f"'{address}', where the server at {target} doesn't have its sessions",
            "--advertise with an address of that very server") from None
    return Opened(address, answer)


def ask_each(client: Caller, call: Call[R]) -> tuple[str, R]:
    """Sends the call to the client's server that has its session. Returns the server's address
    and the answer.

    Asks several servers with a short timeout first, so that an unreachable one delays no other.

    Errors: SessionExpired if none has it; that of a server if it is unknown whether it has it.
    """
    rounds = [Options()]
    targets = client.replicas()
    if len(targets) > 1:
        rounds.insert(0, Options(timeout=_BRIEF_SECONDS))
    unknown: ConvgradError | None = None
    for options in rounds:
        away: dict[str, ConvgradError] = {}
        for target in targets:
            try:
                return client.run_somewhere(
                    replace(call, target=target, options=call.options | options))
            except SessionExpired as error:
                unknown = error
            except ConvgradError as error:
                if error.code not in _MAY_HAVE_IT and error.pushback_seconds is None:
                    raise
                away[target] = error
        targets = list(away)
    if away:
        raise next(iter(away.values()))
    assert unknown is not None
    raise unknown


def resume_session(client: Caller, name: str, session_id: bytes) -> Opened:
    """Resumes a session on the client's server that has it."""
    request = session_pb2.ResumeSessionRequest(session_id=session_id, name=name)
    return _found(client, *ask_each(client, call_of("ResumeSession", request)))


def check_durable(client: Caller, name: str, resume: bool | bytes) -> None:
    """Raises FailedPrecondition if the session to resume isn't durable. Its user goes on then.
    """
    if isinstance(resume, bytes):
        request = session_pb2.RenewSessionRequest(session_id=resume)
        is_durable = ask_each(client, call_of("RenewSession", request))[1].durable
    else:
        is_durable = not any(one.name == name and one.durable_number is None
                             for one in list_sessions(client, everybody=False))
    if not is_durable:
        raise not_durable()


def not_durable() -> FailedPrecondition:
    return FailedPrecondition.of(
        "durable", "a session that isn't", "one that was opened with durable=True")


def renew_regularly(client: Caller, opened: Opened, changes: Changes) -> None:
    """Makes the session's thread renew the lease until it is stopped."""
    seconds = min(opened.answer.lease_seconds / _RENEWALS_PER_LEASE, _LONGEST_SILENCE_SECONDS)

    def renew() -> None:
        epoch = changes.epoch
        request = session_pb2.RenewSessionRequest(
            session_id=opened.answer.session_id, epoch=epoch)

        def answered(_: Any, error: ConvgradError | None) -> None:
            if isinstance(error, (SessionExpired, SessionTakenOver)):
                changes.stop_in(epoch, error)
            if not (client.is_closed or changes.error):
                changes.thread.later(seconds, renew)

        ask(client, changes.thread, call_of("RenewSession", request, target=opened.target),
            seconds, answered)

    changes.thread.later(seconds, renew)


def list_sessions(client: Caller, everybody: bool) -> list[OpenSession]:
    """Returns the sessions on all of the client's servers."""
    request = session_pb2.ListSessionsRequest(everybody=everybody)
    found = []
    for target in client.replicas():
        listed = client.run(session_call(
            "ListSessions", request, session_pb2.ListSessionsResponse.FromString,
            target=target))
        found += [OpenSession(
            one.handle, one.name, one.client, one.number, one.tensors, one.kept_bytes,
            one.reply_bytes, one.quota_bytes, one.lease_seconds, one.remaining_seconds,
            target, one.durable_number if one.durable else None, one.on_disk,
            {each.name: each.number for each in one.snapshots})
            for one in listed.sessions]
    return found


def close_listed(client: Caller, handle: str) -> None:
    """Closes the session on the client's server that has it."""
    request = session_pb2.CloseSessionRequest(handle=handle)
    ask_each(client, call_of("CloseSession", request))


def close_session(client: Caller, opened: Opened, changes: Changes) -> None:
    """Closes the session; the server refuses that if another client has resumed it meanwhile.

    A session on an unreachable server ends with its lease.
    """
    # A short timeout for a server that has just failed to answer.
    seconds = _BRIEF_SECONDS if client.outages.is_away(opened.target) else _CLOSE_SECONDS
    request = session_pb2.CloseSessionRequest(
        session_id=opened.answer.session_id, epoch=changes.epoch)
    with contextlib.suppress(ConvgradError):
        client.run(call_of("CloseSession", request, seconds, target=opened.target))
