"""Steps that compute each element by itself."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from convgrad.importers.steps import of_number, of_two
from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import text_of
from convgrad.onnx.operators.views import common_shape, reshaped
from convgrad.onnx.values import (
    FLOATS,
    IMAGES,
    INDICES,
    Bell,
    Known,
    Node,
    Operand,
    Source,
    Value,
)

_TINY = 1e-6


def of_each(to: Declared, operator: str, x: Value, **attributes: Any) -> Value:
    """Adds a step that keeps the operand's shape."""
    return to.add(operator, x, shape=x.shape, **attributes)


def pointwise(operator: str, **attributes: tuple[str, Any]) -> Callable[..., Value]:
    """Returns the row of an operator whose attributes are ONNX's. `attributes` has ONNX's name
    and default of each."""
    return lambda to, node, x: of_each(to, operator, x, **{
        name: node.get(*given) for name, given in attributes.items()})


def two(operator: str) -> Callable[..., Any]:
    """Returns the row of an operator of two operands."""
    return lambda to, node, x, y: binary(to, operator, x, y)


def many(operator: str) -> Callable[..., Value]:
    """Returns the row of an operator of any number of operands."""
    def row(to: Declared, node: Node, *operands: Operand) -> Value:
        return to.value(functools.reduce(functools.partial(binary, to, operator), operands))

    return row


def binary(to: Declared, operator: str, x: Operand, y: Operand) -> Any:
    """Adds a step of two operands, which are broadcast to each other."""
    if isinstance(x, Bell) or isinstance(y, Bell):
        return _with_bell(to, operator, x, y)
    if isinstance(y, (int, float)):
        return _with_number(to, operator, x, y)
    if isinstance(x, (int, float)):
        return of_number(operator, x, y)
    for operand in (x, y):
        if isinstance(operand, Known) and operand.array.dtype.name not in FLOATS:
            raise to.refuse(f"{operator.capitalize()} with {operand}", "float32")
    if isinstance(x, Known) and isinstance(y, Known):
        x = to.value(x)
    shape = common_shape(to, x, y)
    number = to.number_of(y)
    if number is not None:
        return _with_number(to, operator, reshaped(to, to.value(x), shape), number)
    number = to.number_of(x)
    if number is not None:
        return of_number(operator, number, reshaped(to, to.value(y), shape))
    return of_two(to, operator, to.value(x), to.value(y), shape)


def _with_number(to: Declared, operator: str, x: Value, number: float) -> Value:
    """Adds a step of a value and a constant."""
    if operator == "maximum":
        return of_each(to, "clamp", x, min=number)
    if operator == "minimum":
        return of_each(to, "clamp", x, max=number)
    if operator == "div" and number == 0:
        raise to.refuse("Div by 0", "another number")
    before = x.source
    if operator == "mul" and number == 0.5 and before.operator == "mul" and (
            before.attributes.get("other") == 2 and before.operands[0] is not None):
        return replace(x, source=before.operands[0])  # x * 2 * 0.5, exact
    return of_each(to, operator, x, other=float(number))


def erf(to: Declared, node: Node, x: Value) -> Bell:
    """Returns the Bell of which the node's users make a GELU. Skips the step that divides x by
    the root of 2, because the GELU does so itself."""
    source = x.source
    factor = source.attributes.get("other")
    if len(source.operands) == 1 and source.operands[0] is not None and isinstance(
            factor, float) and (
            source.operator == "div" and abs(factor / math.sqrt(2) - 1) < _TINY or
            source.operator == "mul" and abs(factor * math.sqrt(2) - 1) < _TINY):
        return Bell(replace(x, source=source.operands[0]))
    raise to.refuse("Erf elsewhere than in a GELU", "x * 0.5 * (1 + Erf(x / sqrt(2)))")


def _with_bell(to: Declared, operator: str, x: Operand, y: Operand) -> Any:
    bell, other = (x, y) if isinstance(x, Bell) else (y, x)
    constant = to.number_of(other)
    if constant is not None and len(other.shape) <= len(bell.shape):
        if operator == "add" and bell.offset == 0 and constant == bell.factor:
            return Bell(bell.x, bell.factor, 1)
        if operator == "mul":
            return Bell(bell.x, bell.factor * constant, bell.offset)
    if operator == "mul" and bell.offset and isinstance(other, Value):
        factor = 2 * bell.factor
        source: Source | None = other.source
        number = other.source.attributes.get("other")
        if other.source is not bell.x.source and (
                other.source.operator == "mul" and isinstance(number, float)):
            factor, source = factor * number, other.source.operands[0]
        if source is bell.x.source and other.shape == bell.x.shape:
            y = of_each(to, "gelu", bell.x, approximate="none")
            return y if factor == 1 else y * factor
    raise to.refuse("Erf elsewhere than in a GELU", "x * 0.5 * (1 + Erf(x / sqrt(2)))")


def selu(to: Declared, node: Node, x: Value) -> Value:
    y = of_each(to, "elu", x, alpha=node.get("alpha", 1.67326319217681884765625))
    return y * node.get("gamma", 1.05070102214813232421875)


