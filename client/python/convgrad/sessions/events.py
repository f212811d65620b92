"""Runs a thread that handles events one after the other, at given times."""

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
    """A daemon thread that calls events. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._events: queue.SimpleQueue[tuple[float, Event] | None] = queue.SimpleQueue()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def later(self, seconds: float, event: Event) -> None:
        """Calls `event` on the thread in `seconds`, unless the thread was stopped."""
        # Don't keep an event that won't run, because it may refer to a user's objects.
        if self._is_stopped:
            return
        self._events.put((time.monotonic() + seconds, event))

    def stop(self) -> None:
        """Ends the thread after the current event."""
        self._is_stopped = True
        self._events.put(None)

    def _run(self) -> None:
        due: list[tuple[float, int, Event]] = []
        order = itertools.count()
        while True:
            try:
                wait = max(due[0][0] - time.monotonic(), 0) if due else None
                added = self._events.get(timeout=wait)
                if added is None:
                    # Drops events that arrived while the thread was being stopped.
                    self._events = queue.SimpleQueue()
                    return
                heapq.heappush(due, (added[0], next(order), added[1]))
                continue
            except queue.Empty:
                added, event = None, heapq.heappop(due)[2]
            # Outside the handler: errors that the event keeps must not have Empty as context.
            try:
                event()
            except BaseException:  # such as SystemExit in a callback of the user's
                _LOG.exception("a session's thread goes on")
            # Don't keep the event's objects until the next event.
            del event, added
