"""Steps that compute each element by itself, by functions with the arguments of ATen's
operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from convgrad.importers.steps import WITH_NUMBERS, of_number, of_two
from convgrad.shapes import MOST_AXES, broadcast
from convgrad.torch.networks.operators import noise, views
from convgrad.torch.networks.operators.values import (
    INDICES,
    Importer,
    Noise,
    Value,
    View,
    Wide,
    text_of,
)


def of_each(to: Importer, operator: str, x: Value, **attributes: Any) -> Value:
    """Adds a step that keeps the operand's shape."""
    x = views.as_value(to, x)
    if isinstance(x, Wide):
        return views.wide(of_each(to, operator, x.base, **attributes), x.sizes, x.order)
    return to.add(operator, x, shape=x.shape, **attributes)


def detach(to: Importer, x: Value) -> Value:
    """Returns the value without its gradient, in the same memory."""
    if not isinstance(x, Value):
        raise to.refuse(f"detach of {x}", "one of a result")
    if not to.has_gradient(x.base if isinstance(x, Wide) else x):
        return x
    x = views.as_value(to, x)
    if isinstance(x, Wide):
        return views.wide(detach(to, x.base), x.sizes, x.order)
    return of_each(to, "detach", x, view=View(("detach",), x, detach))


def with_number(to: Importer, operator: str, x: Value, number: float) -> Value:
    """Adds a step of a value and a constant."""
    return of_each(to, operator, x, other=float(number))


def pointwise(operator: str, *names: str) -> Callable[..., Value]:
    """Returns the row of an operator whose attributes, numbers or words, have these names."""
    return lambda to, x, *given: of_each(to, operator, x, **{
        name: one if isinstance(one, str) else float(one) for name, one in zip(names, given)})


def exp2(to: Importer, x: Value) -> Value:
    return of_each(to, "exp", x * math.log(2))


def log_to(base: int) -> Callable[[Importer, Value], Value]:
    """Returns the row of the logarithm to this base."""
    return lambda to, x: of_each(to, "log", x) * (1 / math.log(base))


def elu(to: Importer, x: Value, alpha: float, scale: float, input_scale: float) -> Value:
    if input_scale != 1:
        raise to.refuse(f"elu with input_scale={input_scale}", "1")
    return times(to, of_each(to, "elu", x, alpha=float(alpha)), scale)


def log_sigmoid(to: Importer, x: Value) -> Value:
    return -of_each(to, "softplus", -x, beta=1.0, threshold=20.0)


def hardtanh(to: Importer, x: Value, least: float, most: float) -> Value:
    if (least, most) == (0, 6):
        return of_each(to, "relu6", x)
    return of_each(to, "hardtanh", x, min_val=float(least), max_val=float(most))


def clamp(to: Importer, x: Value, least: float | None = None,
          most: float | None = None) -> Value:
    if to.dtype in INDICES and x.kind != "a count":
        raise to.refuse(f"clamp in {to.dtype}", "torch.float32, or a sum of masks")
    return of_each(to, "clamp", x, min=None if least is None else float(least),
                   max=None if most is None else float(most))


def glu(to: Importer, x: Value, dim: int) -> Value:
    """The first half times the sigmoid of the second one."""
    first, second = views.chunk(to, x, 2, dim)
    return first * of_each(to, "sigmoid", second)


def power(to: Importer, x: Value, exponent: Any = 2) -> Value:
    """A power by a tensor is exp(exponent * log(x)), where no x is 0 or less."""
    if isinstance(exponent, Value):
        if not isinstance(x, Value) or not to.is_positive(x):
            raise to.refuse("pow by a tensor, of numbers that may be 0 or less",
                            "x.clamp(min=1e-6).pow(p), or means of it")
        return of_each(to, "exp", of_each(to, "log", x) * exponent)
    if exponent == 2:
        return binary(to, "mul", x, x)
    return of_each(to, "pow", x, exponent=float(exponent))


