"""Defines the methods of a session that keep, restore and drop snapshots on the server."""

from __future__ import annotations

from convgrad.moving.machine import tell_differences
from convgrad.requests import Call, session_call
from convgrad.sessions.durable import save_state_call
from convgrad.sessions.methods import Owner, method
from convgrad.v1 import session_pb2


@method
def save_state(self: Owner, name: str = "", *, timeout: float | None = None) -> Call[int]:
    """Makes the server write the session to its disk, and returns the durable number.

    That is the number of the last change that left no tape and, once a change has had a
    `trainer_state`, carried one. With a `name`, the server keeps this snapshot until
    drop_state(), in place of the one that had the name; see restore_state().

    Errors: FailedPrecondition if the session isn't durable; Internal if the server can't write;
    ResourceExhausted for more than 16 names, or if the client's quota is full.
    """
    return save_state_call(self._durable, name, timeout=timeout)


@method
def restore_state(self: Owner, name: str, *,
                  timeout: float | None = None) -> Call[bytes]:
    """Goes back to the snapshot that save_state() has kept under this name, and returns its
    `trainer_state`.

    This is one change: all tensors are those of the snapshot, and there are no tapes. Programs
    of the snapshot are there again, and others stay. Warns if another CPU model, version or
    configuration of the server computed it.

    Errors: NotFound; FailedPrecondition if the session isn't durable; SnapshotDamaged if its
    files on the server's disk are damaged. The session is as before then.
    """
    def decode(response: bytes) -> bytes:
        answer = session_pb2.RestoreStateResponse.FromString(response)
        tell_differences(answer.differences)
        return answer.trainer_state

    self._known.forget(())
    return session_call("RestoreState", session_pb2.RestoreStateRequest(name=name), decode,
                        timeout, is_change=True)


@method
def drop_state(self: Owner, name: str, *, timeout: float | None = None) -> Call[None]:
    """Drops the snapshot that save_state() has kept under this name, if there is one.

    Errors: FailedPrecondition if the session isn't durable.
    """
    return session_call("DropState", session_pb2.DropStateRequest(name=name), lambda _: None,
                        timeout)