def celu(to: Declared, node: Node, x: Value) -> Value:
    alpha = node.get("alpha", 1.0)
    if alpha <= 0:
        raise to.refuse(f"Celu with alpha={alpha}", "more than 0")
    return of_each(to, "elu", x / alpha) * alpha


def hard_sigmoid(to: Declared, node: Node, x: Value) -> Value:
    alpha, beta = node.get("alpha", 0.2), node.get("beta", 0.5)
    if abs(alpha * 6 - 1) < _TINY and beta == 0.5:
        return of_each(to, "hardsigmoid", x)
    return of_each(to, "clamp", x * alpha + beta, min=0.0, max=1.0)


def swish(to: Declared, node: Node, x: Value) -> Value:
    alpha = node.get("alpha", 1.0)
    if alpha == 1:
        return of_each(to, "silu", x)
    return x * of_each(to, "sigmoid", x * alpha)


def softsign(to: Declared, node: Node, x: Value) -> Value:
    return x / (of_each(to, "abs", x) + 1.0)


def clip(to: Declared, node: Node, x: Value, least: Operand = None,
         most: Operand = None) -> Value:
    bounds = [_bound(to, one, sign) for one, sign in ((least, -1), (most, 1))]
    if bounds == [None, None]:
        return x
    if bounds == [0, 6]:
        return of_each(to, "relu6", x)
    return of_each(to, "clamp", x, min=bounds[0], max=bounds[1])


def _bound(to: Declared, bound: Operand, sign: int) -> float | None:
    if bound is None:
        return None
    if not isinstance(bound, Known) or bound.array.size != 1:
        raise to.refuse(f"Clip with {bound} as bound, {text_of(bound.shape)}",
                        "one constant number")
    to.number_of(bound)
    number = float(bound.array.reshape(-1)[0])
    if number == sign * math.inf:
        return None
    if not math.isfinite(number):
        raise to.refuse(f"Clip with the bound {number}", "a number")
    return number


def power(to: Declared, node: Node, x: Value, exponent: Operand) -> Value:
    number = to.number_of(exponent)
    if number is None:
        raise to.refuse("Pow with an exponent that follows from data, or several",
                        "one constant")
    if len(exponent.shape) > len(x.shape):
        raise to.refuse("Pow with an exponent of more axes", "one number")
    if number == 2:
        return x * x
    return of_each(to, "pow", x, exponent=number)


def prelu(to: Declared, node: Node, x: Value, slope: Operand) -> Value:
    slope = to.value(slope)
    if common_shape(to, x, slope) != x.shape:
        raise to.refuse(f"PRelu of {text_of(x.shape)} by {text_of(slope.shape)}",
                        "a slope that is broadcast to the other operand")
    return of_two(to, "prelu", x, slope, x.shape)


def mean_of(to: Declared, node: Node, *operands: Operand) -> Value:
    return many("add")(to, node, *operands) / len(operands)


def cast(to: Declared, node: Node, x: Operand) -> Value:
    if node.get("to") == 7 and isinstance(x, Value) and x.dtype in INDICES:  # INT64
        return x
    if node.get("to") != 1:  # FLOAT
        raise to.refuse("Cast to another type than float32", "float32, or a mask")
    return as_numbers(to, x)


def cast_like(to: Declared, node: Node, x: Operand, like: Operand) -> Operand:
    if getattr(like, "dtype", getattr(getattr(like, "array", None), "dtype", None)) != (
            "float32"):
        raise to.refuse("CastLike to another type than float32", "float32")
    if isinstance(x, Known) and x.array.dtype.kind in "biuf" and (
            not x.is_trainable or not x.shape):
        found = Known(x.array.astype(np.float32))
        to.spend(found.array)
        return found
    return as_numbers(to, x)


def as_numbers(to: Declared, x: Operand) -> Value:
    """Returns integers and masks as float32, in which programs compute everything."""
    if isinstance(x, Known) and x.array.dtype.kind in "biu":
        array = x.array.astype(np.float32)
        if (array.astype(x.array.dtype) != x.array).any():
            raise to.refuse(f"{to.node.operator} with {x}", "numbers that float32 has exactly")
        x = Known(array)
    x = to.value(x)
    if x.dtype not in FLOATS | IMAGES | INDICES | {"bool"}:
        raise to.refuse(f"{to.node.operator} of {x.dtype}", "float32, integers or a mask")
    return replace(x, dtype="float32")


def identity(to: Declared, node: Node, x: Operand) -> Operand:
    return x


def dropout(to: Declared, node: Node, x: Value, ratio: Operand = None,
            training: Operand = None) -> list[Value]:
    p = 0.5 if ratio is None else to.number_of(ratio)
    if p is None or training is not None and not isinstance(training, Known):
        raise to.refuse("Dropout with a ratio or a mode that follows from data", "constants")
    if training is not None and training.array.any() and p != 0:
        raise to.refuse("Dropout with training_mode=1",
                        "0: the network's training program drops out")
    if not to.training or p == 0:
        return [x]
    return [of_each(to, "dropout", x, p=p, training=True)]
