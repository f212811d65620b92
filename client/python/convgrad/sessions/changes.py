"""Sends a session's changes, in order and each exactly once.

proto/convgrad/v1/session.proto defines the protocol. One thread per session receives the
outcome of each attempt and decides what follows.
"""

from __future__ import annotations

import concurrent.futures
import copy
import functools
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import grpc

from convgrad.caller import Caller
from convgrad.errors import (
    Cancelled,
    ConvgradError,
    DeadlineExceeded,
    EpochEnded,
    SessionExpired,
    lost_with_server,
    unreachable,
)
from convgrad.full_servers import when_named
from convgrad.requests import Call
from convgrad.sessions.attempts import Change, Instead, Opened, Read
from convgrad.sessions.events import EventThread
from convgrad.sessions.outcomes import Outcome, late_error, outcome_of
from convgrad.wire import Response, joined


class Changes:
    """Numbers changes, sends them, and repeats those with an unknown outcome. Thread-safe."""

    def __init__(self, client: Caller, opened: Opened) -> None:
        self._client = client
        self._opened = opened
        self._opened_at = time.time()
        self._condition = threading.Condition()
        self._epoch = opened.answer.epoch
        self._next = opened.answer.number + 1
        self._pending: dict[int, Change] = {}
        self._reads: set[Read] = set()
        self._failures = 0
        self._has_ended = False  # the server has ended the epoch
        self._broken: ConvgradError | None = None
        self.thread = EventThread("convgrad-session")
        self._when_named = functools.partial(when_named, client, opened.target, self.thread)

    @property
    def number(self) -> int:
        """Number of the last change up to which all replies have arrived."""
        with self._condition:
            return self._acknowledged()

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def error(self) -> ConvgradError | None:
        """The error that ended the session; None while it is usable."""
        return self._broken

    @property
    def failures(self) -> int:
        """Number of epochs that ended with a failure reported to a caller."""
        return self._failures

    def submit(self, call: Call[Any], instead: Instead | None = None) -> Future[Any]:
        """Sends a change behind those submitted before. Blocks while the window is full.

        Copies the message, because a repeat may follow after the caller has gone on.

        `instead` returns the call to send if the server has refused this one; None: no other.
        Errors: in the future those of the call; here that of an ended session, and
        DeadlineExceeded if there is no room in time.
        """
        deadline = self._client.deadline_of(call)
        if call.message is not None:
            call = replace(call, message=joined(call.message))
        with self._condition:
            self._await_room(deadline)
            change = Change(call, self._next, deadline, instead)
            change.future.set_running_or_notify_cancel()
            self._next += 1
            self._pending[change.sequence] = change
        self._send(change)
        return change.future

    def begin_read(self) -> Read:
        """Returns a read that sees all changes submitted so far. end_read() must follow."""
        with self._condition:
            self.check_broken()
            read = Read(self._next - 1)
            self._reads.add(read)
            return read

    def end_read(self, read: Read) -> None:
        with self._condition:
            self._reads.discard(read)

    def flush(self) -> None:
        """Blocks until all changes so far have ended; at most 2 s for those that were given up.
        """
        with self._condition:
            changes = list(self._pending.values())
        concurrent.futures.wait([change.future for change in changes])
        self.settle()

    def settle(self) -> None:
        """Waits, for 2 s at most, until the outcome of each given-up change is known."""
        with self._condition:
            self._condition.wait_for(lambda: self._broken or not any(
                change.future.done() for change in self._pending.values()), 2)

    def stop(self, why: ConvgradError) -> None:
        """Fails the changes in flight, and all later calls, with `why`."""
        if not self._client.is_at_home:  # in a fork, the lock may be held forever
            return
        with self._condition:
            if self._broken is not None:
                return
            if isinstance(why, SessionExpired):
                why = lost_with_server(why, self._opened.target, self._opened_at,
                                       self._acknowledged())
            self._broken = why
            changes = list(self._pending.values())
            # Drops their messages; this must not acknowledge any of them.
            self._next = self._acknowledged() + 1
            self._pending.clear()
            self._condition.notify_all()
        self.thread.stop()
        for change in changes:
            change.fail(copy.copy(why))

    def _acknowledged(self) -> int:
        return min(self._pending, default=self._next) - 1

    def check_broken(self) -> None:
        """Raises the error that ended the session."""
        if self._broken is not None:
            raise copy.copy(self._broken)

    def _await_room(self, deadline: float | None) -> None:
        def has_room() -> bool:
            return self._broken is not None or not self._has_ended and (
                self._next - self._acknowledged() <= self._opened.answer.window)

        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        if not self._condition.wait_for(has_room, left):
            raise DeadlineExceeded("the deadline was over before the change was sent, behind "
                                   f"{len(self._pending)} others")
        self.check_broken()

    # The methods below run on the session's thread, except the first attempt of a change.

    def _send(self, change: Change) -> None:
        with self._condition:
            acknowledged = self._acknowledged()
        call, seconds = change.attempt(self._opened, self._epoch, acknowledged)
        try:
            rpc = self._client.start(call, seconds)
        except Cancelled as closed:
            self.stop(closed)
        else:
            rpc.add_done_callback(lambda rpc: self.thread.later(
                0, functools.partial(self._on_done, change, rpc)))

    def _on_done(self, change: Change, rpc: Any) -> None:
        if self._broken is not None:
            return
        if rpc.code() == grpc.StatusCode.OK:
            self._client.outages.end(self._opened.target)
            return self._commit(change, rpc.result())
        error, outcome = outcome_of(change, rpc)
        if error.reason:  # from the server itself
            self._client.outages.reached(self._opened.target)
        if outcome is Outcome.SESSION_ENDED:
            self.stop(error)
        elif outcome is Outcome.REPLY_LOST:
            change.fail(error)
            self._commit(change, None)
        elif outcome is Outcome.EPOCH_ENDED:
            self._end_epoch(change, None)
        elif outcome is Outcome.COMMITTED:
            self._commit(change, None)
        elif outcome is Outcome.REFUSED:
            self._end_epoch(change, error)
        elif outcome is Outcome.UNKNOWN:
            self._repeat(change, error)
        else:
            self._give_up(change, error)

    def _repeat(self, change: Change, error: ConvgradError) -> None:
        """Sends the same call again, unless the caller no longer waits or the server ended."""
        if self._client.retry.names_end(error):
            return self.stop(error)
        delay = max(self._client.retry.backoff(change.attempts),
                    error.pushback_seconds or 0)
        if change.is_void:
            if time.monotonic() - change.void_since > self._opened.answer.lease_seconds:
                return self.stop(SessionExpired(
                    "the server couldn't be reached for as long as the session's lease"))
        elif change.is_late_in(delay):
            return self._give_up(change, error, is_late=True)
        elif change.attempts >= self._client.retry.max_attempts:
            return self._give_up(change, error)
        self._note_repeat(change, error, delay)
        self.thread.later(delay, functools.partial(self._send, change))

    def _give_up(self, change: Change, error: ConvgradError, *, is_late: bool = False) -> None:
        """Fails the caller's future and then settles the change at the server.

        `error` is the last attempt's. If `is_late`, the caller gets a DeadlineExceeded that
        contains it.
        """
        if change.is_void:
            return self.stop(error)
        error = unreachable(error, self._opened.target, has_answered=True)

        def give_up() -> None:
            change.give_up(late_error(error) if is_late else error)
            self._send(change)

        self._when_named(error, give_up)

    def _note_repeat(self, change: Change, error: ConvgradError, delay: float) -> None:
        self._client.note_repeat(f"change {change.sequence} of a session", self._opened.target,
                                 error, change.attempts, delay, change.deadline)

    def _commit(self, change: Change, response: Response | None) -> None:
        with self._condition:
            if self._pending.pop(change.sequence, None) is None:  # stopped meanwhile
                return
            self._condition.notify_all()
        if response is not None:
            change.succeed(response)
        self._recover_if_settled()

    def _end_epoch(self, change: Change, error: ConvgradError | None) -> None:
        with self._condition:
            change.is_over, change.error = True, error
            self._has_ended = True
        self._recover_if_settled()

    def _recover_if_settled(self) -> None:
        """Begins the next epoch once the outcome of every change of the last one is known."""
        with self._condition:
            changes = [self._pending[i] for i in sorted(self._pending)]
            if not self._has_ended or not all(change.is_over for change in changes):
                return
            self._epoch += 1
            first = changes[0]
        delay = self._delay_after(first)
        if delay is None:
            self._when_named(first.error, functools.partial(self._fail, changes))
            return
        for change in changes:
            change.begin_again()
            self.thread.later(delay, functools.partial(self._send, change))
        with self._condition:
            self._has_ended = False
            self._condition.notify_all()

    def _delay_after(self, change: Change) -> float | None:
        """Returns the delay after which the change that ended its epoch is repeated; None:
        never."""
        if change.is_void:
            return None
        if change.error is None:  # the reply with the reason was lost
            delay: float | None = self._client.retry.backoff(change.attempts)
        else:
            other = change.instead(change.error) if change.instead else None
            if other is not None:
                change.call, change.instead = other, None
                return 0.0
            delay = self._client.retry.delay(change.error, change.attempts)
        if delay is None or change.is_late_in(delay):
            return None
        if change.error is not None:
            self._note_repeat(change, change.error, delay)
        return delay

    def _fail(self, changes: list[Change]) -> None:
        """Fails the first of the changes with its error, and the others with EpochEnded."""
        first = changes[0]
        with self._condition:
            self._pending.clear()
            self._next = first.sequence
            self._has_ended = False
            self._failures += 1
            lost = [read for read in self._reads if read.after >= first.sequence]
            self._condition.notify_all()
        for read in lost:
            read.lose()
        first.fail(first.error or DeadlineExceeded(
            "the deadline was over before the change was repeated"))
        why = first.future.exception()
        for change in changes[1:]:
            change.fail(EpochEnded(f"change {change.sequence} came behind change "
                                   f"{first.sequence}, which failed: {why}"))
