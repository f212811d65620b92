"""Elements at places that a call's inputs or constants have, by functions with the arguments of
ATen's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from convgrad.errors import invalid
from convgrad.importers.masks import compared
from convgrad.torch.networks.operators.known import Known
from convgrad.torch.networks.operators.masks import chosen
from convgrad.torch.networks.operators.moves import index_select, moved
from convgrad.torch.networks.operators.sums import reduce
from convgrad.torch.networks.operators.values import INDICES, Importer, Value, text_of
from convgrad.torch.networks.operators.views import (
    as_value,
    cut,
    expanded,
    merged,
    reshaped,
    taken,
    with_axis,
)

# A larger table of one row for each place is computed for each call.
_MOST_ROWS = 2048


def index(to: Importer, x: Value, indices: Sequence[Any]) -> Value:
    """Places along axes, which an input, a buffer or constants have."""
    if isinstance(x, Known):
        x = to.constant(x.tensor)
    given = [(axis, one) for axis, one in enumerate(indices) if one is not None]
    if all(isinstance(one, Known) for _, one in given):
        return _at_constants(to, x, [axis for axis, _ in given], [
            one.tensor for _, one in given])
    if len(given) == 2 and to.is_range(given[0][1], x.shape[0]) and (
            given[1][0] == 1) and _shape_of(given[1][1]) == x.shape[:1]:
        return _of_rows(to, x, given[1][1])
    if any(isinstance(one, Value) and one.dtype == torch.bool for _, one in given):
        raise to.refuse("an index by a mask that follows from data",
                        "torch.where or masked_fill, which keep the shape")
    if len(given) != 1:
        raise to.refuse(f"an index of {len(given)} axes", "one axis, or constants")
    return index_select(to, x, *given[0])


def _shape_of(places: Any) -> tuple[Any, ...]:
    return tuple(places.tensor.shape if isinstance(places, Known) else places.shape)


def _at_constants(to: Importer, x: Value, axes: list[int], places: list[torch.Tensor]) -> Value:
    """Takes from axes next to each other as from a single one."""
    first, last = axes[0], axes[-1] + 1
    extents = x.shape[first:last]
    found: Any = 0
    if len(places) == 1 and places[0].dtype == torch.bool:
        last = first + places[0].dim()
        extents, found = x.shape[first:last], places[0].reshape(-1).nonzero().squeeze(1)
    elif any(one.dtype not in INDICES for one in places) or last - first != len(axes):
        raise to.refuse(f"an index of the axes {axes}", "places along axes next to each other")
    if any(not isinstance(n, int) for n in extents):
        raise to.refuse(f"an index of {text_of(x.shape)} along the axes {axes}",
                        "other axes than the batch")
    if places[0].dtype != torch.bool:
        for extent, one in zip(extents, places):
            if ((one < -extent) | (one >= extent)).any():
                raise to.refuse(f"an index of {text_of(x.shape)} at {one.tolist()}",
                                f"places from {-extent} to {extent - 1}")
            found = found * extent + torch.where(one < 0, one + extent, one)
    groups = [[axis] for axis in range(first)] + [list(range(first, last))] + [
        [axis] for axis in range(last, len(x.shape))]
    flat = reshaped(to, as_value(to, x), merged(x.shape, groups)) if len(axes) > 1 or (
        last - first > 1) else as_value(to, x)
    return reshaped(to, taken(to, flat, first, found.long().reshape(-1)), to.shape)


def _of_rows(to: Importer, x: Value, places: Any) -> Value:
    """Returns one element of the second axis for each row, at its own place."""
    found = _places(to, places, x.shape[1], f"an index of {text_of(x.shape)}",
                    lambda one: torch.where(one < 0, one + x.shape[1], one))
    last = moved(to, as_value(to, x), 1, -1)
    mask = is_at(to, found, x.shape[1])
    mask = reshaped(to, mask, (x.shape[0], *[1] * (len(x.shape) - 2), x.shape[1]))
    return reduce(to, "sum", chosen(to, mask, last, 0.0), -1, False)


def gather(to: Importer, x: Value, dim: int, places: Any, _: bool = False) -> Value:
    """Takes each element by a mask along the axis, so that no NaN comes out of others."""
    if len(x.shape) == 1:
        return index_select(to, x, 0, places)
    axis, rank = dim % len(x.shape), len(x.shape)
    found = _places(to, places, x.shape[axis], f"gather of {text_of(x.shape)}",
                    lambda one: one)  # negative places are refused, as by torch
    x = as_value(to, x)
    for i, n in enumerate(found.shape):
        if i != axis and n != x.shape[i]:
            if not isinstance(n, int) or not isinstance(x.shape[i], int):
                raise to.refuse(f"gather of {text_of(x.shape)} by {text_of(found.shape)}",
                                "equal batches")
            x = cut(to, x, i, 0, n)
    last = moved(to, x, axis, -1)
    mask = moved(to, is_at(to, found, x.shape[axis]), axis, -2)
    wide = expanded(to, with_axis(to, last, rank - 1), mask.shape)
    y = reduce(to, "sum", chosen(to, mask, wide, 0.0), -1, False)
    return moved(to, y, -1, axis)


def _places(to: Importer, places: Any, extent: Any, found: str,
            then: Callable[[torch.Tensor], torch.Tensor]) -> Value:
    """Returns an input with what `then` makes of these places, from 0 to extent - 1."""
    if not isinstance(extent, int):
        raise to.refuse(found, "one along another axis than the batch")

    def checked(indices: torch.Tensor) -> torch.Tensor:
        indices = then(indices)
        check_places(indices, extent, "index", f"an index from 0 to {extent - 1}")
        return indices

    y = to.sent(places, checked) if isinstance(places, Value) else None
    if y is None:
        raise to.refuse(f"{found} at places that follow from data",
                        "places that follow from inputs alone")
    return y


def check_places(places: torch.Tensor, extent: int, name: str, expected: str) -> None:
    """Raises InvalidArgument for a place that isn't from 0 to extent - 1."""
    wrong = places[(places < 0) | (places >= extent)]
    if len(wrong):
        raise invalid("OUT_OF_RANGE", name, int(wrong[0]), expected)


