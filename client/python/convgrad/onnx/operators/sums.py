"""Steps that sum along axes, or reduce them otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import text_of
from convgrad.onnx.operators.elements import of_each
from convgrad.onnx.operators.moves import numbers
from convgrad.onnx.operators.views import axis_in, cut, known_sizes, permuted, reshaped
from convgrad.onnx.values import Node, Operand, Value
from convgrad.shapes import axis_of


def reduced(operator: str, before: str = "", after: str = "") -> Callable[..., Value]:
    """Returns the row of a reduction, with steps of each element before and after it."""
    def row(to: Declared, node: Node, x: Value, axes: Operand = None) -> Value:
        given = node.numbers("axes", []) if axes is None else numbers(to, axes, "axes")
        if not given and node.get("noop_with_empty_axes", 0):
            raise to.refuse(f"{node.operator} with noop_with_empty_axes", "axes")
        rank = len(x.shape)
        found = sorted(axis_in(to, axis, rank) for axis in given) or list(range(rank))
        if before == "square":
            x = x * x
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


def cumsum(to: Declared, node: Node, x: Value, axis: Operand) -> Value:
    """Sums of 2, 4, 8, ... elements up to each one. No element reaches others' sums."""
    axes, rank = numbers(to, axis, "axes"), len(x.shape)
    if len(axes) != 1:
        raise to.refuse(f"CumSum along {len(axes)} axes", "one axis")
    place = axis_in(to, axes[0], rank)
    (extent,) = known_sizes(to, x, [place])
    order = [*(i for i in range(rank) if i != place), place]
    is_reverse = bool(node.get("reverse", 0))

    def moved(x: Value, by: int) -> Value:
        wide = to.add("pad", x, shape=(*x.shape[:-1], extent + by),
                      pads=[0, by] if is_reverse else [by, 0], mode="constant")
        first = by if is_reverse else 0
        return cut(to, wide, rank - 1, first, first + extent)

    y, step = permuted(to, x, order), 1
    while step < extent:
        y, step = y + moved(y, step), 2 * step
    if node.get("exclusive", 0):
        y = moved(y, 1)
    return permuted(to, y, [order.index(i) for i in range(rank)])
