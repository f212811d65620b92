"""Steps that only move elements, by functions with the arguments of ATen's operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from convgrad.torch.networks.operators.values import (
    Importer,
    Value,
    axis_of,
    padded,
    text_of,
)

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
    if x.kind == "a parameter":
        return _read(to, x, shape)
    sizes = [n if isinstance(n, int) else -1 for n in padded(shape)]
    if sizes.count(-1) > 1 or len(sizes) not in _RANKS or 0 in sizes:
        raise to.refuse(f"a view of {text_of(x.shape)} as {text_of(shape)}",
                        "at most six axes, one of which depends on the batch")
    return replace(to.add("reshape", x, view_of=x, shape=sizes), shape=shape)


def view(to: Importer, x: Value, *_: Any) -> Value:
    if to.shape == x.shape and x.kind != "an input":
        return x
    if x.kind == "a parameter":
        return _read(to, x, to.shape)
    if len(to.shape) == 2 and to.shape == (*x.shape[:1], math.prod(x.shape[1:])):
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
    return permute(to, x, range(len(x.shape))[::-1])


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
    return replace(to.add("slice", x, view_of=x, axis=axis_of(x.shape, axis), start=first,
                          end=last, step=step), shape=tuple(shape))


def select(to: Importer, x: Value, dim: int, index: int) -> Value:
    axis = dim % len(x.shape)
    extent = x.shape[axis]
    if not isinstance(extent, int):
        raise to.refuse(f"one of {text_of(x.shape)}", "an index of another axis than the batch")
    x, index = as_value(to, x), index % extent
    shape = (*x.shape[:axis], *x.shape[axis + 1:])
    if len(shape) < 2:
        return reshaped(to, cut(to, x, axis, index, index + 1), shape)
    return replace(to.add("select", x, view_of=x, axis=axis, index=index), shape=shape)


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


def tensor_split(to: Importer, x: Value, indices: Any, dim: int = 0) -> list[Value]:
    extent = _extent(to, x, dim)
    if isinstance(indices, int):
        first = extent // indices
        sizes = [first + (i < extent % indices) for i in range(indices)]
    else:
        at = [0, *(min(n % extent if n < 0 else n, extent) for n in indices), extent]
        sizes = [last - first for first, last in zip(at, at[1:])]
    return split(to, x, sizes, dim)


def index(to: Importer, x: Value, indices: Sequence[Any]) -> Value:
    """Places along one axis, which a buffer or a constant has."""
    given = [(axis, one) for axis, one in enumerate(indices) if one is not None]
    if len(given) != 1:
        raise to.refuse(f"an index of {len(given)} axes", "one axis")
    return index_select(to, x, given[0][0], given[0][1])


def index_select(to: Importer, x: Value, dim: int, places: Any) -> Value:
    if not isinstance(places, Value) or places.dtype != torch.int64 or (
            places.kind != "a parameter"):
        raise to.refuse("an index that follows from data", "a buffer of torch.int64")
    if not isinstance(x.shape[dim], int):
        raise to.refuse(f"an index of {text_of(x.shape)} along axis {dim}",
                        "another axis than the batch")
    x = as_value(to, x)
    y = to.add("index_select", x, parameters=(places,), axis=axis_of(x.shape, dim))
    return reshaped(to, y, to.shape)


def repeat_interleave(to: Importer, x: Value, repeats: Any, dim: int | None = None,
                      *_: Any) -> Value:
    """Repeats each element of an axis."""
    if not isinstance(repeats, int) or dim is None:
        raise to.refuse("repeat_interleave without an axis", "a number and an axis")
    axis = dim % len(x.shape)
    before, after = x.shape[:axis + 1], x.shape[axis + 1:]
    apart = reshaped(to, x, (*before, 1, *after))
    return reshaped(to, expanded(to, apart, (*before, repeats, *after)), to.shape)


def repeat(to: Importer, x: Value, repeats: Sequence[Any]) -> Value:
    """Repeats whole axes; the first one can only be 1, repeated to the batch."""
    rank = len(repeats)
    x = as_value(to, x, rank)
    for axis in range(rank - 1, -1, -1):
        n, shape = repeats[axis], x.shape
        if n == 1:
            continue
        if shape[axis] == 1:
            x = expanded(to, x, (*shape[:axis], n, *shape[axis + 1:]))
            continue
        apart = reshaped(to, x, (*shape[:axis], 1, *shape[axis:]))
        wide = expanded(to, apart, (*shape[:axis], n, *shape[axis:]))
        x = reshaped(to, wide, (*shape[:axis], n * shape[axis], *shape[axis + 1:]))
    return x


def concat(to: Importer, tensors: Sequence[Any], dim: int = 0) -> Value:
    values = [as_value(to, tensor) for tensor in tensors]
    axis = axis_of(to.shape, dim)
    if len(values) == 1:
        return to.copy(values[0])
    if any(len(value.shape) != len(to.shape) for value in values):
        raise to.refuse("cat with a tensor without elements", "tensors of equal ranks")
    return to.add("concat", *values, axis=None if axis == 1 else axis)


def stack(to: Importer, tensors: Sequence[Any], dim: int = 0) -> Value:
    axis = dim % len(to.shape)
    return concat(to, [reshaped(to, as_value(to, one), (
        *one.shape[:axis], 1, *one.shape[axis:])) for one in tensors], dim)


def expand(to: Importer, x: Value, *_: Any) -> Value:
    return expanded(to, x, to.shape)


def expanded(to: Importer, x: Value, shape: Sequence[Any]) -> Value:
    """Repeats axes of extent 1, the first one to the batch of another value."""
    shape = tuple(shape)
    if shape == x.shape:
        return x
    x = as_value(to, x, len(shape))
    opened = [i for i, n in enumerate(shape) if not isinstance(n, int) and n != x.shape[i]]
    if opened not in ([], [0]) or opened and len(shape) == 1:
        raise to.refuse(f"an expand to {text_of(shape)}", "a batch that comes first")
    sizes = [n if isinstance(n, int) else -1 for n in padded(shape)]
    return replace(to.add("expand", x, *[to.like(shape[i]) for i in opened], shape=sizes),
                   shape=shape)


def roll(to: Importer, x: Value, shifts: Any, dims: Any = ()) -> Value:
    for shift, dim in zip(*(([n] if isinstance(n, int) else n) for n in (shifts, dims))):
        extent, axis = _extent(to, x, dim), dim % len(x.shape)
        if shift % extent:
            first = extent - shift % extent
            parts = cut(to, x, axis, first, extent), cut(to, x, axis, 0, first)
            x = replace(concat(to, parts, axis), shape=x.shape)
    return x


def pixel_shuffle(to: Importer, x: Value, factor: int) -> Value:
    batch, channels, height, width = _image(to, x)
    split_up = reshaped(to, x, (batch, channels // factor ** 2, factor, factor, height, width))
    return reshaped(to, permute(to, split_up, [0, 1, 4, 2, 5, 3]), to.shape)


def pixel_unshuffle(to: Importer, x: Value, factor: int) -> Value:
    batch, channels, height, width = _image(to, x)
    split_up = reshaped(to, x, (batch, channels, height // factor, factor, width // factor,
                                factor))
    return reshaped(to, permute(to, split_up, [0, 1, 3, 5, 2, 4]), to.shape)


def _image(to: Importer, x: Value) -> tuple[Any, ...]:
    if len(x.shape) == 4:
        return x.shape
    raise to.refuse(f"pixels of {text_of(x.shape)}", "four axes")


def _read(to: Importer, x: Value, shape: tuple[Any, ...]) -> Value:
    if x.dtype != torch.float32:
        if to.dtype != x.dtype:
            raise to.refuse(f"{x.name}, a parameter of {x.dtype}", "torch.float32")
        return replace(x, shape=shape)  # an index, of which the order alone counts
    sizes = padded(shape)
    if not x.shape:
        raise to.refuse(f"{x.name}, a parameter without axes", "one axis at least")
    if len(sizes) not in _RANKS or any(not isinstance(n, int) or n == 0 for n in sizes):
        raise to.refuse(f"{x.name} as {text_of(shape)}", "at most six axes")
    return replace(to.add("read", parameters=(x,), shape=None if sizes == x.shape
                          else list(sizes)), shape=shape)


def _extent(to: Importer, x: Value, dim: int) -> int:
    extent = x.shape[dim]
    if isinstance(extent, int):
        return extent
    raise to.refuse(f"parts of {text_of(x.shape)} along axis {dim}",
                    "parts along another axis than the batch")
