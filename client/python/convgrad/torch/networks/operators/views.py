"""Steps that only move elements, by functions with the arguments of ATen's operators."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from convgrad.shapes import MOST_AXES, axis_of, padded
from convgrad.torch.networks.operators.values import Empty, Importer, Value, View, Wide, text_of


def as_value(to: Importer, x: Any, rank: int = 0) -> Any:
    """Returns a parameter as a value, with leading axes of 1 up to `rank`; others as they
    are."""
    if not isinstance(x, Value):
        return x
    shape = padded(x.shape, rank)
    if x.kind == "a parameter":
        return _read(to, x, shape)
    return x if shape == x.shape else reshaped(to, x, shape)


def reshaped(to: Importer, x: Value, shape: Sequence[Any]) -> Value:
    """Returns `x` with these extents, of which one may follow from the batch."""
    shape = tuple(shape)
    if not isinstance(x, Value):
        raise to.refuse(f"a view of {x}", "one of an input, a parameter or a result")
    if x.kind == "a parameter":
        return _read(to, x, shape)
    if shape == x.shape and x.kind != "an input":
        return x
    if len(shape) > MOST_AXES:
        return wide(_in_order(to, x), shape, range(len(shape)))
    if isinstance(x, Wide):
        x = _in_order(to, x)
    sizes = [n if isinstance(n, int) else -1 for n in padded(shape)]
    if sizes.count(-1) > 1 or 0 in sizes:
        raise to.refuse(f"a view of {text_of(x.shape)} as {text_of(shape)}",
                        "one axis that depends on the batch")
    seen = View(("reshape", shape), x, lambda to, base: reshaped(to, base, shape),
                lambda to, base, part: reshaped(to, part, base.shape))
    is_flat = len(x.shape) > 1 and shape == (x.shape[0], math.prod(x.shape[1:]))
    if is_flat:
        return to.add("flatten", x, shape=shape, view=seen)
    return to.add("reshape", x, shape=shape, view=seen, shape_=sizes)


def wide(base: Value, sizes: Sequence[Any], order: Sequence[int]) -> Wide:
    """Returns the value with its extents split into `sizes`, and these permuted."""
    back = sorted(range(len(order)), key=lambda i: order[i])
    seen = View(("wide", *sizes, *order), base, lambda to, base: wide(base, sizes, order),
                lambda to, base, part: reshaped(to, permute(to, part, back), base.shape))
    return Wide(f"{base.name} as {text_of(sizes)} by {list(order)}", base.memory, base.branch,
                shape=tuple(sizes[axis] for axis in order), dtype=base.dtype, time=base.time,
                views=(*base.views, seen), base=base, sizes=tuple(sizes), order=tuple(order),
                to=base.to)


def _in_order(to: Importer, x: Value) -> Value:
    """Returns a value with the elements of `x` in their order, of other extents."""
    if not isinstance(x, Wide):
        return x
    # Runs of axes that stay together, by the first one's place among those above 1.
    places = {axis: i for i, axis in enumerate(
        axis for axis, n in enumerate(x.sizes) if n != 1)}
    runs: dict[int, list[int]] = {}
    first = last = -1
    for axis in x.order:
        if axis in places:
            first = first if places[axis] == last + 1 and runs else places[axis]
            last = places[axis]
            runs.setdefault(first, []).append(axis)
    now = sorted(runs)
    y = x.base
    for i, run in enumerate(runs):
        at = now.index(run)
        if at != i:
            parts = [math.prod(x.sizes[axis] for one in some for axis in runs[one])
                     for some in (now[:i], now[i:at], [run], now[at + 1:])]
            y = permute(to, reshaped(to, y, parts), [0, 2, 1, 3])
            now.insert(i, now.pop(at))
    return y


def groups_of(shape: Sequence[Any], *operands: Sequence[Any]) -> list[list[int]]:
    """Returns axes in groups of neighbours, along which each operand has the extents of
    `shape`, or ones."""
    groups: list[list[int]] = [[]]
    last = None
    for axis, n in enumerate(shape):
        kind = tuple(operand[axis] == n for operand in operands)
        if n != 1 and last not in (None, kind):
            groups.append([])
        groups[-1].append(axis)
        last = last if n == 1 else kind
    return groups


def merged(shape: Sequence[Any], groups: Sequence[Sequence[int]]) -> tuple[Any, ...]:
    """Returns the extents of a tensor that has an axis for each group."""
    return tuple(math.prod(shape[axis] for axis in group) for group in groups)


def view(to: Importer, x: Value, *_: Any) -> Value:
    return x if to.shape == x.shape and x.kind != "an input" else reshaped(to, x, to.shape)


def permute(to: Importer, x: Value, dims: Sequence[int]) -> Value:
    order = [axis % len(x.shape) for axis in dims]
    x = as_value(to, x)
    if order == sorted(order):
        return x
    if isinstance(x, Wide):
        return wide(x.base, x.sizes, [x.order[axis] for axis in order])
    back = sorted(range(len(order)), key=lambda i: order[i])
    seen = View(("permute", *order), x, lambda to, base: permute(to, base, order),
                lambda to, base, part: permute(to, part, back))
    return to.add("permute", x, shape=tuple(x.shape[axis] for axis in order), view=seen,
                  dims=order)


def transpose(to: Importer, x: Value, first: int, second: int) -> Value:
    order = list(range(len(x.shape)))
    order[first], order[second] = order[second], order[first]
    return permute(to, x, order)


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


def cut(to: Importer, x: Value, axis: int, first: int, last: int, step: int = 1) -> Any:
    """Returns the indices [first, last) of an axis, every `step`th."""
    shape = list(x.shape)
    shape[axis] = len(range(first, last, step))
    if not shape[axis]:
        return Empty(tuple(shape))
    if tuple(shape) == x.shape:
        return x
    if isinstance(x, Wide):
        apart = reshaped(to, x, merged(x.shape, [
            range(axis), [axis], range(axis + 1, len(shape))]))
        return reshaped(to, cut(to, apart, 1, first, last, step), shape)
    places = range(first, last, step)
    seen = View(("slice", axis, places), x,
                lambda to, base: cut(to, base, axis, first, last, step),
                lambda to, base, part: _with_part(to, base, part, axis, places))
    return to.add("slice", x, shape=tuple(shape), view=seen,
                  axis=axis_of(len(x.shape), axis), start=first, end=last, step=step)


def _with_part(to: Importer, base: Value, part: Value, axis: int, places: range) -> Value:
    """Returns `base` with `part` at these places of an axis."""
    extent = base.shape[axis]
    if places.step == 1:
        ends = [cut(to, base, axis, *pair) for pair in (
            (0, places.start), (places.stop, extent)) if pair[0] < pair[1]]
        ends.insert(bool(places.start), part)
        return joined(to, ends, axis)
    index = torch.arange(extent)
    index[places.start:places.stop:places.step] = torch.arange(extent, extent + len(places))
    return taken(to, joined(to, [base, part], axis), axis, index)


def select(to: Importer, x: Value, dim: int, index: int) -> Value:
    axis = dim % len(x.shape)
    extent = x.shape[axis]
    if not isinstance(extent, int):
        raise to.refuse(f"one of {text_of(x.shape)}", "an index of another axis than the batch")
    x, index = as_value(to, x), index % extent
    shape = (*x.shape[:axis], *x.shape[axis + 1:])
    if len(shape) < 2 or isinstance(x, Wide):
        return reshaped(to, cut(to, x, axis, index, index + 1), shape)
    seen = View(("select", axis, index), x, lambda to, base: select(to, base, axis, index),
                lambda to, base, part: _with_part(
                    to, base, with_axis(to, part, axis), axis, range(index, index + 1)))
    return to.add("select", x, shape=shape, view=seen, axis=axis, index=index)


def unbind(to: Importer, x: Value, dim: int = 0) -> list[Value]:
    return [select(to, x, dim, i) for i in range(extent_of(to, x, dim))]


def chunk(to: Importer, x: Value, chunks: int, dim: int = 0) -> list[Value]:
    return split(to, x, -(-extent_of(to, x, dim) // chunks), dim)


def split(to: Importer, x: Value, sizes: Any, dim: int = 0) -> list[Value]:
    extent = extent_of(to, x, dim)
    if isinstance(sizes, int):
        sizes = [min(sizes, extent - first) for first in range(0, extent, sizes)]
    x = as_value(to, x)
    return [cut(to, x, dim % len(x.shape), end - size, end)
            for size, end in zip(sizes, itertools.accumulate(sizes))]


def taken(to: Importer, x: Value, dim: int, places: Any) -> Value:
    """Returns the elements of an axis at the places that a tensor of torch.int64 has: a
    parameter, an input or an array."""
    if not isinstance(places, Value):
        places = to.constant(torch.as_tensor(places))
    axis = dim % len(x.shape)
    shape = (*x.shape[:axis], *places.shape, *x.shape[axis + 1:])
    y = to.add("index_select", x, parameters=(to.indices(places),),
               shape=shape if len(x.shape) > 1 else (1, *shape),
               axis=axis_of(len(x.shape), dim))
    return reshaped(to, y, shape)


def joined(to: Importer, values: Sequence[Value], dim: int) -> Value:
    """Returns values of equal ranks, one behind the other along an axis."""
    if len(values) == 1:
        return values[0]
    shape = list(values[0].shape)
    shape[dim] = sum(value.shape[dim] for value in values)
    axis = axis_of(len(shape), dim)
    return to.add("concat", *values, shape=tuple(shape), axis=None if axis == 1 else axis)


def stacked(to: Importer, values: Sequence[Value], axis: int) -> Value:
    """Returns values of equal shapes along a new axis."""
    return joined(to, [with_axis(to, one, axis) for one in values], axis)


def with_axis(to: Importer, x: Value, axis: int) -> Value:
    return reshaped(to, x, (*x.shape[:axis], 1, *x.shape[axis:]))


def expand(to: Importer, x: Value, *_: Any) -> Value:
    return expanded(to, x, to.shape)


def expanded(to: Importer, x: Value, shape: Sequence[Any]) -> Value:
    """Repeats axes of extent 1, the first one to the batch of another value."""
    shape = tuple(shape)
    if shape == x.shape:
        return x
    x = as_value(to, x, len(shape))
    if len(shape) > MOST_AXES:
        groups = groups_of(shape, x.shape)
        y = expanded(to, reshaped(to, x, merged(x.shape, groups)), merged(shape, groups))
        return reshaped(to, y, shape)
    opened = [i for i, n in enumerate(shape) if not isinstance(n, int) and n != x.shape[i]]
    if opened not in ([], [0]) or opened and len(shape) == 1:
        raise to.refuse(f"an expand to {text_of(shape)}", "a batch that comes first")
    sizes = [n if isinstance(n, int) else -1 for n in padded(shape)]
    seen = View(("expand", shape), x, lambda to, base: expanded(to, base, shape))
    return to.add("expand", x, *[to.like(shape[i]) for i in opened], shape=shape, view=seen,
                  shape_=sizes)


def _read(to: Importer, x: Value, shape: tuple[Any, ...]) -> Value:
    if x.dtype not in (torch.float32, torch.bool):
        if to.dtype != x.dtype:
            raise to.refuse(f"{x.name}, a parameter of {x.dtype}", "torch.float32")
        seen = View(("reshape", shape), x, lambda to, base: _read(to, base, shape))
        return x if shape == x.shape else replace(x, shape=shape, views=(*x.views, seen))
    sizes = padded(shape)
    if len(x.shape) > MOST_AXES:
        raise to.refuse(f"{x.name}, a parameter of {text_of(x.shape)}", "at most six axes")
    if len(sizes) > MOST_AXES:
        return reshaped(to, _read(to, x, x.shape), shape)
    if any(not isinstance(n, int) or n == 0 for n in sizes):
        raise to.refuse(f"{x.name} as {text_of(shape)}", "elements, of any batch")
    seen = View(("read", shape), x, lambda to, base: _read(to, base, shape))
    return to.add("read", parameters=(x,), shape=shape, view=seen,
                  shape_=None if sizes == x.shape else list(sizes))


def extent_of(to: Importer, x: Value, dim: int) -> int:
    extent = x.shape[dim]
    if isinstance(extent, int):
        return extent
    raise to.refuse(f"parts of {text_of(x.shape)} along axis {dim}",
                    "parts along another axis than the batch")
