"""Sends a session's changes, in order and each exactly once.

proto/convgrad/v1/session.proto defines the protocol. One thread per session receives the
outcome of each attempt and decides what follows.
"""

from __future__ import annotations

import functools
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import grpc

from convgrad.errors import (
    Cancelled,
    ConvgradError,
    EpochEnded,
    SessionExpired,
    unreachable,
)
from convgrad.requests import Call
from convgrad.sessions.asking import not_started, when_named
from convgrad.sessions.attempts import Change, Read
from convgrad.sessions.change_queue import ChangeQueue
from convgrad.sessions.outcomes import Outcome, delay_after, late_error, outcome_of
from convgrad.wire import Response, joined


class Changes(ChangeQueue):
    """Sends changes, and repeats those with an unknown outcome. Thread-safe.

    Its methods run on the session's thread, except submit() and the first attempt of a change.
    """

    def submit(self, call: Call[Any], kept: Call[Any] | None = None) -> Future[Any]:
        """Sends a change behind those submitted before. Blocks while the window is full.

        Copies the message, because a repeat may follow after the caller has gone on.

        `kept` is the same call with its own bytes, as of forms_of().
        Errors: in the future those of the call; here that of an ended session, and
        DeadlineExceeded if there is no room in time.
        """
        deadline = self._client.deadline_of(call)
        if call.message is not None:
            call = replace(call, message=joined(call.message))
        change = None
        try:
            with self._condition:
                self._await_room(deadline)
                restores = self._restores
                change = Change(call, self._pending.next, deadline, kept,
                                is_fresh=self._pending.are_known)
                change.future.set_running_or_notify_cancel()
                self._pending.move(change)
            self._send(change, restores)
        except BaseException as error:  # Ctrl-C, perhaps just before _send() began
            if change is not None and not change.future.done():
                self._lose(change, error, restores)
            raise
        return change.future

    def _send(self, change: Change, restores: int) -> None:
        """Sends the change, unless the session was restored since."""
        with self._condition:
            if restores != self._restores or change not in self._pending:
                return
            acknowledged, epoch = self._pending.acknowledged, self.epoch
        try:
            call, seconds = change.attempt(self._opened, epoch, acknowledged)
            attempt = change.attempts
            rpc = self._client.start(call, seconds)
            rpc.add_done_callback(lambda rpc: self.thread.later(
                0, functools.partial(self._on_done, change, rpc, restores, attempt)))
        except Cancelled as closed:
            self.stop(closed)
        except BaseException as error:  # such as one of the user's function for the token
            self._lose(change, error, restores)
            if not isinstance(error, Exception):
                raise

    def _lose(self, change: Change, error: BaseException, restores: int) -> None:
        """Settles a change whose attempt may or may not have been started."""
        self.thread.later(0, functools.partial(self._on_unsent, change, error, restores))
        if not isinstance(error, Exception):  # Ctrl-C
            change.fail(error)  # so that the caller's next change doesn't depend on it

    def _send_later(self, change: Change, delay: float) -> None:
        self.thread.later(delay, functools.partial(self._send, change, self._restores))

    def _on_unsent(self, change: Change, error: BaseException, restores: int) -> None:
        """Fails a change whose attempt wasn't started, or was while Ctrl-C came, and settles it
        at the server."""
        with self._condition:
            is_settled = change not in self._pending
        if is_settled or self.error is not None or restores != self._restores:
            return
        if change.is_void or change.is_repeat:
            return self._repeat(change, not_started(error))
        change.give_up(error)
        if not change.is_over:
            self._send(change, restores)

    def _on_done(self, change: Change, rpc: Any, restores: int, attempt: int) -> None:
        self._note_answer(rpc)
        if self.error is not None or restores != self._restores or attempt != change.attempts:
            return  # a later attempt finds the outcome
        if rpc.code() == grpc.StatusCode.OK:
            self._client.outages.end(self._opened.target)
            return self._commit(change, rpc.result())
        error, outcome = outcome_of(change, rpc)
        if error.reason:  # from the server itself
            self._client.outages.reached(self._opened.target)
        if outcome is Outcome.SESSION_ENDED:
            self.stop(error)
        elif outcome is Outcome.RESTORED:
            self._restore(error)
        elif outcome is Outcome.COMMITTED:
            change.fail(error)  # unless its caller has an error already
            self._commit(change, None)
        elif outcome is Outcome.EPOCH_ENDED:
            self._end_epoch(change, None)
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
            seconds = time.monotonic() - change.void_since
            if not self._opened.answer.durable and seconds > self._opened.answer.lease_seconds:
                return self.stop(SessionExpired(
                    "the server couldn't be reached for as long as the session's lease: "
                    f"{error.message}"))
        elif change.is_late_in(delay):
            return self._give_up(change, error, is_late=True)
        elif change.attempts >= self._client.retry.max_attempts:
            return self._give_up(change, error)
        self._note_repeat(change, error, delay)
        self._send_later(change, delay)

    def _give_up(self, change: Change, error: ConvgradError, *, is_late: bool = False) -> None:
        """Fails the caller's future and then settles the change at the server.

        `error` is the last attempt's. If `is_late`, the caller gets a DeadlineExceeded that
        contains it.
        """
        if change.is_void or change.is_repeat:
            return self.stop(error)
        error = unreachable(error, self._opened.target, has_answered=True)
        restores = self._restores

        def give_up() -> None:
            if restores == self._restores:
                change.give_up(late_error(error) if is_late else error)
                self._send(change, restores)

        when_named(self._client, self._opened.target, self.thread, error, give_up)

    def _note_repeat(self, change: Change, error: ConvgradError, delay: float) -> None:
        self._client.note_repeat(f"change {change.sequence} of a session", self._opened.target,
                                 error, change.attempts, delay, change.deadline)

    def _commit(self, change: Change, response: Response | None) -> None:
        with self._condition:
            if not self._pending.remove(change):  # stopped meanwhile
                return
            self._note_committed(change)
            self._condition.notify_all()
        if self._recorder is not None:
            response = self._recorder.note(change, response)
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
            changes = self._pending.in_flight()
            if not self._has_ended or not all(change.is_over for change in changes):
                return
            self.epoch += 1
            first = changes[0]
        delay = delay_after(first, self._client.retry)
        if delay is None:
            return when_named(self._client, self._opened.target, self.thread, first.error,
                              functools.partial(self._fail, first, self._restores))
        if first.is_late_in(delay):  # it was committed, so it is repeated without its caller
            first.give_up(late_error(first.error))
        if first.error is not None and delay > 0:
            self._note_repeat(first, first.error, delay)
        for change in changes:
            change.begin_again()
            self._send_later(change, delay)
        with self._condition:
            self._has_ended = False
            self._condition.notify_all()

    def _fail(self, first: Change, restores: int) -> None:
        """Fails the first of the changes with its error, and those behind it with EpochEnded.

        What was submitted after the callers of all these knew of the failure goes on.
        """
        with self._condition:
            if restores != self._restores:
                return
            reads = [read for read in self._reads if read.after >= first.sequence]
            changes, kept = self._split(first, reads)
            self.failures += 1
            self._has_ended = False
            self._condition.notify_all()
        for read in reads:
            read.cancel()
        for change in kept:
            self._send(change, restores)
        first.fail(first.error or late_error(None))
        why = first.future.exception()
        for change in changes[1:]:
            change.fail(EpochEnded(f"change {change.sequence} came behind change "
                                   f"{first.sequence}, which failed: {why}"))

    def _split(self, first: Change, reads: list[Read]) -> tuple[list[Change], list[Change]]:
        """Returns the changes that fail with the first one, and those that go on in its place
        and behind it. Moves the reads. Requires: the lock is held."""
        changes = self._pending.all()
        end = next((i for i, one in enumerate(changes) if i > 0 and one.is_fresh),
                   len(changes))
        changes, kept = changes[:end], changes[end:]
        numbers = [one.sequence for one in kept]
        for read in reads:
            goes_on = read.is_fresh or numbers and read.after >= numbers[0]
            read.move(first.sequence - 1 + sum(one <= read.after for one in numbers)
                      if goes_on else None)
        self._pending.clear(first.sequence)
        for change in kept:
            change.begin_again()
            self._pending.move(change)
        return changes, kept

    # A durable session overrides these.

    def _note_answer(self, rpc: Any) -> None:
        """Sees each answer of the server to a change."""

    def _note_committed(self, change: Change) -> None:
        """Sees each change that is committed, with the lock held."""

    def _restore(self, error: ConvgradError) -> None:
        """Handles the error of a change that says that the server was started again."""
        self.stop(error)
