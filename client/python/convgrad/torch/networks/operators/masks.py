"""Masks that follow from data, by functions with the arguments of ATen's operators.

A mask is a value of ones and zeros. Comparisons compute it without a gradient. A choice by a
mask is exact, and keeps what isn't chosen out of values and gradients, NaN included: `prelu` is
its first operand where this is above 0, whatever the second one is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from convgrad.torch.networks.operators import elements
from convgrad.torch.networks.operators.detaching import detach
from convgrad.torch.networks.operators.elements import binary, of_each, with_number
from convgrad.torch.networks.operators.sums import reduce
from convgrad.torch.networks.operators.values import Importer, Value
from convgrad.torch.networks.operators.views import as_value, expanded

# Two such factors make any number of float32 above 0 more than 1, or infinite. One factor
# alone isn't enough for the smallest ones.
_LARGE = 2.0**126
# The largest finite number of bf16, which is one of float32, too.
_LARGEST = torch.finfo(torch.bfloat16).max


def compare(operator: str) -> Callable[..., Value]:
    """Returns the row of a comparison. A NaN gives NaN."""
    def row(to: Importer, x: Any, y: Any) -> Value:
        for one in (x, y):
            if isinstance(one, Value) and one.dtype not in (torch.float32, torch.bool):
                raise to.refuse(f"{operator} of {one.dtype}", "torch.float32")
        if isinstance(x, Value) and isinstance(y, Value) and x.name == y.name:
            raise to.refuse(f"{operator} of a tensor and itself", "two tensors, or a number")
        x, y = (detach(to, as_value(to, one)) if isinstance(one, Value) else one
                for one in (x, y))
        if isinstance(y, (int, float)) and abs(y) == math.inf:
            # A half of any finite number is less.
            x = elements.clamp(to, with_number(to, "mul", x, 0.5), -_LARGEST, _LARGEST)
            y = math.copysign(_LARGEST, y)
        if operator in ("gt", "le"):
            found = _is_positive(to, binary(to, "sub", x, y))
        elif operator in ("lt", "ge"):
            found = _is_positive(to, binary(to, "sub", y, x))
        else:
            found = is_not_zero(to, binary(to, "sub", x, y))
        return inverted(to, found) if operator in ("le", "ge", "eq") else found

    return row


def _is_positive(to: Importer, x: Value) -> Value:
    for _ in range(2):
        x = with_number(to, "mul", x, _LARGE)
    return elements.clamp(to, x, 0.0, 1.0)


def is_not_zero(to: Importer, x: Value) -> Value:
    return _is_positive(to, of_each(to, "abs", x))


def inverted(to: Importer, mask: Value) -> Value:
    return binary(to, "sub", 1, mask)


def sign(to: Importer, x: Value) -> Value:
    x = detach(to, as_value(to, x))
    return binary(to, "sub", _is_positive(to, x), _is_positive(to, of_each(to, "neg", x)))


def logical(operator: str) -> Callable[[Importer, Any, Any], Value]:
    """Returns the row of an operator of two masks: "and", "or" or "xor"."""
    def row(to: Importer, x: Any, y: Any) -> Value:
        x, y = (_mask(to, one) for one in (x, y))
        if operator == "xor":
            return of_each(to, "abs", binary(to, "sub", x, y))
        return binary(to, "mul" if operator == "and" else "maximum", x, y)

    return row


def negation(to: Importer, x: Any) -> Value:
    return inverted(to, _mask(to, x))


def any_of(to: Importer, x: Any, dim: Any = None, keepdim: bool = False) -> Value:
    return reduce(to, "amax", _mask(to, x), dim, keepdim)


def all_true(to: Importer, x: Any, dim: Any = None, keepdim: bool = False) -> Value:
    return inverted(to, reduce(to, "amax", negation(to, x), dim, keepdim))


def _mask(to: Importer, x: Any) -> Value:
    if not isinstance(x, Value) or x.dtype != torch.bool:
        raise to.refuse(f"a logical operator of {getattr(x, 'dtype', x)}", "masks")
    return as_value(to, x)


def chosen(to: Importer, mask: Value, x: Any, y: Any, shape: Sequence[Any] = ()) -> Value:
    """Returns the elements of `x` where the mask is 1, and of `y` where it is 0, in the shape
    of the result under way or another one."""
    shape = tuple(shape) or to.shape
    mask = as_value(to, mask, len(shape))
    here = with_number(to, "add", with_number(to, "mul", mask, -2.0), 1.0)  # -1 where it is 1
    parts = []
    for sign_of_mask, one in ((here, x), (of_each(to, "neg", here), y)):
        value = as_value(to, one, len(shape)) if isinstance(one, Value) else as_value(
            to, to.constant(torch.full([1] * len(shape), float(one))))
        parts.append(binary(to, "prelu", expanded(to, sign_of_mask, shape), value))
    return of_each(to, "neg", binary(to, "mul", *parts))


def clamp(to: Importer, x: Value, least: Any = None, most: Any = None) -> Value:
    """A clamp by numbers or tensors. Where two are equal, `x` has the gradient, as in torch."""
    if not isinstance(least, Value) and not isinstance(most, Value):
        return elements.clamp(to, x, least, most)
    for operator, bound in (("lt", least), ("gt", most)):
        if bound is not None:
            x = chosen(to, compare(operator)(to, x, bound), bound, x)
    return x


def clamp_max(to: Importer, x: Value, most: Any) -> Value:
    return clamp(to, x, None, most)
