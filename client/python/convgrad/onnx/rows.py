"""Computes the indices by which PyTorch's exporter arranges the items of a batch anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convgrad.layouts import Array
from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import Batch, is_known
from convgrad.onnx.operators.moves import numbers
from convgrad.onnx.operators.views import MOST_PLACES, expanded, reshaped, taken
from convgrad.onnx.values import Known, Node, Value


@dataclass(frozen=True)
class Rows:
    """Integers with the batch as first axis: `step` times the item's number, plus `offsets`."""

    step: int
    offsets: Array

    def __str__(self) -> str:
        return "indices that follow from the batch"


def of_rows(to: Declared, node: Node, operands: Sequence[Any]) -> Any:
    """Returns the result of a node whose operands, or whose results, are Rows.

    Returns None for another node.
    Errors: Unimplemented for what isn't a Gather of whole items.
    """
    first, *others = operands or [None]
    if node.operator == "Range" and all(isinstance(one, Known) for one in operands):
        counts = [one.array.reshape(-1)[0] for one in operands]
        return Rows(1, np.zeros((), np.int64)) if counts == [0, Batch(), 1] else None
    if node.operator == "Expand" and all(isinstance(one, Known) for one in operands):
        return _repeated(first.array, others[0].array.reshape(-1))
    if not any(isinstance(one, Rows) for one in operands):
        return None
    if isinstance(first, Rows) and node.operator == "Unsqueeze":
        rank = first.offsets.ndim + 1 + others[0].array.size
        axes = [axis % rank - 1 for axis in numbers(to, others[0], "axes")]
        if min(axes) >= 0:
            return Rows(first.step, np.expand_dims(first.offsets, tuple(axes)))
    if node.operator in ("Add", "Mul"):
        rows, other = (first, others[0]) if isinstance(first, Rows) else (others[0], first)
        if isinstance(other, Known) and other.array.dtype == np.int64:
            return _with_constant(to, node, rows, other.array)
    if node.operator == "Gather" and node.get("axis", 0) == 0 and (
            isinstance(first, Value) or others[0].step == 0):
        first = to.value(first)
        rows = others[0]
        if rows.step == 0:
            one = taken(to, first, 0, rows.offsets)
            return expanded(to, reshaped(to, one, (1, *one.shape)), (Batch(), *one.shape))
        if first.shape == (Batch(rows.step),) and rows.offsets.size and (
                0 <= rows.offsets.min() and rows.offsets.max() < rows.step):
            items = reshaped(to, first, (Batch(), rows.step))
            return taken(to, items, 1, rows.offsets)
    raise to.refuse(f"{node.operator} with indices that follow from the batch",
                    "a Gather of parts of each item")


def _repeated(array: Array, sizes: Array) -> Rows | None:
    """Returns integers that are the same for each item; None for other operands."""
    if array.dtype.kind != "i" or sizes.size < max(array.ndim, 1) or sizes[0] != Batch() or (
            not is_known(sizes[1:])) or array.ndim == sizes.size and len(array) != 1:
        return None
    item = array[0] if array.ndim == sizes.size else array
    shape = np.broadcast_shapes(item.shape, tuple(int(n) for n in sizes[1:]))
    return Rows(0, np.broadcast_to(item, shape)) if math.prod(shape) <= MOST_PLACES else None


def _with_constant(to: Declared, node: Node, rows: Rows, array: Array) -> Rows:
    if node.operator == "Mul" and array.size == 1 and array.ndim <= rows.offsets.ndim + 1 and (
            0 < int(array.reshape(-1)[0]) <= MOST_PLACES):
        factor = int(array.reshape(-1)[0])
        return Rows(rows.step * factor, rows.offsets * factor)
    if array.ndim == rows.offsets.ndim + 1 and len(array) == 1:
        array = array[0]
    if node.operator == "Add" and array.ndim <= rows.offsets.ndim and np.broadcast(
            rows.offsets, array).size <= MOST_PLACES:
        return Rows(rows.step, rows.offsets + array)
    raise to.refuse(f"{node.operator} with indices that follow from the batch",
                    "a constant that is the same for each item")
