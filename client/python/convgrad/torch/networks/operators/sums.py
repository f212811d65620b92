"""Steps that reduce axes, by functions with the arguments of ATen's operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from convgrad.shapes import MOST_AXES, axis_of
from convgrad.torch.networks.operators.elements import clamp, of_each
from convgrad.torch.networks.operators.values import INDICES, Importer, Value, text_of
from convgrad.torch.networks.operators.views import as_value, groups_of, merged, reshaped

# The least normal number of f32, and the largest one.
_FINITE = 2.0**-126, torch.finfo(torch.float32).max
_MOST_COUNTED = 2**24  # all integers up to it are numbers of f32


def reduced(operator: str) -> Callable[..., Value]:
    """Returns the row of a reduction that the program's operator `operator` computes."""
    def row(to: Importer, x: Value, dim: Any = None, keepdim: bool = False,
            dtype: torch.dtype | None = None) -> Value:
        if isinstance(dim, torch.dtype):  # of the overload without axes
            dim, dtype = None, dim
        if dtype not in (None, torch.float32):
            raise to.refuse(f"{operator} in {dtype}", "torch.float32")
        y = reduce(to, operator, x, dim, keepdim)
        if to.dtype not in INDICES:
            return y
        counted = math.prod(x.shape[axis] for axis in _axes(x, dim))
        if x.dtype != torch.bool or counted > _MOST_COUNTED:
            raise to.refuse(f"{operator} of {text_of(x.shape)} in {x.dtype}", "floats or masks")
        return replace(y, kind="a count")

    return row


def amin(to: Importer, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return -reduce(to, "amax", -x, dim, keepdim)


def reduce(to: Importer, operator: str, x: Value, dim: Any, keepdim: bool,
           **attributes: Any) -> Value:
    """Adds a step that reduces the axes `dim`, all if it names none."""
    axes = _axes(x, dim)
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    shape = kept if keepdim else tuple(n for i, n in enumerate(x.shape) if i not in axes)
    if any(not isinstance(x.shape[axis], int) for axis in axes):
        raise to.refuse(f"{operator} of {text_of(x.shape)} over the axes {axes}",
                        "axes that don't depend on the batch")
    if len(x.shape) > MOST_AXES:
        groups = groups_of(x.shape, kept)
        y = reduce(to, operator, reshaped(to, as_value(to, x), merged(x.shape, groups)),
                   [i for i, group in enumerate(groups) if group[0] in axes], True,
                   **attributes)
        return reshaped(to, y, shape)
    of_program = [axis_of(len(x.shape), axis) for axis in axes] or [1]
    stays = keepdim or len(shape) < 2
    y = to.add(operator, as_value(to, x), shape=kept if stays else shape, dim=of_program,
               keepdim=stays, **attributes)
    return reshaped(to, y, shape)


def _axes(x: Value, dim: Any) -> list[int]:
    rank = len(x.shape)
    if dim is None or isinstance(dim, (list, tuple)) and not dim:
        return list(range(rank))
    return sorted(axis % rank for axis in ([dim] if isinstance(dim, int) else dim))


def norm(to: Importer, x: Value, order: float | None = 2, dim: Any = None,
         keepdim: bool = False, dtype: torch.dtype | None = None) -> Value:
    if order not in (None, 1, 2, math.inf) or dtype not in (None, torch.float32):
        raise to.refuse(f"a norm of order {order}, {dtype}", "1, 2 or inf, torch.float32")
    if order == 1:
        return reduce(to, "sum", of_each(to, "abs", x), dim, keepdim)
    if order == math.inf:
        return reduce(to, "amax", of_each(to, "abs", x), dim, keepdim)
    return reduce(to, "norm", x, dim, keepdim)


def linalg_norm(to: Importer, x: Value, order: float | None = None, dim: Any = None,
                keepdim: bool = False, dtype: torch.dtype | None = None) -> Value:
    """Without an order, a norm of all elements, and otherwise one of vectors or of matrices."""
    if order is not None and len(_axes(x, dim)) != 1:
        raise to.refuse(f"a norm of matrices, of order {order}", "one of an axis")
    return norm(to, x, order, dim, keepdim, dtype)


def var(to: Importer, x: Value, dim: Any = None, correction: Any = None,
        keepdim: bool = False) -> Value:
    """`correction` is a number or, in older overloads, whether it is 1."""
    found = 1 if correction is None else int(correction)
    if found != (1 if correction is None else correction) or found < 0:
        raise to.refuse(f"a variance with the correction {correction}", "a number from 0 on")
    return reduce(to, "var", x, dim, keepdim, correction=found)


def std(to: Importer, x: Value, dim: Any = None, correction: Any = None,
        keepdim: bool = False) -> Value:
    """The root of the variance, which is the variance over its root. So the gradient is 0
    where both are 0, as torch has it."""
    found = var(to, x, dim, correction, keepdim)
    return found / of_each(to, "sqrt", clamp(to, found, *_FINITE))


def with_mean(function: Callable[..., Value]) -> Callable[..., list[Value]]:
    """Returns the row of an operator that also returns the mean."""
    def row(to: Importer, x: Value, dim: Any = None, correction: Any = None,
            keepdim: bool = False) -> list[Value]:
        return [function(to, x, dim, correction, keepdim), reduce(to, "mean", x, dim, keepdim)]

    return row
