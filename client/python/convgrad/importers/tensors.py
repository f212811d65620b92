"""Defines the arithmetic of tensors whose model an importer makes a program of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

COMPARISONS = frozenset(("eq", "lt", "le", "gt", "ge"))
WITHOUT_GRADIENT = COMPARISONS | {"detach"}
"""Operators whose operands get no gradient."""
WITH_NUMBERS = COMPARISONS | {"add", "sub", "mul", "div"}
"""Operators that take a number in the place of the second operand."""
MAY_BE_INFINITE = COMPARISONS | {"where"}
"""Operators whose numbers may be infinite."""
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


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
        x, y, operator = y, x, mirrored(operator)
    x = to.expanded(to.value(x, len(shape)), shape)
    return to.add(operator, x, to.value(y, len(shape)), shape=shape)


def mirrored(operator: str) -> str:
    """Returns the operator that does the same with exchanged operands. Not for "sub", "div"."""
    return _MIRRORED.get(operator, operator)
