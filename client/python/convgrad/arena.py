"""Allocates pieces of a span of bytes."""

from __future__ import annotations

import bisect
import threading
from collections import deque

# The alignment at which the server uses a tensor without a copy (tensor.proto).
_ALIGNMENT = 64


def rounded(size: int) -> int:
    """Returns how many bytes a piece of `size` takes."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class Arena:
    """Allocates pieces of a span of bytes: the first free range that is large enough.

    Thread-safe; a garbage collector may call give_back() at any point.
    """

    def __init__(self, size: int) -> None:
        # A rest smaller than the alignment at the end can't be allocated.
        self._free = [(0, size // _ALIGNMENT * _ALIGNMENT)]
        self._returned: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()

    def take(self, size: int) -> int | None:
        """Returns the offset of a new piece; None if no free range is large enough."""
        size = rounded(size)
        with self._lock:
            self._gather()
            for i, (begin, end) in enumerate(self._free):
                if end - begin >= size:
                    self._free[i:i + 1] = [(begin + size, end)] if end - begin > size else []
                    return begin
        return None

    def give_back(self, begin: int, size: int) -> None:
        """Frees a piece, `size` rounded. Never blocks."""
        self._returned.append((begin, begin + size))

    def largest(self) -> int:
        """Returns the size of the largest free range."""
        with self._lock:
            self._gather()
            return max((end - begin for begin, end in self._free), default=0)

    def _gather(self) -> None:
        """Merges freed pieces with adjacent free ranges."""
        while self._returned:
            begin, end = self._returned.popleft()
            at = bisect.bisect(self._free, (begin, end))
            if at < len(self._free) and self._free[at][0] == end:
                end = self._free.pop(at)[1]
            if at > 0 and self._free[at - 1][1] == begin:
                at -= 1
                begin = self._free.pop(at)[0]
            self._free.insert(at, (begin, end))
