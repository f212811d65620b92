"""Warns once if calls wait for a server that is unreachable or full."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

import grpc

from convgrad.errors import ConvgradError, unreachable

_LOG = logging.getLogger("convgrad")

# Shorter waits aren't worth a warning.
_SILENT_SECONDS = 2.0
# A first attempt that fails within this time after another failure belongs to its outage.
_GAP_SECONDS = 5.0


@dataclass
class _Outage:
    since: float
    until: float
    """Time of the next attempt, plus _GAP_SECONDS."""
    is_said: bool = False


class Outages:
    """Tracks which servers are unreachable and which are full. Thread-safe.

    Logs one warning per outage to the logger `convgrad`, after two seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[str, bool], _Outage] = {}

    def note(self, target: str, error: ConvgradError, attempts: int, delay: float,
             left: float, *, has_answered: bool) -> None:
        """Records that an attempt at `target` failed.

        The next attempt comes in `delay` seconds; the caller gives up in about `left` seconds.
        `has_answered` says whether the target has ever answered.
        """
        is_full = error.code == grpc.StatusCode.RESOURCE_EXHAUSTED
        now = time.monotonic()
        with self._lock:
            outage = self._open.get((target, is_full))
            if outage is None or attempts == 1 and now > outage.until:
                outage = self._open[target, is_full] = _Outage(now, now)
            outage.until = max(outage.until, now + delay + _GAP_SECONDS)
            if outage.is_said or now + delay - outage.since < _SILENT_SECONDS:
                return
            outage.is_said = True
        words = (f"the server at {target} is full: {error.message}" if is_full
                 else unreachable(error, target, has_answered).message)
        if left >= 1:
            words += f"; trying again for about {left:.0f} s"
        _LOG.warning("%s", words)

    def end(self, target: str) -> None:
        """Records that a call at the target succeeded: it is neither unreachable nor full."""
        if self._open:
            with self._lock:
                for is_full in (False, True):
                    self._open.pop((target, is_full), None)

    def reached(self, target: str) -> None:
        """Records that the target has answered, possibly with an error."""
        if self._open:
            with self._lock:
                self._open.pop((target, False), None)

    def is_away(self, target: str) -> bool:
        """Returns whether the last attempt at the target failed recently without an answer."""
        with self._lock:
            outage = self._open.get((target, False))
        return outage is not None and time.monotonic() < outage.until
