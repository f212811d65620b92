"""Values that a forward writes into a tensor or chooses between, by functions with the
arguments of ATen's operators. The importer finds the tensors that change with a written one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from convgrad.torch.networks.operators.known import Known, all_of
from convgrad.torch.networks.operators.masks import chosen
from convgrad.torch.networks.operators.values import Importer, Value
from convgrad.torch.networks.operators.views import (
    as_value,
    expanded,
    joined,
    reshaped,
    taken,
)


def copy(to: Importer, x: Value, source: Any, *_: Any) -> Value:
    """What `x[...] = source` calls, and `x[...] += y` at its end, of a view with itself."""
    if not isinstance(source, Value):
        return fill(to, x, source)
    is_itself = (x.memory, x.branch, _keys(x)) == (source.memory, source.branch, _keys(source))
    return x if is_itself else expanded(to, as_value(to, source), x.shape)


def _keys(x: Value) -> list[Any]:
    return [view.key for view in x.views]


def fill(to: Importer, x: Value, number: Any) -> Value:
    if isinstance(number, Value):
        return expanded(to, as_value(to, number), x.shape)
    return all_of(to, x.shape, number)


def masked_fill(to: Importer, x: Value, mask: Any, number: Any) -> Value:
    return where(to, mask, number, x)


def where(to: Importer, mask: Any, x: Any, y: Any) -> Value:
    """Takes elements by an index, so that no NaN comes out of those that aren't taken."""
    shape = to.shape
    if isinstance(mask, Value) and mask.dtype == torch.bool:
        return chosen(to, mask, x, y)
    if not isinstance(mask, Known) or mask.tensor.dtype != torch.bool:
        raise to.refuse(f"a mask of {getattr(mask, 'dtype', mask)}", "torch.bool")
    is_apart = not all(isinstance(n, int) for n in shape)  # the rows of a batch are alike
    inner = shape[1:] if is_apart else shape
    if is_apart and mask.tensor.dim() == len(shape):
        mask = Known(mask.tensor[0])
    flat = mask.tensor.expand(inner).reshape(-1)
    rows: list[Value] = []
    places: list[torch.Tensor] = []
    first = 0
    for one in (x, y):
        count = math.prod(inner) if isinstance(one, Value) else 1
        value = expanded(to, as_value(to, one), shape) if isinstance(one, Value) else (
            all_of(to, (*shape[:is_apart], *[1] * len(inner)), one))
        rows.append(reshaped(to, value, (shape[0] if is_apart else 1, count)))
        places.append(first + torch.arange(count).expand(len(flat)))
        first += count
    index = to.constant(torch.where(flat, places[0], places[1]))
    return reshaped(to, taken(to, joined(to, rows, 1), 1, index), shape)


def full(place: int) -> Callable[..., Value]:
    """Returns the row of an operator that has the number as its argument at `place`."""
    return lambda to, *arguments: all_of(to, to.shape, arguments[place])


def full_of(number: float) -> Callable[..., Value]:
    """Returns the row of an operator that makes a tensor of this number."""
    return lambda to, *_: all_of(to, to.shape, number)
