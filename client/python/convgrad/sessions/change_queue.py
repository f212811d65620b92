"""Has what a session's callers see of its changes."""

from __future__ import annotations

import concurrent.futures
import copy
import threading
import time
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakSet

import grpc

from convgrad.caller import Caller
from convgrad.errors import ConvgradError, DeadlineExceeded, EpochEnded, SessionExpired
from convgrad.requests import Call
from convgrad.sessions.attempts import Opened, Read
from convgrad.sessions.events import EventThread
from convgrad.sessions.outcomes import lost_with_server
from convgrad.sessions.pending import Pending
from convgrad.sessions.recorder import Recorder

R = TypeVar("R")


class ChangeQueue:
    """The part of a session's changes that callers see: numbers, room, reads, the end.

    `Changes` sends the changes. Thread-safe.
    """

    def __init__(self, client: Caller, opened: Opened,
                 recorder: Recorder | None = None) -> None:
        self._client = client
        self._opened = opened
        self._recorder = recorder
        self._opened_at = time.time()
        self._condition = threading.Condition()
        self.epoch = opened.answer.epoch
        self._pending = Pending(opened.answer.number + 1)
        self._reads: WeakSet[Read] = WeakSet()
        self.failures = 0
        """Number of epochs that ended with a failure reported to a caller."""
        self._has_ended = False  # the server has ended the epoch
        # How often the session was restored. Outcomes of earlier attempts don't count.
        self._restores = 0
        self._is_restoring = False
        self.error: ConvgradError | None = None
        """The error that ended the session; None while it is usable."""
        self._keeps_calls = recorder is not None
        self.thread = EventThread("convgrad-session")

    @property
    def number(self) -> int:
        """Number of the last change up to which all replies have arrived."""
        with self._condition:
            return self._pending.answered

    def forms_of(self, call: Call[Any]) -> tuple[Call[Any], Call[Any] | None]:
        """Returns the call as it is sent, and with its own bytes if it is needed later."""
        kept = (call.whole or call).with_own_bytes() if self._keeps_calls else None
        # Regions would not be in a recording.
        placed = call if self._recorder is not None else self._client.placed(call)
        if kept is not None and placed is call and call.whole is None:
            placed = kept
        return placed, kept

    def begin_read(self) -> Read:
        """Returns a read that sees all changes submitted so far."""
        with self._condition:
            self.check_broken()
            read = Read(self._pending.next - 1, self._restores, self._pending.are_known)
            self._reads.add(read)
            return read

    def run_read(self, call: Call[R], read: Read) -> R:
        """Sends the call and waits for its result. `read` is from begin_read().

        Errors: EpochEnded if a change has failed that the call had to see.
        """
        deadline = self._client.deadline_of(call)
        while True:
            read.is_moved = False
            after = read.after
            placed = replace(
                call, target=self._opened.target, metadata=(
                    ("convgrad-session-bin", self._opened.answer.session_id),
                    ("convgrad-session-after", str(after))),
                on_start=read.begin if after > self.number else None)
            if deadline is not None:
                left = deadline - time.monotonic()
                placed = replace(placed, options={**call.options, "timeout": left})
            try:
                result = self._client.run(placed)
                if not read.is_lost:
                    return result
            except ConvgradError as error:
                is_early = error.code == grpc.StatusCode.ABORTED and (
                    deadline is None or time.monotonic() < deadline)
                if isinstance(error, SessionExpired):
                    self.stop(error)
                    self.check_broken()
                if not (read.is_lost or read.is_moved or is_early
                        or self.recovers(error, read, deadline)):
                    raise
            if read.is_lost:
                raise EpochEnded("a change failed that this call was to see")

    def recovers(self, error: ConvgradError, read: Read, deadline: float | None) -> bool:
        """Returns whether a read that failed may be sent again because its session is being
        restored. Blocks until the changes that it must see are back."""
        return False

    def flush(self) -> None:
        """Blocks until all changes so far have ended, and at most 2 s for those given up."""
        with self._condition:
            changes = self._pending.all()
        concurrent.futures.wait([change.future for change in changes])
        self.settle()

    def settle(self) -> None:
        """Waits, for 2 s at most, until the outcome of each given-up change is known and the
        session isn't being restored."""
        with self._condition:
            self._condition.wait_for(lambda: self.error or not (self._is_restoring or any(
                change.future.done() for change in self._pending.all())), 2)

    def stop(self, why: ConvgradError) -> None:
        """Fails the changes in flight, and all later calls, with `why`."""
        if not self._client.is_at_home:  # in a fork, the lock may be held forever
            return
        with self._condition:
            if self.error is not None:
                return
            if isinstance(why, SessionExpired):
                why = lost_with_server(why, self._opened.target, self._opened_at,
                                       self._pending.answered)
            self.error = why
            changes = self._pending.all()
            # Drops their messages; this must not acknowledge any of them.
            self._pending.clear(self._pending.acknowledged + 1)
            self._condition.notify_all()
        self.thread.stop()
        if self._recorder is not None:
            self._recorder.close()
        for change in changes:
            change.abandon(copy.copy(why))

    def stop_in(self, epoch: int, why: ConvgradError) -> None:
        """Does the same, unless this client has resumed the session itself since it was in
        `epoch`, or is about to."""
        with self._condition:
            is_mine = self._is_restoring or self.epoch != epoch
        if not is_mine:
            self.stop(why)

    def check_broken(self) -> None:
        """Raises the error that ended the session."""
        if self.error is not None:
            raise copy.copy(self.error)

    def _has_room(self) -> bool:
        return not self._has_ended and (
            self._pending.next - self._pending.acknowledged <= self._opened.answer.window)

    def _await_room(self, deadline: float | None) -> None:
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        has_room = self._condition.wait_for(
            lambda: self.error is not None or self._has_room(), left)
        self.check_broken()
        if not has_room or left == 0:
            raise DeadlineExceeded("the deadline was over before the change was sent, behind "
                                   f"{len(self._pending.all())} others")
