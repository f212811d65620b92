"""Decides whether and when a failed call is repeated.

gRPC itself never repeats a request larger than 256 KiB, whatever its service config says. A
repeat is safe because every operation is a pure function of its request.
"""

from __future__ import annotations

import numbers
import random
import time
from dataclasses import dataclass, field

import grpc

from convgrad.errors import ConvgradError, DeadlineExceeded, invalid, is_silent

# Statuses of calls whose server stops or can't be reached.
IS_GOING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


@dataclass
class Attempts:
    """Counts the attempts of one call. Owned by the thread or task that sends the call."""

    deadline: float | None
    """A time.monotonic(); None if the call has none."""
    count: int = 0
    silent_seconds: float = 0.0
    """Time of the attempts that waited for a peer that didn't answer."""
    last: ConvgradError | None = None
    """The error of the attempt before."""
    _began: float = field(default=0.0, repr=False)

    def begin(self) -> None:
        self.count += 1
        self._began = time.monotonic()

    def seconds_left(self) -> float | None:
        """Returns the seconds left for an attempt; None: any number. Raises DeadlineExceeded,
        or the error of the attempt before, if none are left."""
        if self.deadline is None:
            return None
        seconds = self.deadline - time.monotonic()
        if seconds > 0:
            return seconds
        # gRPC may complete a call even if its deadline is now.
        raise self.last or DeadlineExceeded("the deadline was over before the call was sent")

    def end(self, error: ConvgradError) -> None:
        """Records that the attempt ended with `error`."""
        error.attempts = self.count
        if is_silent(error):
            self.silent_seconds += time.monotonic() - self._began


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with jitter, within the call's timeout.

    The defaults outlast a server restart of about 30 s. `max_attempts=1` disables repeats.
    """

    max_attempts: int = 20
    initial_seconds: float = 0.05
    multiplier: float = 2.0
    max_seconds: float = 2.0
    jitter: float = 0.25
    """Largest random share that lengthens a wait, so that clients don't retry together."""

    def __post_init__(self) -> None:
        if not isinstance(self.max_attempts, numbers.Integral) or self.max_attempts < 1:
            raise invalid("OUT_OF_RANGE", "retry.max_attempts", self.max_attempts,
                          "an integer of at least 1")
        for name in ("initial_seconds", "multiplier", "max_seconds", "jitter"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Real) or not value >= 0:
                raise invalid("OUT_OF_RANGE", f"retry.{name}", value, "a number of at least 0")

    def delay(self, error: ConvgradError, attempts: int) -> float | None:
        """Returns the seconds until the next attempt; None if there is none.

        A stopping server ends calls with CANCELLED that arrive before the client has read
        GOAWAY (gRPC 1.51). Requires: the caller didn't cancel the call.
        """
        if self.names_end(error) or attempts >= self.max_attempts:
            return None
        backoff = self.backoff(attempts)
        if error.code == grpc.StatusCode.RESOURCE_EXHAUSTED:
            if error.pushback_seconds is None:
                return None
            backoff = max(backoff, error.pushback_seconds)
        elif error.code not in IS_GOING:
            return None
        return backoff * (1 + random.uniform(0, self.jitter))

    def names_end(self, error: ConvgradError) -> bool:
        """Returns whether the server has ended for good, and says so in `error`."""
        return False

    def backoff(self, attempts: int) -> float:
        """Returns the seconds to wait after `attempts` attempts, without jitter."""
        grown = self.initial_seconds * self.multiplier ** min(attempts - 1, 32)
        return min(grown, self.max_seconds)

    def seconds_left(self, error: ConvgradError, attempts: int) -> float:
        """Returns for about how many seconds a call that fails with `error` is repeated."""
        least = error.pushback_seconds or 0.0
        return sum(max(self.backoff(n), least) for n in range(attempts, self.max_attempts))
