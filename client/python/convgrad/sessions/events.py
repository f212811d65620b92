"""A thread that does one thing after the other, some of them later."""

from __future__ import annotations

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
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def later(self, seconds: float, event: Event) -> None:
        """Has the thread do it in so many seconds."""
        self._events.put((time.monotonic() + seconds, event))

    def stop(self) -> None:
        """Ends the thread when it has done what it does now."""
        self._events.put(None)

    def _run(self) -> None:
        due: list[tuple[float, int, Event]] = []
        order = itertools.count()
        while True:
            try:
                wait = max(due[0][0] - time.monotonic(), 0) if due else None
                added = self._events.get(timeout=wait)
                if added is None:
                    return
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
