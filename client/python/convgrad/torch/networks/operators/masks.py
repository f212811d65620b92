"""Masks that follow from data, by functions with the arguments of ATen's operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from convgrad.importers import masks
from convgrad.torch.networks.operators import elements
from convgrad.torch.networks.operators.elements import detach
from convgrad.torch.networks.operators.sums import reduce
from convgrad.torch.networks.operators.values import Importer, Value
from convgrad.torch.networks.operators.views import as_value

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
            x = elements.clamp(to, elements.with_number(to, "mul", x, 0.5), -_LARGEST, _LARGEST)
            y = math.copysign(_LARGEST, y)
        return masks.compared(to, operator, x, y)

    return row


def sign(to: Importer, x: Value) -> Value:
    return masks.sign(detach(to, as_value(to, x)))


def logical(operator: str) -> Callable[[Importer, Any, Any], Value]:
    """Returns the row of an operator of two masks: "and", "or" or "xor"."""
    return lambda to, x, y: masks.joined(operator, _mask(to, x), _mask(to, y))


def negation(to: Importer, x: Any) -> Value:
    return 1 - _mask(to, x)


def any_of(to: Importer, x: Any, dim: Any = None, keepdim: bool = False) -> Value:
    return reduce(to, "amax", _mask(to, x), dim, keepdim)


def all_true(to: Importer, x: Any, dim: Any = None, keepdim: bool = False) -> Value:
    return 1 - reduce(to, "amax", negation(to, x), dim, keepdim)


def _mask(to: Importer, x: Any) -> Any:
    if not isinstance(x, Value) or x.dtype != torch.bool:
        raise to.refuse(f"a logical operator of {getattr(x, 'dtype', x)}", "masks")
    return as_value(to, x)


def chosen(to: Importer, mask: Value, x: Any, y: Any, shape: Sequence[Any] = ()) -> Value:
    """Returns the elements of `x` where the mask is 1, and of `y` where it is 0, in the shape
    of the result under way or another one."""
    shape = tuple(shape) or to.shape
    x, y = (one if isinstance(one, Value) else to.constant(
        torch.full([1] * len(shape), float(one))) for one in (x, y))
    return masks.chosen(as_value(to, mask, len(shape)), x, y, shape)


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
