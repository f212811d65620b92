"""Steps of masks that follow from data. A mask is a tensor of ones and zeros without a
gradient."""

from __future__ import annotations

from typing import Any

from convgrad.importers.tensors import Tensor
from convgrad.shapes import broadcast


def is_not_zero(x: Any) -> Any:
    return compared(x.to, "ne", x, 0.0)


def compared(to: Any, operator: str, x: Any, y: Any) -> Any:
    """Returns the mask of a comparison: "eq", "ne", "lt", "le", "gt" or "ge". Requires: one
    operand is a tensor; the other one may be a number."""
    return inverted(to.binary("eq", x, y)) if operator == "ne" else to.binary(operator, x, y)


def inverted(mask: Any) -> Any:
    return mask.to.binary("eq", mask, 0.0)


def sign(x: Any) -> Any:
    return compared(x.to, "gt", x, 0.0) - compared(x.to, "lt", x, 0.0)


def joined(operator: str, x: Any, y: Any) -> Any:
    """Returns "and", "or" or "xor" of two masks."""
    if operator == "xor":
        return compared(x.to, "ne", x, y)
    return x.to.binary("mul" if operator == "and" else "maximum", x, y)


def chosen(mask: Any, x: Any, y: Any) -> Any:
    """Returns the elements of `x` where the mask is 1, and of `y` where it is 0; all three are
    broadcast. What isn't chosen has no effect on values and gradients, not even NaN. Requires:
    one of both is a tensor; the other one may be a number, but not NaN."""
    to, other = mask.to, None
    if not isinstance(y, Tensor):
        operands, other = [mask, x], float(y)
    elif not isinstance(x, Tensor):
        operands, other = [inverted(mask), y], float(x)
    else:
        operands = [mask, x, y]
    shape: Any = broadcast(*(one.shape for one in operands))
    values = [to.value(one, len(shape)) for one in operands]
    return to.add("where", *values, shape=shape, other=other)
