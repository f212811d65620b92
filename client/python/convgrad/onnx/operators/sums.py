"""Steps that reduce axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import text_of
from convgrad.onnx.operators.elements import of_each
from convgrad.onnx.operators.moves import numbers
from convgrad.onnx.operators.views import axis_in, reshaped
from convgrad.onnx.values import Node, Operand, Value
from convgrad.shapes import axis_of


def reduced(operator: str, before: str = "", after: str = "") -> Callable[..., Value]:
    """Returns the row of a reduction, with steps of each element before and after it."""
    def row(to: Declared, node: Node, x: Operand, axes: Operand = None) -> Value:
        x = to.value(x)
        given = node.numbers("axes", []) if axes is None else numbers(to, axes, "axes")
        if not given and node.get("noop_with_empty_axes", 0):
            raise to.refuse(f"{node.operator} with noop_with_empty_axes", "axes")
        rank = len(x.shape)
        found = sorted(axis_in(to, axis, rank) for axis in given) or list(range(rank))
        if before == "square":
            x = to.add("mul", x, x, shape=x.shape)
        elif before:
            x = of_each(to, before, x)
        y = reduce(to, operator, x, found, bool(node.get("keepdims", 1)))
        return of_each(to, after, y) if after else y

    return row


def reduce(to: Declared, operator: str, x: Value, axes: Sequence[int], keeps: bool) -> Value:
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    shape = kept if keeps else tuple(n for i, n in enumerate(x.shape) if i not in axes)
    if len(set(axes)) != len(axes):
        raise to.refuse(f"a reduction of {text_of(x.shape)} over {list(axes)}",
                        "each axis once")
    of_program = [axis_of(len(x.shape), axis) for axis in axes] or [1]
    y = to.add(operator, x, shape=kept, dim=of_program, keepdim=True)
    return reshaped(to, y, shape)


