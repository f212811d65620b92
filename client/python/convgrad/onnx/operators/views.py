"""Steps that change a value's shape, or select a part of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import Batch, Extent, Shape, is_known, text_of
from convgrad.onnx.values import Known, Operand, Value
from convgrad.shapes import MOST_AXES, axis_of, broadcast, padded

Moved = TypeVar("Moved", Value, Known)
MOST_PLACES = 2**24
"""Most numbers that are computed for a node."""


def reshaped(to: Declared, x: Moved, shape: Sequence[Extent]) -> Moved:
    """Returns the value or the constant with another shape of as many elements."""
    shape = tuple(shape)
    if math.prod(x.shape) != math.prod(shape):
        raise to.refuse(f"a reshape of {text_of(x.shape)} to {text_of(shape)}",
                        "as many elements, for each batch")
    if isinstance(x, Known):
        return replace(x, array=x.array.reshape(shape))  # type: ignore[arg-type]
    if padded(shape) == padded(x.shape):
        return replace(x, shape=shape)
    sizes = [-1 if isinstance(n, Batch) else n for n in padded(shape)]
    if sizes.count(-1) > 1:
        raise to.refuse(f"a reshape to {text_of(shape)}", "one axis of the batch")
    return to.add("reshape", x, shape=shape, shape_=sizes)


def permuted(to: Declared, x: Moved, order: Sequence[int]) -> Moved:
    if list(order) == sorted(order):
        return x
    if isinstance(x, Known):
        return replace(x, array=x.array.transpose(order))
    return to.add("permute", x, shape=tuple(x.shape[axis] for axis in order), dims=list(order))


def expanded(to: Declared, x: Value, shape: Sequence[Extent]) -> Value:
    """Repeats axes of extent 1, the first one to the batch of another value."""
    shape = tuple(shape)
    if x.shape == shape:
        return x
    if len(shape) > MOST_AXES:
        raise to.refuse(f"an expand to {text_of(shape)}", "at most six axes")
    if len(shape) == 1 and isinstance(shape[0], Batch):  # (1, N) in a program
        column = expanded(to, reshaped(to, x, (*padded(x.shape, 1), 1)), (*shape, 1))
        return reshaped(to, column, shape)
    x = reshaped(to, x, padded(x.shape, len(shape)))
    if any(m not in (1, n) for m, n in zip(x.shape, shape)):
        raise to.refuse(f"an expand of {text_of(x.shape)} to {text_of(shape)}",
                        "extents that are equal, or 1")
    if x.shape == shape:
        return x
    opened = [i for i, n in enumerate(shape) if isinstance(n, Batch) and n != x.shape[i]]
    if opened not in ([], [0]):
        raise to.refuse(f"an expand to {text_of(shape)}", "a batch that comes first")
    sizes = [-1 if isinstance(n, Batch) else n for n in padded(shape)]
    y = to.add("expand", x, *(to.like(shape[i]) for i in opened), shape=padded(shape),
               shape_=sizes)
    return replace(y, shape=shape)


def cut(to: Declared, x: Value, axis: int, first: int, last: int, step: int = 1) -> Value:
    """Returns the indices [first, last) of an axis, every `step`th."""
    extent = x.shape[axis]
    if isinstance(extent, Batch):
        raise to.refuse(f"a part of {text_of(x.shape)} along axis {axis}",
                        "all of the batch, or a part of another axis")
    places = range(first, last, step)
    if places == range(extent):
        return x
    shape = (*x.shape[:axis], len(places), *x.shape[axis + 1:])
    return to.add("slice", x, shape=shape, axis=axis_of(len(x.shape), axis), start=first,
                  end=last, step=step)


def cut_into(to: Declared, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """Returns parts of these sizes along an axis, one behind the other."""
    return [cut(to, x, axis, end - size, end)
            for size, end in zip(sizes, itertools.accumulate(sizes))]


def taken(to: Declared, x: Value, axis: int, places: Any) -> Value:
    """Returns the elements of an axis at the places, whose axes replace it."""
    extent = x.shape[axis]
    if isinstance(extent, Batch):
        raise to.refuse(f"an index of {text_of(x.shape)} along axis {axis}",
                        "another axis than the batch")
    places = np.asarray(places, dtype=np.int64)
    if places.size and not (places.min() >= -extent and places.max() < extent):
        raise to.refuse(f"an index from {places.min()} to {places.max()}",
                        f"places from {-extent} to {extent - 1}")
    places = np.where(places < 0, places + extent, places)
    shape = (*x.shape[:axis], *places.shape, *x.shape[axis + 1:])
    if places.size == 1:
        place = int(places.reshape(-1)[0])
        return reshaped(to, cut(to, x, axis, place, place + 1), shape)
    flat = places.reshape(-1)
    y = to.add("index_select", x, axis=axis_of(len(x.shape), axis),
               parameters=(to.parameter(Known(flat), dtype="i64"),),
               shape=(*x.shape[:axis], len(flat), *x.shape[axis + 1:]))
    return reshaped(to, y, shape)


def joined(to: Declared, values: Sequence[Value], axis: int) -> Value:
    """Returns values of equal ranks, one behind the other along an axis."""
    first, rank = values[0], len(values[0].shape)
    if any(len(one.shape) != rank or any(m != n for i, (m, n) in enumerate(
            zip(one.shape, first.shape)) if i != axis) for one in values):
        raise to.refuse(f"Concat of {', '.join(text_of(one.shape) for one in values)}",
                        "equal extents along the other axes")
    if len(values) == 1:
        return first
    extent: Any = 0
    for one in values:
        extent = one.shape[axis] + extent
    shape = (*first.shape[:axis], extent, *first.shape[axis + 1:])
    place = axis_of(rank, axis)
    return to.add("concat", *values, shape=shape, axis=None if place == 1 else place)


def of_channels(to: Declared, operand: Operand, rank: int) -> Value:
    """Returns numbers, one for each channel, as a value of `rank` axes to broadcast."""
    return reshaped(to, to.value(operand), (1, *operand.shape, *[1] * (rank - 2)))


def known_sizes(to: Declared, x: Value, axes: Sequence[int]) -> list[int]:
    """Returns these extents, which don't depend on the batch."""
    sizes = [x.shape[axis] for axis in axes]
    if not is_known(sizes):
        raise to.refuse(f"{text_of(x.shape)} along the axes {list(axes)}",
                        "sizes that don't depend on the batch")
    return [int(n) for n in sizes if isinstance(n, int)]


def common_shape(to: Declared, *operands: Any) -> Shape:
    """Returns the shape to which the operands are broadcast."""
    shape = broadcast(*(one.shape for one in operands))
    if shape is None:
        found = ", ".join(text_of(one.shape) for one in operands)
        raise to.refuse(f"{to.node.operator} of {found}",
                        "operands whose extents are equal, or 1")
    return shape


def axis_in(to: Declared, axis: int, rank: int) -> int:
    """Returns an axis from 0 on."""
    if not -rank <= axis < max(rank, 1):
        raise to.refuse(f"axis {axis} of {rank} axes", f"an axis below {rank}")
    return axis % max(rank, 1)