def prelu(to: Importer, x: Value, weight: Value) -> Value:
    """One slope for each channel, or one for all."""
    axes = [1] * (len(x.shape) - 2)
    slopes = views.reshaped(to, weight, (1, *weight.shape, *axes) if axes or len(
        x.shape) == 2 else weight.shape)
    return binary(to, "prelu", x, slopes)


def add(to: Importer, x: Any, y: Any, alpha: float = 1) -> Any:
    if isinstance(x, Value) and x.kind == "a parameter" and (
            to.dtype == torch.int64 and y == 1 == alpha):
        return to.count_batch(x)
    if isinstance(x, Noise):
        return noise.raised(to, x, y, alpha)
    if to.dtype == torch.bool:
        raise to.refuse("add of masks", "logical_or")
    return binary(to, "add", x, times(to, y, alpha))


def sub(to: Importer, x: Any, y: Any, alpha: float = 1) -> Value:
    return binary(to, "sub", x, times(to, y, alpha))


def rsub(to: Importer, x: Any, y: Any, alpha: float = 1) -> Value:
    return sub(to, y, x, alpha)


def mul(to: Importer, x: Any, y: Any) -> Value:
    if isinstance(x, Noise):
        x, y = y, x
    if isinstance(y, Noise):
        return noise.dropped(to, x, y)
    # A forward may repeat an input of integers by a product with ones.
    if to.dtype in INDICES and isinstance(x, Value) and isinstance(y, Value) and to.is_ones(y):
        return views.expanded(to, x, to.shape)
    return binary(to, "mul", x, y)


def div(to: Importer, x: Any, y: Any) -> Any:
    return noise.divided(to, x, y) if isinstance(x, Noise) else binary(to, "div", x, y)


def two(operator: str) -> Callable[[Importer, Any, Any], Value]:
    """Returns the row of an operator of two operands."""
    return lambda to, x, y: binary(to, operator, x, y)


def plus(operator: str) -> Callable[..., Value]:
    """Returns the row of an operator that adds a product or a quotient, times a number."""
    def row(to: Importer, x: Value, first: Value, second: Value, value: float) -> Value:
        return add(to, x, binary(to, operator, first, second), value)

    return row


def times(to: Importer, x: Any, factor: Any) -> Any:
    """Returns the product with a number or with a value."""
    if isinstance(factor, Value):
        return binary(to, "mul", x, factor)
    if factor == 1:
        return x
    return with_number(to, "mul", x, factor) if isinstance(x, Value) else x * factor


def binary(to: Importer, operator: str, x: Any, y: Any) -> Value:
    """Adds a step of two operands, of which the second one is broadcast to the first."""
    if isinstance(x, (int, float)) and isinstance(y, Value):
        return of_number(operator, x, y)
    if isinstance(y, (int, float)) and isinstance(x, Value) and operator in WITH_NUMBERS:
        return with_number(to, operator, x, y)
    if not isinstance(x, Value) or not isinstance(y, Value):
        return to.add(operator, x, y)  # which refuses them
    shape = broadcast(x.shape, y.shape)
    if shape is None:
        raise to.refuse(f"{operator} of {text_of(x.shape)} and {text_of(y.shape)}",
                        "operands whose extents are equal, or 1")
    if len(shape) > MOST_AXES:
        return by_groups(to, lambda x, y: binary(to, operator, x, y), x, y)
    return of_two(to, operator, x, y, shape)


def by_groups(to: Importer, function: Callable[..., Value], *operands: Any) -> Value:
    """Computes the function, which broadcasts its operands, with one axis for axes next to each
    other that are alike in all of them."""
    shape: Any = broadcast(*(one.shape for one in operands if isinstance(one, Value)))
    given = [views.as_value(to, one, len(shape)) for one in operands]
    groups = views.groups_of(shape, *(one.shape for one in given if isinstance(one, Value)))
    y = function(*(views.reshaped(to, one, views.merged(one.shape, groups)) if isinstance(
        one, Value) else one for one in given))
    return views.reshaped(to, y, shape)
