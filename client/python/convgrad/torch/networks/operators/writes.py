"""Values that a forward writes into a tensor or chooses between, by functions with the
arguments of ATen's operators. The importer finds the tensors that change with a written one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from convgrad.importers.steps import selected
from convgrad.torch.networks.operators.known import Known, all_of, one_of
from convgrad.torch.networks.operators.masks import chosen
from convgrad.torch.networks.operators.values import Importer, Value
from convgrad.torch.networks.operators.views import as_value, expanded


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
    if isinstance(mask, Value) and mask.dtype == torch.bool:
        return chosen(to, mask, x, y)
    if not isinstance(mask, Known) or mask.tensor.dtype != torch.bool:
        raise to.refuse(f"a mask of {getattr(mask, 'dtype', mask)}", "torch.bool")
    x, y = (one if isinstance(one, Value) else one_of(to, to.shape, one) for one in (x, y))
    return selected(to, mask.tensor.numpy(), x, y, to.shape)


def full(place: int) -> Callable[..., Value]:
    """Returns the row of an operator that has the number as its argument at `place`."""
    return lambda to, *arguments: all_of(to, to.shape, arguments[place])


def full_of(number: float) -> Callable[..., Value]:
    """Returns the row of an operator that makes a tensor of this number."""
    return lambda to, *_: all_of(to, to.shape, number)
