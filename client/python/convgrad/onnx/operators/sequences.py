"""Sequences of tensors, as PyTorch's exporter without optimization splits values."""

from __future__ import annotations

import itertools

from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import text_of
from convgrad.onnx.operators.moves import constant, numbers
from convgrad.onnx.operators.views import axis_in, cut, known_sizes, reshaped
from convgrad.onnx.values import Node, Operand, Parts, Value

_MOST_PARTS = 4096


def split_to_sequence(to: Declared, node: Node, x: Operand, sizes: Operand = None) -> Parts:
    x = to.value(x)
    axis = axis_in(to, node.get("axis", 0), len(x.shape))
    (extent,) = known_sizes(to, x, [axis])
    given = [1] if sizes is None else numbers(to, sizes, "sizes")
    if (sizes is None or not sizes.shape) and 0 < given[0] and extent <= given[0] * _MOST_PARTS:
        size = given[0]
        given = [min(size, extent - first) for first in range(0, extent, size)]
    if sum(given) != extent or min(given) < 1:
        raise to.refuse(f"SplitToSequence of {text_of(x.shape)} into {given[:9]}",
                        "sizes from 1 on that are the axis' extent together")
    ends = itertools.accumulate(given)
    parts = [cut(to, x, axis, end - size, end) for size, end in zip(given, ends)]
    if sizes is None and not node.get("keepdims", 1):
        parts = [reshaped(to, one, (*x.shape[:axis], *x.shape[axis + 1:])) for one in parts]
    return Parts(parts)


def sequence_at(to: Declared, node: Node, parts: Operand, position: Operand) -> Value:
    place = int(constant(to, position, "positions").reshape(()))
    if not isinstance(parts, Parts):
        raise to.refuse(f"SequenceAt of {parts}", "the result of SplitToSequence")
    if not -len(parts.values) <= place < len(parts.values):
        raise to.refuse(f"SequenceAt at {place}", f"a place below {len(parts.values)}")
    return parts.values[place]
