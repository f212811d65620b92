"""Masks that follow from data: values of ones and zeros, without a gradient.

A choice by a mask is exact, and keeps what isn't chosen out of values and gradients, NaN
included: `prelu` is its first operand where this is above 0, whatever the second one is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import text_of
from convgrad.onnx.operators import elements
from convgrad.onnx.operators.elements import as_numbers, binary, of_each, with_number
from convgrad.onnx.operators.views import expanded, reshaped
from convgrad.onnx.values import Known, Node, Operand, Value
from convgrad.shapes import broadcast, padded

_BOOL = 9  # TensorProto.BOOL
# Two such factors make any number of float32 above 0 more than 1, or infinite.
_LARGE = 2.0**126


def compare(operator: str) -> Callable[..., Value]:
    """Returns the row of a comparison. A NaN gives NaN, and so do equal infinities."""
    def row(to: Declared, node: Node, x: Operand, y: Operand) -> Value:
        for one in (x, y):
            if isinstance(one, Known) and to.may_move(one):
                to.fixed.add(one.name)  # no other node has it, so that no gradient reaches it
        x, y = (of_each(to, "detach", as_numbers(to, one)) for one in (x, y))
        if x.source.operands[0] is y.source.operands[0]:
            raise to.refuse(f"{node.operator} of a tensor and itself", "two tensors")
        if operator in ("lt", "ge"):
            x, y = y, x
        found = binary(to, "sub", x, y)
        found = _is_positive(to, of_each(to, "abs", found) if operator == "eq" else found)
        return _inverted(to, found) if operator in ("le", "ge", "eq") else _mask(found)

    return row


def cast(to: Declared, node: Node, x: Operand) -> Value:
    if node.get("to") != _BOOL:
        return elements.cast(to, node, x)
    if isinstance(x, Value) and x.dtype == "bool":
        return x
    x = of_each(to, "detach", as_numbers(to, x))
    return _mask(_is_positive(to, of_each(to, "abs", x)))


def sign(to: Declared, node: Node, x: Operand) -> Value:
    x = of_each(to, "detach", to.value(x))
    minus = _is_positive(to, of_each(to, "neg", x))
    return to.add("sub", _is_positive(to, x), minus, shape=x.shape)


def logical(operator: str) -> Callable[..., Value]:
    """Returns the row of an operator of masks: "and", "or", "xor" or "not"."""
    def row(to: Declared, node: Node, *operands: Operand) -> Value:
        for one in operands:
            if getattr(getattr(one, "array", one), "dtype", "") != "bool":
                raise to.refuse(f"{node.operator} with {one}", "masks")
        x, *others = (as_numbers(to, one) for one in operands)
        if operator == "not":
            return _inverted(to, x)
        y = binary(to, {"and": "mul", "or": "maximum", "xor": "sub"}[operator], x, *others)
        return _mask(of_each(to, "abs", y) if operator == "xor" else y)

    return row


def _is_positive(to: Declared, x: Value) -> Value:
    for _ in range(2):
        x = with_number(to, "mul", x, _LARGE)
    return of_each(to, "clamp", x, min=0.0, max=1.0)


def _inverted(to: Declared, mask: Value) -> Value:
    return _mask(with_number(to, "add", of_each(to, "neg", mask), 1.0))


def _mask(x: Value) -> Value:
    return replace(x, dtype="bool")


def chosen(to: Declared, mask: Value, x: Operand, y: Operand) -> Value:
    """Returns the elements of `x` where the mask is 1, and of `y` where it is 0."""
    for one in (x, y):
        if isinstance(one, Known) and one.array.size == 1:
            to.fixed.add(one.name)  # as other single numbers, which exporters make of constants
    operands = [as_numbers(to, mask), to.value(x), to.value(y)]
    shape = operands[0].shape
    for one in operands[1:]:
        found = broadcast(shape, one.shape)
        if found is None:
            raise to.refuse("Where of " + ", ".join(text_of(it.shape) for it in operands),
                            "operands whose extents are equal, or 1")
        shape = found
    here = with_number(to, "add", with_number(to, "mul", operands[0], -2.0), 1.0)
    parts = []
    for sign_of_mask, one in ((here, operands[1]), (of_each(to, "neg", here), operands[2])):
        wide = expanded(to, sign_of_mask, shape)
        parts.append(to.add("prelu", wide, reshaped(to, one, padded(one.shape, len(shape))),
                            shape=shape))
    return of_each(to, "neg", to.add("mul", *parts, shape=shape))
