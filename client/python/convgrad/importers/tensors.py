"""Defines the arithmetic of tensors whose model an importer makes a program of, and steps of
any such tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tensor:
    """A tensor that a program computes. Arithmetic with it adds steps to the program. Operands
    are numbers or other tensors, which are broadcast."""

    to: Any = field(compare=False, repr=False, kw_only=True)
    """The importer. Its methods `of_each` and `binary` add steps of one and of two operands."""

    def __neg__(self) -> Any:
        return self.to.of_each("neg", self)

    def __add__(self, other: Any) -> Any:
        return self.to.binary("add", self, other)

    def __sub__(self, other: Any) -> Any:
        return self.to.binary("sub", self, other)

    def __mul__(self, other: Any) -> Any:
        return self.to.binary("mul", self, other)

    def __truediv__(self, other: Any) -> Any:
        return self.to.binary("div", self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, number: float) -> Any:
        return -self + number

    def __rtruediv__(self, number: float) -> Any:
        return self.to.of_each("reciprocal", self) * number


def of_two(to: Any, operator: str, x: Any, y: Any, shape: tuple[Any, ...]) -> Any:
    """Adds a step of two operands, which are broadcast to this shape: the first one by a step
    of its own, the second one by the program's operator."""
    if x.shape != shape and y.shape == shape and operator != "div":
        if operator == "sub":
            return of_two(to, "add", -y, x, shape)
        x, y = y, x
    x = to.expanded(to.value(x, len(shape)), shape)
    return to.add(operator, x, to.value(y, len(shape)), shape=shape)


def repeated(to: Any, x: Any, counts: Sequence[Any]) -> Any:
    """Repeats whole axes, each one as often as its count says."""
    for axis, count in reversed(list(enumerate(counts))):
        if count == 1:
            continue
        *before, extent = x.shape[:axis + 1]
        after = x.shape[axis + 1:]
        if extent == 1:
            x = to.expanded(x, (*before, count, *after))
            continue
        apart = to.reshaped(x, (*before, 1, extent, *after))
        wide = to.expanded(apart, (*before, count, extent, *after))
        x = to.reshaped(wide, (*before, count * extent, *after))
    return x
