"""Checks that only the process that connected uses connections: a fork copies gRPC's memory,
but not its threads."""

from __future__ import annotations

import os

from convgrad.errors import FailedPrecondition


class Home:
    """The process that has connected. Thread-safe."""

    def __init__(self) -> None:
        self._pid: int | None = None

    @property
    def is_here(self) -> bool:
        """Returns whether this process has connected, or none has."""
        return self._pid in (None, os.getpid())

    def settle(self) -> None:
        """Makes this process the home if there is none yet.

        Errors: as check().
        """
        self._pid = self._pid or os.getpid()
        self.check()

    def check(self) -> None:
        """Raises FailedPrecondition in a process that was forked after the connection."""
        if not self.is_here:
            raise FailedPrecondition.of(
                "client", f"process {os.getpid()}, forked from process {self._pid}, which has "
                "connected to a server",
                "a process that was spawned, or forked before the first call")
