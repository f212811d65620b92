"""Steps that reduce axes, by functions with the arguments of ATen's operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from convgrad.torch.networks.operators.elements import binary, clamp, of_each, with_number
from convgrad.torch.networks.operators.values import Importer, Value, text_of
from convgrad.torch.networks.operators.views import as_value, permute, reshaped

# The least normal number of f32, and its root.
_TINY, _ROOT_OF_TINY = 2.0**-126, 2.0**-63


def reduced(operator: str) -> Callable[..., Value]:
    """Returns the row of a reduction that the program's operator `operator` computes."""
    def row(to: Importer, x: Value, dim: Any = None, keepdim: bool = False,
            dtype: torch.dtype | None = None) -> Value:
        if isinstance(dim, torch.dtype):  # of the overload without axes
            dim, dtype = None, dim
        if dtype not in (None, torch.float32):
            raise to.refuse(f"{operator} in {dtype}", "torch.float32")
        return reduce(to, operator, x, dim, keepdim)

    return row


def reduce(to: Importer, operator: str, x: Value, dim: Any, keepdim: bool) -> Value:
    """Adds steps that reduce the axes `dim`, all if it names none."""
    axes = _axes(x, dim)
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    shape = kept if keepdim else tuple(n for i, n in enumerate(x.shape) if i not in axes)
    if any(not isinstance(x.shape[axis], int) for axis in axes):
        raise to.refuse(f"{operator} of {text_of(x.shape)} over the axes {axes}",
                        "axes that don't depend on the batch")
    x = as_value(to, x)
    if axes and min(axes) >= 2 and len(x.shape) <= 5:
        y = replace(to.add(operator, x, dim=axes, keepdim=True), shape=kept)
    else:
        y = to.add(operator, _with_last(to, x, axes), dim=[2], keepdim=True)
        return reshaped(to, y, shape)
    return y if keepdim else reshaped(to, y, shape)


def _with_last(to: Importer, x: Value, axes: Sequence[int]) -> Value:
    """Returns the value as three axes, of which the last one has what is reduced."""
    others = [i for i in range(len(x.shape)) if i not in axes]
    if len(x.shape) > 1:
        x = permute(to, x, [*others, *axes])
    kept, sums = x.shape[:len(others)], x.shape[len(others):]
    first, rest = (kept[0], kept[1:]) if kept else (1, ())
    return reshaped(to, x, (first, math.prod(rest), math.prod(sums)))


def _axes(x: Value, dim: Any) -> list[int]:
    rank = len(x.shape)
    if dim is None or isinstance(dim, (list, tuple)) and not dim:
        return list(range(rank))
    return sorted(axis % rank for axis in ([dim] if isinstance(dim, int) else dim))


def norm(to: Importer, x: Value, order: float | None = 2, dim: Any = None,
         keepdim: bool = False, dtype: torch.dtype | None = None) -> Value:
    if order not in (None, 1, 2) or dtype not in (None, torch.float32):
        raise to.refuse(f"a norm of order {order}, {dtype}", "1 or 2, torch.float32")
    if order == 1:
        return reduce(to, "sum", of_each(to, "abs", x), dim, keepdim)
    return _root(to, reduce(to, "sum", binary(to, "mul", x, x), dim, keepdim))


def _root(to: Importer, x: Value) -> Value:
    """The square root, whose gradient is 0 where `x` is 0: there torch's norms have that, and
    the root's own would be infinite."""
    return with_number(to, "sub", of_each(to, "sqrt", clamp(to, x, _TINY)), _ROOT_OF_TINY)


def var(to: Importer, x: Value, dim: Any = None, correction: Any = None,
        keepdim: bool = False) -> Value:
    return var_mean(to, x, dim, correction, keepdim)[0]


def std(to: Importer, x: Value, dim: Any = None, correction: Any = None,
        keepdim: bool = False) -> Value:
    return _root(to, var(to, x, dim, correction, keepdim))


def var_mean(to: Importer, x: Value, dim: Any = None, correction: Any = None,
             keepdim: bool = False) -> list[Value]:
    """`correction` is a number or, in older overloads, whether it is 1."""
    axes = _axes(x, dim)
    mean = reduce(to, "mean", x, axes, True)
    centered = binary(to, "sub", x, mean)
    found = reduce(to, "mean", binary(to, "mul", centered, centered), axes, True)
    count = math.prod(x.shape[axis] for axis in axes)
    over = count - (1 if correction is None else correction)
    if over <= 0:
        raise to.refuse(f"a variance of {count} elements", "more than its correction")
    if over != count:
        found = with_number(to, "mul", found, count / over)
    if keepdim:
        return [found, mean]
    shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    return [reshaped(to, found, shape), reshaped(to, mean, shape)]
