"""Calculates with shapes whose batch is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Batch:
    """The number of items of a batch, times a factor. Other expressions of it don't exist: a
    product of two batches raises TypeError."""

    factor: int = 1

    def __str__(self) -> str:
        return "N" if self.factor == 1 else f"{self.factor}*N"

    __repr__ = __str__

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Batch):
            return Batch(self.factor + other.factor)
        return self if other == 0 else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Batch):
            rest = self.factor - other.factor
            return Batch(rest) if rest > 0 else 0 if rest == 0 else NotImplemented
        return self if other == 0 else NotImplemented

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, (int, np.integer)) or other <= 0:
            return NotImplemented
        return Batch(self.factor * int(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        """Only quotients without a rest, whatever the batch is, exist."""
        if isinstance(other, Batch):
            return self.factor // other.factor if self.factor % other.factor == 0 else (
                NotImplemented)
        if not isinstance(other, (int, np.integer)) or other <= 0 or self.factor % other:
            return NotImplemented
        return Batch(self.factor // int(other))


Extent = int | Batch
Shape = tuple[Extent, ...]


def text_of(shape: Iterable[Any]) -> str:
    """Returns the shape with N for the batch."""
    return f"({', '.join(map(str, shape))})"


def is_known(shape: Iterable[Any]) -> bool:
    """Returns whether no extent depends on the batch."""
    return all(isinstance(extent, int) for extent in shape)
