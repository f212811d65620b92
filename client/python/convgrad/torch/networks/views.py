"""Steps that only move elements, by functions with the arguments of ATen's operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from convgrad.torch.networks.steps import Importer, Value, text_of

_RANKS = range(2, 7)


def as_value(to: Importer, x: Any, rank: int = 0) -> Any:
    """Returns a parameter as a value, with leading axes of 1 up to `rank`; others as they
    are."""
    if not isinstance(x, Value):
        return x
    shape = (*[1] * (rank - len(x.shape)), *x.shape)
    if x.kind == "a parameter":
        return _read(to, x, shape)
    return x if shape == x.shape else reshaped(to, x, shape)


def reshaped(to: Importer, x: Value, shape: Sequence[Any]) -> Value:
    """Returns `x` with these extents, of which one may follow from the batch."""
    shape = tuple(shape)
    sizes = [n if isinstance(n, int) else -1 for n in shape]
    if sizes.count(-1) > 1 or len(shape) not in _RANKS or 0 in sizes:
        raise to.refuse(f"a view of {text_of(x.shape)} as {text_of(shape)}",
                        "two to six axes, one of which depends on the batch")
    return replace(to.add("reshape", x, view_of=x, shape=sizes), shape=shape)


def view(to: Importer, x: Value, *_: Any) -> Value:
    if to.shape == x.shape and x.kind != "an input":
        return x
    if x.kind == "a parameter":
        return _read(to, x, to.shape)
    if to.shape == (*x.shape[:1], math.prod(x.shape[1:])) and x.shape:
        return to.add("flatten", x, view_of=x)
    return reshaped(to, x, to.shape)


def permute(to: Importer, x: Value, dims: Sequence[int]) -> Value:
    order = [axis % len(x.shape) for axis in dims]
    x = as_value(to, x)
    if order == sorted(order):
        return x
    return replace(to.add("permute", x, view_of=x, dims=order),
                   shape=tuple(x.shape[axis] for axis in order))


def transpose(to: Importer, x: Value, first: int, second: int) -> Value:
    order = list(range(len(x.shape)))
    order[first], order[second] = order[second], order[first]
    return permute(to, x, order)


def transposed(to: Importer, x: Value) -> Value:
    return transpose(to, x, 0, 1)


def slice_of(to: Importer, x: Value, dim: int = 0, start: int | None = None,
             end: int | None = None, step: int = 1) -> Value:
    if to.shape == x.shape:
        return x
    axis = dim % len(x.shape)
    extent = x.shape[axis]
    if not isinstance(extent, int):
        raise to.refuse(f"a slice of {text_of(x.shape)} along axis {axis}", "all of the batch")
    first, last, step = slice(start, end, step).indices(extent)
    return cut(to, as_value(to, x), axis, first, last, step)


def cut(to: Importer, x: Value, axis: int, first: int, last: int, step: int = 1) -> Value:
    """Returns the indices [first, last) of an axis, every `step`th."""
    if last <= first:
        raise to.refuse("a slice without elements", "one element at least")
    shape = list(x.shape)
    shape[axis] = len(range(first, last, step))
    if tuple(shape) == x.shape:
        return x
    return replace(to.add("slice", x, view_of=x, axis=axis, start=first, end=last, step=step),
                   shape=tuple(shape))


def select(to: Importer, x: Value, dim: int, index: int) -> Value:
    axis = dim % len(x.shape)
    extent = x.shape[axis]
    if not isinstance(extent, int):
        raise to.refuse(f"one of {text_of(x.shape)}", "an index of another axis than the batch")
    x = as_value(to, x)
    return replace(to.add("select", x, view_of=x, axis=axis, index=index % extent),
                   shape=(*x.shape[:axis], *x.shape[axis + 1:]))


def unbind(to: Importer, x: Value, dim: int = 0) -> list[Value]:
    return [select(to, x, dim, i) for i in range(_extent(to, x, dim))]


def chunk(to: Importer, x: Value, chunks: int, dim: int = 0) -> list[Value]:
    extent = _extent(to, x, dim)
    return split(to, x, -(-extent // chunks), dim)


def split(to: Importer, x: Value, sizes: Any, dim: int = 0) -> list[Value]:
    extent = _extent(to, x, dim)
    if isinstance(sizes, int):
        sizes = [min(sizes, extent - first) for first in range(0, extent, sizes)]
    parts, first, x = [], 0, as_value(to, x)
    for size in sizes:
        parts.append(cut(to, x, dim % len(x.shape), first, first + size))
        first += size
    return parts


def concat(to: Importer, tensors: Sequence[Any], dim: int = 0) -> Value:
    values = [as_value(to, tensor) for tensor in tensors]
    axis = dim % len(to.shape)
    if len(values) == 1:
        return to.copy(values[0])
    return to.add("concat", *values, axis=None if axis == 1 else axis)


def stack(to: Importer, tensors: Sequence[Any], dim: int = 0) -> Value:
    axis = dim % len(to.shape)
    return concat(to, [reshaped(to, as_value(to, one), (
        *one.shape[:axis], 1, *one.shape[axis:])) for one in tensors], dim)


def expand(to: Importer, x: Value, *_: Any) -> Value:
    """Repeats axes of extent 1, the first one to the batch of another value."""
    if to.shape == x.shape:
        return x
    shape = to.shape
    x = as_value(to, x, len(shape))
    like = None if isinstance(shape[0], int) or shape[0] == x.shape[0] else to.like(shape[0])
    sizes = [n if isinstance(n, int) else -1 for n in shape]
    return to.add("expand", x, *([like] if like is not None else []), shape=sizes)


def roll(to: Importer, x: Value, shifts: Any, dims: Any = ()) -> Value:
    for shift, dim in zip(*(([n] if isinstance(n, int) else n) for n in (shifts, dims))):
        extent, axis = _extent(to, x, dim), dim % len(x.shape)
        if shift % extent:
            first = extent - shift % extent
            parts = cut(to, x, axis, first, extent), cut(to, x, axis, 0, first)
            x = replace(concat(to, parts, axis), shape=x.shape)
    return x


def pixel_shuffle(to: Importer, x: Value, factor: int) -> Value:
    batch, channels, height, width = x.shape
    split_up = reshaped(to, x, (batch, channels // factor ** 2, factor, factor, height, width))
    return replace(reshaped(to, permute(to, split_up, [0, 1, 4, 2, 5, 3]), to.shape))


def _read(to: Importer, x: Value, shape: tuple[Any, ...]) -> Value:
    if len(shape) not in _RANKS or any(not isinstance(n, int) or n == 0 for n in shape):
        raise to.refuse(f"{x.name} as {text_of(shape)}", "two to six axes")
    return replace(to.add("read", parameters=(x,), shape=None if shape == x.shape
                          else list(shape)), shape=shape)


def _extent(to: Importer, x: Value, dim: int) -> int:
    extent = x.shape[dim]
    if isinstance(extent, int):
        return extent
    raise to.refuse(f"parts of {text_of(x.shape)} along axis {dim}",
                    "parts along another axis than the batch")
