"""Steps that take elements by their places."""

from __future__ import annotations

import math

import numpy as np

from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import Batch, is_known, text_of
from convgrad.onnx.operators.attention import without_gaps
from convgrad.onnx.operators.masks import chosen
from convgrad.onnx.operators.moves import constant
from convgrad.onnx.operators.views import (
    axis_in,
    known_sizes,
    reshaped,
    taken,
)
from convgrad.onnx.values import INDICES, Known, Node, Operand, Value


def gather(to: Declared, node: Node, x: Value, index: Operand) -> Value:
    axis = node.get("axis", 0)
    if isinstance(index, Value) and index.dtype in INDICES:
        return _by_input(to, x, axis, index)
    places = constant(to, index, "indices")
    if places.dtype == object:
        raise to.refuse("Gather at places that depend on the batch", "numbers")
    return taken(to, x, axis_in(to, axis, len(x.shape)), places)


def gather_nd(to: Declared, node: Node, x: Value, index: Operand) -> Value:
    places = constant(to, index, "indices")
    count = places.shape[-1] if places.ndim else 0
    if node.get("batch_dims", 0) or places.dtype == object or not 1 <= count <= len(x.shape):
        raise to.refuse(f"GatherND of {text_of(x.shape)} by indices of {text_of(places.shape)} "
                        f"with batch_dims={node.get('batch_dims', 0)}",
                        "numbers, along the first axes, and batch_dims=0")
    sizes = known_sizes(to, x, range(count))
    if (places < np.negative(sizes)).any() or (places >= sizes).any():
        raise to.refuse(f"an index from {places.min()} to {places.max()}",
                        f"places in {text_of(sizes)}")
    rows = reshaped(to, x, (math.prod(sizes), *x.shape[count:]))
    strides = [math.prod(sizes[i + 1:]) for i in range(count)]
    return taken(to, rows, 0, (places % sizes) @ np.array(strides))


def _by_input(to: Declared, x: Value, axis: int, index: Value) -> Value:
    """Returns the elements of an axis at the places that an input of each run has."""
    axis = axis_in(to, axis, len(x.shape))
    if index.source.operator:
        raise to.refuse(f"{to.node.operator} by {index.dtype} that other nodes compute",
                        "an input, or constants")
    if isinstance(x.shape[axis], Batch) or not (is_known(x.shape) or is_known(index.shape)):
        raise to.refuse(f"Gather of {text_of(x.shape)} along axis {axis} by "
                        f"{text_of(index.shape)}", "the batch in one of them, on another axis")
    if len(x.shape) == 1:
        column = _by_input(to, reshaped(to, x, (*x.shape, 1)), 0, index)
        return reshaped(to, column, index.shape)
    return to.add("index_select", x, axis=axis, parameters=(index.source,),
                  shape=(*x.shape[:axis], *index.shape, *x.shape[axis + 1:]))


def trilu(to: Declared, node: Node, x: Value, diagonal: Operand = None) -> Value:
    """Zeros where matrices are above or below a diagonal."""
    first = 0 if diagonal is None else int(constant(to, diagonal, "k").reshape(()))
    part = np.triu if node.get("upper", 1) else np.tril
    kept = part(np.ones(known_sizes(to, x, (-2, -1)), bool), first)
    return chosen(to, Known(kept), x, Known(np.zeros((), np.float32)))


def where(to: Declared, node: Node, mask: Operand, x: Operand, y: Operand) -> Value:
    dtype = getattr(getattr(mask, "array", mask), "dtype", mask)
    if dtype != "bool":
        raise to.refuse(f"Where by a mask of {dtype}", "booleans")
    found = without_gaps(to, node, mask, x, y) if isinstance(mask, Value) else None
    return chosen(to, mask, x, y) if found is None else found
