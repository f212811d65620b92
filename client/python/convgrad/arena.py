"""Which bytes of a span are in use."""

from __future__ import annotations

import bisect
import threading
from collections import deque

# What a tensor's bytes are aligned to, to be used without a copy (tensor.proto).
_ALIGNMENT = 64


def rounded(size: int) -> int:
    """Returns how many bytes a piece of `size` takes."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class Arena:
    """Hands out pieces of a span of bytes: the first that is free and large enough.

    Thread-safe; give_back() may be called by a garbage collector anywhere.
    """

    def __init__(self, size: int) -> None:
        # The end may cut the last piece's rounding off, where nobody can take it.
        self._free = [(0, size // _ALIGNMENT * _ALIGNMENT)]
        self._returned: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()

    def take(self, size: int) -> int | None:
        """Returns where a piece begins, None if none is so large."""
        size = rounded(size)
        with self._lock:
            self._gather()
            for i, (begin, end) in enumerate(self._free):
                if end - begin >= size:
                    self._free[i:i + 1] = [(begin + size, end)] if end - begin > size else []
                    return begin
        return None

    def give_back(self, begin: int, size: int) -> None:
        """Takes back a piece, `size` rounded. Waits for nothing."""
        self._returned.append((begin, begin + size))

    def largest(self) -> int:
        """Returns the size of the largest piece that is free."""
        with self._lock:
            self._gather()
            return max((end - begin for begin, end in self._free), default=0)

    def _gather(self) -> None:
        """Joins what came back with what is free beside it."""
        while self._returned:
            begin, end = self._returned.popleft()
            at = bisect.bisect(self._free, (begin, end))
            if at < len(self._free) and self._free[at][0] == end:
                end = self._free.pop(at)[1]
            if at > 0 and self._free[at - 1][1] == begin:
                at -= 1
                begin = self._free.pop(at)[0]
            self._free.insert(at, (begin, end))
