"""Numbers a session's changes and holds those whose outcome isn't known."""

from __future__ import annotations

import collections
from collections.abc import Iterable

from convgrad.sessions.attempts import Change

# Number of changes that are repeated at once after a restart of the server.
_REPEATED_AT_ONCE = 8


class Pending:
    """Changes in the order of their numbers. The lock of `Changes` guards it.

    Each change is in flight, or waits until the changes before it have been repeated.
    """

    def __init__(self, first: int) -> None:
        self.next = first
        """Number of the next new change."""
        self._in_flight: dict[int, Change] = {}
        self._waiting: collections.deque[Change] = collections.deque()

    @property
    def acknowledged(self) -> int:
        """Number of the last change up to which all outcomes are known."""
        first = self._waiting[0].sequence if self._waiting else self.next
        return min(self._in_flight, default=first) - 1

    @property
    def answered(self) -> int:
        """Does the same, but counts repeated changes whose caller has the reply."""
        return min((change.sequence for change in self.all() if not change.is_repeat),
                   default=self.next) - 1

    @property
    def is_repeating(self) -> bool:
        """Whether changes wait that were sent before the server's restart."""
        return bool(self._waiting)

    def __contains__(self, change: Change) -> bool:
        return self._in_flight.get(change.sequence) is change

    @property
    def are_known(self) -> bool:
        """Whether the callers of all changes know their outcomes, or that they are unknown."""
        return all(change.future.done() for change in self.all())

    def move(self, change: Change) -> None:
        """Gives the change the next number."""
        change.sequence = self.next
        self._in_flight[change.sequence] = change
        self.next += 1

    def remove(self, change: Change) -> bool:
        """Removes a change whose outcome is known. Returns whether it was in flight."""
        return self._in_flight.pop(change.sequence, None) is not None

    def in_flight(self) -> list[Change]:
        return [self._in_flight[number] for number in sorted(self._in_flight)]

    def all(self) -> list[Change]:
        """Returns the changes in flight and those that wait."""
        return [*self.in_flight(), *self._waiting]

    def clear(self, following: int) -> None:
        """Removes all changes. The next new change gets the number `following`."""
        self._in_flight.clear()
        self._waiting.clear()
        self.next = following

    def repeat(self, changes: Iterable[Change]) -> None:
        """Replaces all changes by these, which wait. The next number stays."""
        self._in_flight.clear()
        self._waiting = collections.deque(changes)

    def begin_waiting(self) -> list[Change]:
        """Returns waiting changes that may be sent now; they are in flight from then on."""
        begun = []
        while self._waiting and len(self._in_flight) < _REPEATED_AT_ONCE:
            change = self._waiting.popleft()
            self._in_flight[change.sequence] = change
            begun.append(change)
        return begun
