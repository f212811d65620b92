"""Masks that follow from data, and values that a forward writes into a tensor or chooses
between, by functions with the arguments of ATen's operators. The importer finds the tensors
that change with a written one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from convgrad.importers import masks
from convgrad.shapes import MOST_AXES
from convgrad.torch.networks.operators import elements
from convgrad.torch.networks.operators.known import Known, all_of
from convgrad.torch.networks.operators.sums import reduce
from convgrad.torch.networks.operators.values import Importer, Value, text_of
from convgrad.torch.networks.operators.views import as_value, expanded, reshaped


def compare(operator: str) -> Callable[..., Value]:
    """Returns the row of a comparison."""
    def row(to: Importer, x: Any, y: Any) -> Value:
        for one in (x, y):
            if isinstance(one, Value) and one.dtype not in (torch.float32, torch.bool):
                raise to.refuse(f"{operator} of {one.dtype}", "torch.float32")
        return masks.compared(to, operator, as_value(to, x), as_value(to, y))

    return row


def sign(to: Importer, x: Value) -> Value:
    return masks.sign(as_value(to, x))


def is_nan(to: Importer, x: Value) -> Value:
    return compare("ne")(to, x, x)


def is_infinite(to: Importer, x: Value) -> Value:
    return compare("eq")(to, elements.of_each(to, "abs", x), math.inf)


def nan_to_num(to: Importer, x: Value, nan: float | None = None, most: float | None = None,
               least: float | None = None) -> Value:
    limits = torch.finfo()
    for is_found, number in (
            (is_nan(to, x), 0.0 if nan is None else nan),
            (compare("eq")(to, x, math.inf), limits.max if most is None else most),
            (compare("eq")(to, x, -math.inf), limits.min if least is None else least)):
        x = chosen(to, is_found, number, x)
    return x


def logical(operator: str) -> Callable[[Importer, Any, Any], Value]:
    """Returns the row of an operator of two masks: "and", "or" or "xor"."""
    return lambda to, x, y: masks.joined(operator, _mask(to, x), _mask(to, y))


def negation(to: Importer, x: Any) -> Value:
    return masks.inverted(_mask(to, x))


def any_of(to: Importer, x: Any, dim: Any = None, keepdim: bool = False) -> Value:
    return reduce(to, "amax", _mask(to, x), dim, keepdim)


def all_true(to: Importer, x: Any, dim: Any = None, keepdim: bool = False) -> Value:
    return masks.inverted(reduce(to, "amax", negation(to, x), dim, keepdim))


def _mask(to: Importer, x: Any) -> Any:
    if not isinstance(x, Value) or x.dtype != torch.bool:
        raise to.refuse(f"a logical operator of {getattr(x, 'dtype', x)}", "masks")
    return as_value(to, x)


def where(to: Importer, mask: Any, x: Any, y: Any) -> Value:
    if isinstance(mask, Known) and mask.tensor.dtype == torch.bool:
        flat = to.constant(mask.tensor.float().reshape(-1))  # parameters have five axes at most
        mask = reshaped(to, flat, tuple(mask.tensor.shape))
    elif not isinstance(mask, Value) or mask.dtype != torch.bool:
        raise to.refuse(f"a mask of {getattr(mask, 'dtype', mask)}", "torch.bool")
    return chosen(to, mask, x, y)


def masked_fill(to: Importer, x: Value, mask: Any, number: Any) -> Value:
    return where(to, mask, number, x)


def index_put(to: Importer, x: Value, indices: Sequence[Any], values: Any,
              accumulate: bool = False) -> Value:
    """Imports `x[mask] = number`, also with `:` before the mask."""
    given = [(axis, one) for axis, one in enumerate(indices) if one is not None]
    axis, mask = given[0]
    if accumulate or len(given) > 1 or getattr(mask, "dtype", None) != torch.bool:
        raise to.refuse("a write at places", "x[mask] = y, with a mask of booleans")
    if isinstance(values, Value) and any(n != 1 for n in values.shape):
        raise to.refuse(f"a write of {text_of(values.shape)} by a mask", "of a single number")
    behind = len(x.shape) - axis - len(mask.shape)
    wide = reshaped(to, mask, (*[1] * axis, *mask.shape, *[1] * behind))
    return chosen(to, wide, values, x)


def chosen(to: Importer, mask: Value, x: Any, y: Any) -> Value:
    """Returns the elements of `x` where the mask is 1, and of `y` where it is 0."""
    def constant(number: float) -> Value:
        return to.constant(torch.full([1], float(number)))

    if not isinstance(x, Value) and (not isinstance(y, Value) or math.isnan(x)):
        x = constant(x)
    if not isinstance(y, Value) and math.isnan(y):
        y = constant(y)
    rank = max(len(one.shape) for one in (mask, x, y) if isinstance(one, Value))
    if rank > MOST_AXES:
        return elements.by_groups(to, masks.chosen, mask, x, y)
    return masks.chosen(mask, x, y)


def clamp(to: Importer, x: Value, least: Any = None, most: Any = None) -> Value:
    """A clamp by numbers or tensors. Where a tensor is equal to `x`, `x` has the gradient, of
    which PyTorch 2.15 gives the tensor one half. A bound that is NaN makes NaN without a
    gradient."""
    if not isinstance(least, Value) and not isinstance(most, Value):
        return elements.clamp(to, x, least, most)
    for operator, bound in (("lt", least), ("gt", most)):
        if bound is not None:
            x = chosen(to, compare(operator)(to, x, bound), bound, x)
        if isinstance(bound, Value):
            x = chosen(to, compare("eq")(to, bound, bound), x, math.nan)
    return x


def clamp_max(to: Importer, x: Value, most: Any) -> Value:
    return clamp(to, x, None, most)


def copy(to: Importer, x: Value, source: Any, *_: Any) -> Value:
    """Imports `x[...] = source`. `x[...] += y` ends with a copy of the view to itself."""
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


def full(place: int) -> Callable[..., Value]:
    """Returns the row of an operator that has the number as its argument at `place`."""
    return lambda to, *arguments: all_of(to, to.shape, arguments[place])


def full_of(number: float) -> Callable[..., Value]:
    """Returns the row of an operator that makes a tensor of this number."""
    return lambda to, *_: all_of(to, to.shape, number)
