"""Runs a read of a session behind the changes that it must see."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TypeVar

import grpc

from convgrad.caller import Caller
from convgrad.errors import ConvgradError, EpochEnded, SessionExpired
from convgrad.requests import Call
from convgrad.sessions.attempts import Opened, Read
from convgrad.sessions.changes import Changes

R = TypeVar("R")


def run_read(client: Caller, opened: Opened, changes: Changes, call: Call[R],
             read: Read) -> R:
    """Sends the call and waits for its result. `read` is from changes.begin_read().

    Errors: EpochEnded if a change has failed that the call had to see.
    """
    deadline = client.deadline_of(call)
    while True:
        read.is_moved = False
        after = read.after
        placed = replace(
            call, target=opened.target, metadata=(
                ("convgrad-session-bin", opened.answer.session_id),
                ("convgrad-session-after", str(after))),
            on_start=read.begin if after > changes.number else None)
        if deadline is not None:
            left = deadline - time.monotonic()
            placed = replace(placed, options={**call.options, "timeout": left})
        try:
            result = client.run(placed)
            if not read.is_lost:
                return result
        except ConvgradError as error:
            is_early = error.code == grpc.StatusCode.ABORTED and (
                deadline is None or time.monotonic() < deadline)
            if isinstance(error, SessionExpired):
                changes.stop(error)
                changes.check_broken()
            if not (read.is_lost or read.is_moved or is_early
                    or changes.recovers(error, read, deadline)):
                raise
        if read.is_lost:
            raise EpochEnded("a change failed that this call was to see")
