"""Has the rules for shapes of a program's values. An extent may depend on the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MOST_AXES = 6
"""Most axes of a program's value."""


def padded(shape: Sequence[Any], rank: int = 2) -> tuple[Any, ...]:
    """Returns the shape with leading ones up to `rank`; a program's value has two axes at
    least."""
    return (*[1] * (rank - len(shape)), *shape)


def axis_of(rank: int, axis: int) -> int:
    """Returns the axis of padded() of a shape of this rank."""
    return axis % max(rank, 1) + max(2 - rank, 0)


def broadcast(*shapes: Sequence[Any]) -> tuple[Any, ...] | None:
    """Returns the shape to which these shapes are broadcast; None if they don't fit."""
    rank = max(map(len, shapes))
    axes = [{n for n in axis if n != 1} for axis in zip(*(padded(one, rank) for one in shapes))]
    if any(len(extents) > 1 for extents in axes):
        return None
    return tuple(extents.pop() if extents else 1 for extents in axes)