def is_at(to: Importer, places: Value, extent: int) -> Value:
    """Returns a mask with one more axis, 1 at each place. A place that is `extent` has zeros.
    Requires: no other place is out of range."""
    if extent <= _MOST_ROWS:
        table = as_value(to, to.constant(torch.eye(extent + 1, extent)))
        return taken(to, table, 0, places)
    numbers = torch.arange(extent, dtype=torch.float32).reshape(*[1] * len(places.shape), -1)
    column = reshaped(to, places, (*places.shape, 1))
    return compared(to, "eq", column, to.constant(numbers))


def diagonal_matrix(to: Importer, x: Value, offset: int = 0) -> Value:
    """A matrix with this diagonal, or a matrix's diagonal."""
    if offset or len(x.shape) > 2:
        raise to.refuse(f"diag of {text_of(x.shape)}, {offset}", "the main diagonal")
    x = as_value(to, x)
    rows, columns = (x.shape * 2)[:2]
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise to.refuse(f"diag of {text_of(x.shape)}", "numbers of rows and columns")
    if len(x.shape) == 2:
        at = torch.arange(min(rows, columns)) * (columns + 1)
        return taken(to, reshaped(to, x, (rows * columns,)), 0, at)
    mask = torch.eye(rows)
    return chosen(to, as_value(to, to.constant(mask)), reshaped(to, x, (1, rows)), 0.0)


def diagonal(to: Importer, x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    """The main diagonal of two axes, as the last axis."""
    sizes = [x.shape[first], x.shape[second]]
    if offset or not all(isinstance(n, int) for n in sizes):
        raise to.refuse(f"diagonal of {text_of(x.shape)}, {offset}",
                        "the main diagonal of axes that don't depend on the batch")
    last = moved(to, x, [first, second], [-2, -1])
    flat = reshaped(to, last, (*last.shape[:-2], sizes[0] * sizes[1]))
    return taken(to, flat, -1, torch.arange(min(sizes)) * (sizes[1] + 1))


def triangle(part: Callable[[torch.Tensor, int], torch.Tensor]) -> Callable[..., Value]:
    """Returns the row of the part of matrices above or below a diagonal."""
    def row(to: Importer, x: Value, diagonal: int = 0) -> Value:
        sizes = x.shape[-2:]
        if not all(isinstance(n, int) for n in sizes):
            raise to.refuse(f"a triangle of {text_of(x.shape)}", "axes before the last two")
        kept = part(torch.ones(*sizes), diagonal)
        return chosen(to, as_value(to, to.constant(kept)), x, 0.0)

    return row
