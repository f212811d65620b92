"""Steps of masks that follow from data.

A mask is a tensor of ones and zeros without a gradient. A choice by a mask is exact, and keeps
what isn't chosen out of values and gradients, NaN included: `prelu` is its first operand where
this is above 0, whatever the second one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Two such factors make any number of float32 above 0 more than 1, or infinite. One factor
# alone isn't enough for the smallest ones.
_LARGE = 2.0**126


def is_positive(x: Any) -> Any:
    return x.to.of_each("clamp", x * _LARGE * _LARGE, min=0.0, max=1.0)


def is_not_zero(x: Any) -> Any:
    return is_positive(x.to.of_each("abs", x))


def compared(to: Any, operator: str, x: Any, y: Any) -> Any:
    """Returns the mask of a comparison, such as "lt". A NaN gives NaN. Requires: tensors have
    no gradient; one operand may be a number."""
    if operator in ("lt", "ge"):
        x, y = y, x
    apart = to.binary("sub", x, y)
    found = is_not_zero(apart) if operator in ("eq", "ne") else is_positive(apart)
    return 1 - found if operator in ("le", "ge", "eq") else found


def sign(x: Any) -> Any:
    """Requires: `x` has no gradient."""
    return is_positive(x) - is_positive(-x)


def joined(operator: str, x: Any, y: Any) -> Any:
    """Returns "and", "or" or "xor" of two masks."""
    if operator == "xor":
        return x.to.of_each("abs", x - y)
    return x.to.binary("mul" if operator == "and" else "maximum", x, y)


def chosen(mask: Any, x: Any, y: Any, shape: Sequence[Any]) -> Any:
    """Returns the elements of `x` where the mask is 1, and of `y` where it is 0."""
    to, here = mask.to, mask * -2.0 + 1.0  # -1 where the mask is 1
    parts = []
    for sign_of_mask, one in ((here, x), (-here, y)):
        value = to.value(one, len(shape))
        parts.append(to.binary("prelu", to.expanded(sign_of_mask, shape), value))
    return -(parts[0] * parts[1])
