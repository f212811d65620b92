"""Defines the arithmetic of tensors whose model an importer makes a program of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tensor:
    """A tensor that a program computes. Arithmetic with it adds steps to the program. Operands
    are numbers or other tensors, which are broadcast."""

    to: Any = field(compare=False, repr=False, kw_only=True)
    """The importer, as a weak proxy, so that what it holds is freed when the import ends. Its
    methods `of_each` and `binary` add steps of one and of two operands."""

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
