"""A thread that does one thing after the other, some of them later."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable

_LOG = logging.getLogger("convgrad")

Event = Callable[[], None]


class EventThread:
    """A daemon thread. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._events: queue.SimpleQueue[tuple[float, Event] | None] = queue.SimpleQueue()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def later(self, seconds: float, event: Event) -> None:
        """Has the thread do it in so many seconds, unless it was stopped."""
        # What nobody would do isn't kept: it may refer to a user's objects.
        if self._is_stopped:
            return
        self._events.put((time.monotonic() + seconds, event))

    def stop(self) -> None:
        """Ends the thread when it has done what it does now."""
        self._is_stopped = True
        self._events.put(None)

    def _drop(self) -> None:
        """Drops what came while the thread was stopped."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._events.get_nowait()

    def _run(self) -> None:
        due: list[tuple[float, int, Event]] = []
        order = itertools.count()
        while True:
            try:
                wait = max(due[0][0] - time.monotonic(), 0) if due else None
                added = self._events.get(timeout=wait)
                if added is None:
                    return self._drop()
                heapq.heappush(due, (added[0], next(order), added[1]))
                continue
            except queue.Empty:
                added, event = None, heapq.heappop(due)[2]
            # Outside the handler: errors that the event keeps must not have Empty as context.
            try:
                event()
            except Exception:
                _LOG.exception("a session's thread goes on")
            # What it refers to isn't kept until the next event comes.
            del event, added
