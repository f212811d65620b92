"""Keeps the changes of a durable session that a restart of the server would lose."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import grpc

from convgrad.connections.retries import IS_GOING
from convgrad.errors import ConvgradError, SessionRestored, SessionTakenOver
from convgrad.placing import Loan
from convgrad.requests import Call
from convgrad.sessions.attempts import Change
from convgrad.sessions.pending import Pending

_LOG = logging.getLogger("convgrad")

# Memory of one change beside its message.
_ENTRY_BYTES = 1024
# Share of the limit from which on the client asks for a snapshot. It is below 1, so that the
# server writes while the trainer still has room.
_EARLY = 0.75

# Codes of an attempt that says nothing about whether the server can write.
_PASSING = (*IS_GOING, grpc.StatusCode.ABORTED, grpc.StatusCode.DEADLINE_EXCEEDED)

DEFAULT_REPLAY_BYTES = 256 << 20


@dataclass(frozen=True)
class Kept:
    """A committed change, as it was sent."""

    call: Call[Any]
    call_id: bytes
    nbytes: int


def kept_of(call: Call[Any]) -> Call[Any]:
    """Returns the call without what belongs to its caller. Requires: it has its own bytes."""
    return replace(call, decode=lambda _: None, stream=None, place=None, loan=Loan(),
                   on_start=None, whole=None, results={}, kept_results={})


def _size_of(call: Call[Any]) -> int:
    frames = 0 if call.frames is None else sum(map(len, call.frames()))
    return _ENTRY_BYTES + frames + len(call.message or b"")


class Replay:
    """Keeps committed changes after the durable number. The lock of `Changes` guards it.

    `limit` is the number of bytes that it keeps. When it is full, the session asks for a
    snapshot, and new changes wait for it. Changes in flight don't count, because each session
    keeps those.
    """

    def __init__(self, durable_number: int, limit: int) -> None:
        self.durable_number = durable_number
        """Number of the newest change that is known to be on the server's disk."""
        self.is_saving = False
        """Whether a snapshot was asked for."""
        self._limit = limit
        self._kept: dict[int, Kept] = {}
        self._bytes = 0
        self._dropped_to = 0
        self._saving_from = 0

    @property
    def newest(self) -> int:
        """Number of the newest change that is kept; 0 if there is none."""
        return max(self._kept, default=0)

    @property
    def needs_snapshot(self) -> bool:
        return not self.is_saving and self._bytes > _EARLY * self._limit

    @property
    def is_full(self) -> bool:
        """Whether new changes must wait for the snapshot that was asked for."""
        return self.is_saving and self._bytes > self._limit

    def add(self, change: Change) -> None:
        """Keeps a change that was committed."""
        if change.sequence <= self.durable_number or change.kept is None:
            return
        kept = Kept(kept_of(change.kept), change.call_id, _size_of(change.kept))
        self._kept[change.sequence] = kept
        self._bytes += kept.nbytes

    def note_durable(self, number: int) -> None:
        """Drops the changes up to `number`, which are on the server's disk."""
        if number <= self.durable_number:
            return
        self.durable_number = number
        for sequence in [one for one in self._kept if one <= number]:
            self._bytes -= self._kept.pop(sequence).nbytes
        if 0 < self._dropped_to <= number:
            self._dropped_to = 0
            _LOG.warning("the session is durable again, up to change %d", number)

    def begin_saving(self) -> None:
        """Notes that a snapshot was asked for."""
        self.is_saving = True
        self._saving_from = self.durable_number

    def end_saving(self, error: ConvgradError | None) -> None:
        """Handles the answer to the request for a snapshot. Drops the changes if the server
        can't make the session durable, so that the training goes on. Keeps them if the server
        may have been started again, because it needs them then."""
        self.is_saving = False
        cant_write = error is not None and error.code == grpc.StatusCode.INTERNAL
        is_passing = error is not None and (
            isinstance(error, SessionRestored) or error.code in _PASSING
            or error.pushback_seconds is not None)
        helps_not = (not is_passing and self.durable_number == self._saving_from
                     and self._bytes > 2 * self._limit)
        if self._bytes <= self._limit or not (cant_write or helps_not):
            return
        newest = self.newest
        if not self._dropped_to:
            _LOG.warning(
                "replay_bytes: found %d bytes of changes after change %d, expected at most %d; "
                "a restart of the server now would lose the changes from %d on, because %s",
                self._bytes, self.durable_number, self._limit, self.durable_number + 1,
                error.message if error is not None else
                "the session had tapes, or no trainer_state, at each change since")
        self._dropped_to = newest
        self._kept.clear()
        self._bytes = 0

    def since(self, number: int, pending: Pending) -> list[Change]:
        """Returns the changes to send to a server that has restored change `number`: all later
        ones, and earlier ones whose reply is missing.

        Errors: SessionRestored if a later one isn't kept; SessionTakenOver if the server has
        changes of another client.
        """
        if number >= pending.next:
            raise SessionTakenOver(
                f"the session has change {number}, but this client has only sent "
                f"{pending.next - 1}: another client has resumed it")
        unknown = {change.sequence: change for change in pending.all()}
        missing = next((one for one in range(number + 1, pending.next)
                        if one not in unknown and one not in self._kept), None)
        if missing is not None:
            raise SessionRestored(
                f"the server was started again and has the session as of change {number}; "
                f"this client no longer has change {missing}. Resume the session by its id: "
                "its trainer_state says where to go on")
        last = self.newest
        for change in unknown.values():
            change.start_over(is_committed=change.sequence < last)
        for sequence, kept in self._kept.items():
            if sequence > number and sequence not in unknown:
                unknown[sequence] = Change.repeated(sequence, kept.call, kept.call_id)
        for sequence in [one for one in self._kept if one > number]:
            self._bytes -= self._kept.pop(sequence).nbytes  # comes back when it is committed
        return [unknown[sequence] for sequence in sorted(unknown)]
