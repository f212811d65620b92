"""Masks that follow from data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from convgrad.importers import masks
from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import text_of
from convgrad.onnx.operators import elements
from convgrad.onnx.operators.elements import as_numbers, of_each
from convgrad.onnx.values import Known, Node, Operand, Value
from convgrad.shapes import broadcast

_BOOL = 9  # TensorProto.BOOL


def compare(operator: str) -> Callable[..., Value]:
    """Returns the row of a comparison. A NaN gives NaN, and so do equal infinities."""
    def row(to: Declared, node: Node, x: Operand, y: Operand) -> Value:
        for one in (x, y):
            if isinstance(one, Known) and to.may_move(one):
                to.fixed.add(one.name)  # no other node has it, so that no gradient reaches it
        x, y = (of_each(to, "detach", as_numbers(to, one)) for one in (x, y))
        if x.source.operands[0] is y.source.operands[0]:
            raise to.refuse(f"{node.operator} of a tensor and itself", "two tensors")
        return _mask(masks.compared(to, operator, x, y))

    return row


def cast(to: Declared, node: Node, x: Operand) -> Value:
    if node.get("to") != _BOOL:
        return elements.cast(to, node, x)
    if isinstance(x, Value) and x.dtype == "bool":
        return x
    return _mask(masks.is_not_zero(of_each(to, "detach", as_numbers(to, x))))


def sign(to: Declared, node: Node, x: Operand) -> Value:
    return masks.sign(of_each(to, "detach", to.value(x)))


def logical(operator: str) -> Callable[..., Value]:
    """Returns the row of an operator of masks: "and", "or", "xor" or "not"."""
    def row(to: Declared, node: Node, *operands: Operand) -> Value:
        for one in operands:
            if getattr(getattr(one, "array", one), "dtype", "") != "bool":
                raise to.refuse(f"{node.operator} with {one}", "masks")
        x, *others = (as_numbers(to, one) for one in operands)
        return _mask(1 - x if operator == "not" else masks.joined(operator, x, *others))

    return row


def _mask(x: Value) -> Value:
    return replace(x, dtype="bool")


def chosen(to: Declared, mask: Value, x: Operand, y: Operand) -> Value:
    """Returns the elements of `x` where the mask is 1, and of `y` where it is 0."""
    for one in (x, y):
        if isinstance(one, Known) and one.array.size == 1:
            to.fixed.add(one.name)  # as other single numbers, which exporters make of constants
    mask, x, y = as_numbers(to, mask), to.value(x), to.value(y)
    return masks.chosen(mask, x, y, shape_of_where(to, mask, x, y))


def shape_of_where(to: Declared, *operands: Operand) -> tuple[Any, ...]:
    shape = broadcast(*(one.shape for one in operands))
    if shape is None:
        raise to.refuse("Where of " + ", ".join(text_of(one.shape) for one in operands),
                        "operands whose extents are equal, or 1")
    return shape
