"""Repeats a durable session's changes on a server that was started again."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from typing import Any

from convgrad.caller import Caller
from convgrad.errors import (
    ConvgradError,
    DeadlineExceeded,
    SessionRestored,
    SessionTakenOver,
)
from convgrad.moving.machine import tell_differences
from convgrad.requests import Call, session_call
from convgrad.sessions.asking import ask_again
from convgrad.sessions.attempts import DURABLE_TRAILER, Change, Opened, Read, number_of
from convgrad.sessions.changes import Changes
from convgrad.sessions.recorder import Recorder
from convgrad.sessions.replay import Replay
from convgrad.v1 import session_pb2

_LOG = logging.getLogger("convgrad")

# The server may have to read a whole session from its disk, or write one.
_DISK_SECONDS = 600.0
# Pause of a read that came too early.
_AGAIN_SECONDS = 0.05


def save_state_call(changes: DurableChanges | None, name: str = "",
                    **settings: Any) -> Call[int]:
    """Returns a call that answers with the durable number, which `changes` notes."""
    def decode(response: bytes) -> int:
        number = session_pb2.SaveStateResponse.FromString(response).number
        if changes is not None:
            changes.note_durable(number)
        return number

    return session_call("SaveState", session_pb2.SaveStateRequest(name=name), decode,
                        **settings)


class DurableChanges(Changes):
    """Does the same as Changes, and keeps what a restart of the server would lose.

    If the server was started again, it has the session as of its durable number. This class
    then resumes the session and repeats the changes after that number, in their order and with
    their call ids. It drops replies whose caller has them already.
    """

    def __init__(self, client: Caller, opened: Opened, recorder: Recorder | None,
                 replay_bytes: int) -> None:
        super().__init__(client, opened, recorder)
        self.replay = Replay(opened.answer.durable_number, replay_bytes)
        self._keeps_calls = True

    def note_durable(self, number: int) -> None:
        """Drops the changes up to `number`, which the server has on disk."""
        with self._condition:
            self.replay.note_durable(number)

    def recovers(self, error: ConvgradError, read: Read, deadline: float | None) -> bool:
        is_restored = isinstance(error, SessionRestored)
        if not is_restored and error.reason != "OUT_OF_ORDER":  # far ahead of those repeated
            return False
        read.is_noticed = not is_restored
        if is_restored:
            self.thread.later(0, functools.partial(self._notice, read))
        left = None if deadline is None else deadline - time.monotonic()
        with self._condition:
            found = self._condition.wait_for(
                lambda: self.error is not None or read.is_lost
                or read.is_noticed and not self._is_restoring
                and self._pending.acknowledged >= read.after, left)
            self.check_broken()
            read.restores = self._restores
        if not found:
            raise DeadlineExceeded("the deadline was over before the session was restored")
        time.sleep(0 if is_restored else _AGAIN_SECONDS)
        return True

    def _has_room(self) -> bool:
        return not (self._is_restoring or self._pending.is_repeating
                    or self.replay.is_full) and super()._has_room()

    def _note_answer(self, rpc: Any) -> None:
        number = number_of(rpc, DURABLE_TRAILER)
        if number is not None and number > self.replay.durable_number:
            self.note_durable(number)

    def _note_committed(self, change: Change) -> None:
        self.replay.add(change)

    def _commit(self, change: Change, response: Any) -> None:
        super()._commit(change, response)
        self._send_waiting()
        if self.replay.needs_snapshot and self.error is None:
            self.replay.begin_saving()
            self._save()

    def _save(self) -> None:
        """Asks for a snapshot."""
        def answered(_: int | None, error: ConvgradError | None) -> None:
            with self._condition:
                self.replay.end_saving(error)
                self._condition.notify_all()

        with self._condition:
            newest = self.replay.newest
        # The request names the newest change that is kept. A server that was started again
        # lacks this change, and refuses the request instead of saving its older state.
        call = save_state_call(
            self, target=self._opened.target,
            metadata=(("convgrad-session-bin", self._opened.answer.session_id),
                      ("convgrad-session-after", str(newest))))
        ask_again(self._client, self.thread, call, _DISK_SECONDS, answered)

    def _send_waiting(self) -> None:
        """Sends changes that waited for those before them to be repeated."""
        with self._condition:
            begun = [] if self._has_ended else self._pending.begin_waiting()
            if begun:
                self._condition.notify_all()
        for change in begun:
            self._send(change, self._restores)

    def _fail(self, first: Change, restores: int) -> None:
        repeated = [one for one in self._pending.all() if one.is_repeat]
        if restores == self._restores and repeated:
            return self.stop(SessionRestored(
                f"change {first.sequence}, which the client repeated after a restart of the "
                f"server, failed: {first.error}; change {repeated[-1].sequence} had been "
                "committed before it"))
        super()._fail(first, restores)

    def _notice(self, read: Read) -> None:
        """Restores the session if that wasn't done since the read began."""
        if read.restores == self._restores and not self._is_restoring:
            self._restore()
        with self._condition:
            read.is_noticed = True
            self._condition.notify_all()

    def _restore(self, error: ConvgradError | None = None) -> None:
        with self._condition:
            # From now on, the outcomes of earlier attempts don't count.
            self._restores += 1
            self._is_restoring = True
        # A repeat of the call finds the session resumed by the attempt before.
        request = session_pb2.ResumeSessionRequest(
            session_id=self._opened.answer.session_id, epoch=self.epoch,
            call_id=os.urandom(16))
        call = session_call("ResumeSession", request, session_pb2.SessionResponse.FromString,
                            target=self._opened.target)
        ask_again(self._client, self.thread, call, _DISK_SECONDS, lambda answer, failed: (
            self._repeat_all(answer) if failed is None else self.stop(failed)))

    def _repeat_all(self, answer: Any) -> None:
        """Sends all changes again that the restored session lacks, or whose reply is missing.
        """
        try:
            with self._condition:
                changes = self.replay.since(answer.number, self._pending)
                self.replay.note_durable(answer.durable_number)
                self._pending.repeat(changes)
                self.epoch = answer.epoch
                self._has_ended = self._is_restoring = False
                self._condition.notify_all()
        except (SessionRestored, SessionTakenOver) as error:
            return self.stop(error)
        self._client.outages.end(self._opened.target)
        _LOG.warning("the server at %s was started again; it has the session as of change %d, "
                     "and the client repeats %d changes", self._opened.target, answer.number,
                     len(changes))
        with contextlib.suppress(UserWarning):  # an error must not stop the session's thread
            tell_differences(answer.differences)
        self._send_waiting()
