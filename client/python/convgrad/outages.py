"""Warns once where calls wait for a server that is away or full."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

import grpc

from convgrad.errors import ConvgradError, unreachable

_LOG = logging.getLogger("convgrad")

# A wait that is shorter isn't worth a warning.
_SILENT_SECONDS = 2.0
# A first attempt that fails so soon after another failure belongs to the same outage.
_GAP_SECONDS = 5.0


@dataclass
class _Outage:
    since: float
    until: float
    """When the next attempt is due, and some seconds more."""
    is_said: bool = False


class Outages:
    """Knows which servers don't answer, and which are full. Thread-safe.

    Each outage is one warning of the `convgrad` logger, after two seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[str, bool], _Outage] = {}

    def note(self, target: str, error: ConvgradError, attempts: int, delay: float,
             left: float, *, has_answered: bool) -> None:
        """Notes that an attempt at `target` failed.

        The next attempt comes in `delay` seconds; the call is given up in about `left` seconds.
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
        """Notes that the target has answered a call: it is neither away nor full."""
        if self._open:
            with self._lock:
                for is_full in (False, True):
                    self._open.pop((target, is_full), None)

    def reached(self, target: str) -> None:
        """Notes that the target has answered, if only by a refusal."""
        if self._open:
            with self._lock:
                self._open.pop((target, False), None)

    def is_away(self, target: str) -> bool:
        """Returns whether the target has just failed to answer, and hasn't answered since."""
        with self._lock:
            outage = self._open.get((target, False))
        return outage is not None and time.monotonic() < outage.until
