"""Has the rules for shapes of a program's values. An extent may depend on the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MOST_AXES = 6
"""Of a program's value."""


def padded(shape: Sequence[Any], rank: int = 2) -> tuple[Any, ...]:
    """Returns the shape with leading ones up to `rank`; a program's value has two axes at
    least."""
    return (*[1] * (rank - len(shape)), *shape)


def axis_of(rank: int, axis: int) -> int:
    """Returns the axis of padded() of a shape of this rank."""
    return axis % max(rank, 1) + max(2 - rank, 0)


def broadcast(x: Sequence[Any], y: Sequence[Any]) -> tuple[Any, ...] | None:
    """Returns the shape to which these shapes are broadcast; None if they don't fit."""
    rank = max(len(x), len(y))
    pairs = list(zip(padded(x, rank), padded(y, rank)))
    if any(m not in (1, n) and n != 1 for m, n in pairs):
        return None
    return tuple(n if m == 1 else m for m, n in pairs)
