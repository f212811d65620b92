"""Masks that follow from data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from convgrad.importers import masks
from convgrad.onnx.declared import Declared
from convgrad.onnx.operators import elements
from convgrad.onnx.operators.elements import as_numbers
from convgrad.onnx.operators.views import common_shape, reshaped
from convgrad.onnx.values import Known, Node, Operand, Value

_BOOL = 9  # TensorProto.BOOL


def compare(operator: str) -> Callable[..., Value]:
    """Returns the row of a comparison."""
    def row(to: Declared, node: Node, x: Operand, y: Operand) -> Value:
        for one in (x, y):
            if isinstance(one, Known):
                to.compared[one.name] += 1
                if to.compared[one.name] == to.uses[one.name]:  # no gradient reaches it
                    to.fixed.add(one.name)
        shape = common_shape(to, x, y)
        found = masks.compared(to, operator, *_operands(to, x, y))
        return _mask(reshaped(to, found, shape))

    return row


def _operands(to: Declared, *operands: Operand) -> list[Any]:
    """Returns two values, or a value and the number, which may be infinite, of a constant of
    one element."""
    found: list[Any] = [as_numbers(to, one) for one in operands]
    for i, one in enumerate(operands):
        is_number = isinstance(one, Known) and one.array.size == 1 and to.may_move(one) and (
            not np.isnan(one.array).any())
        if isinstance(one, Known) and is_number and isinstance(found[1 - i], Value):
            found[i] = float(one.array.reshape(-1)[0])
    return found


def cast(to: Declared, node: Node, x: Operand) -> Value:
    if node.get("to") != _BOOL:
        return elements.cast(to, node, x)
    if isinstance(x, Value) and x.dtype == "bool":
        return x
    return _mask(masks.is_not_zero(as_numbers(to, x)))


def sign(to: Declared, node: Node, x: Value) -> Value:
    return masks.sign(x)


def is_nan(to: Declared, node: Node, x: Operand) -> Value:
    x = as_numbers(to, x)
    return _mask(masks.compared(to, "ne", x, x))


def is_nan_of(mask: Value, x: Value) -> bool:
    """Returns whether the mask is is_nan() of this value."""
    is_inverted = mask.source.operator == "eq" and mask.source.attributes == {"other": 0.0}
    equal = mask.source.operands[0] if is_inverted else None
    return equal is not None and equal.operator == "eq" and len(equal.operands) == 2 and all(
        one is x.source for one in equal.operands)


def is_infinite(to: Declared, node: Node, x: Operand) -> Value:
    x = as_numbers(to, x)
    positive, negative = node.get("detect_positive", 1), node.get("detect_negative", 1)
    if positive and negative:
        x = elements.of_each(to, "abs", x)
    operator = "eq" if positive or negative else "lt"  # nothing is less than minus infinity
    return _mask(masks.compared(to, operator, x, math.inf if positive else -math.inf))


def logical(operator: str) -> Callable[..., Value]:
    """Returns the row of an operator of masks: "and", "or", "xor" or "not"."""
    def row(to: Declared, node: Node, *operands: Operand) -> Value:
        for one in operands:
            if getattr(getattr(one, "array", one), "dtype", "") != "bool":
                raise to.refuse(f"{node.operator} with {one}", "masks")
        x, *others = (as_numbers(to, one) for one in operands)
        found = masks.joined(operator, x, *others) if others else masks.inverted(x)
        return _mask(found)

    return row


def _mask(x: Value) -> Value:
    return replace(x, dtype="bool")


def chosen(to: Declared, mask: Operand, x: Operand, y: Operand) -> Value:
    """Returns the elements of `x` where the mask is 1, and of `y` where it is 0."""
    for one in (x, y):
        to.value(one)  # refuses other dtypes than floats
        if isinstance(one, Known) and one.array.size == 1:
            to.fixed.add(one.name)  # as other single numbers, which exporters make of constants
    shape = common_shape(to, mask, x, y)
    found = masks.chosen(as_numbers(to, mask), *_operands(to, x, y))
    return reshaped(to, found, shape)
