"""Steps of whole layers, by functions with the arguments of ATen's operators.

Each function takes the importer, adds the steps to its program and returns the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from convgrad.importers.masks import is_not_zero
from convgrad.torch.networks.operators import sums
from convgrad.torch.networks.operators.elements import binary
from convgrad.torch.networks.operators.moves import moved
from convgrad.torch.networks.operators.values import INDICES, Constant, Importer, Value, text_of
from convgrad.torch.networks.operators.views import as_value, reshaped

# Dtypes of inputs whose numbers another dtype of integers has, too.
WIDENED = {torch.int64: (torch.uint8, torch.int8, torch.int16, torch.int32),
           torch.int32: (torch.uint8, torch.int8, torch.int16)}
_PLACES = Constant("the places of the largest elements", None)


def conv(to: Importer, x: Value, weight: Value, bias: Value | None, stride: Any,
         padding: Any, dilation: Any, groups: int) -> Value:
    attributes = dict(stride=ints(stride), dilation=ints(dilation), groups=groups,
                      padding=padding if isinstance(padding, str) else ints(padding))
    x = as_value(to, x)
    if weight.kind == "a parameter" and (bias is None or bias.kind == "a parameter"):
        return to.add("conv", x, parameters=(weight, bias), **attributes)
    y = to.add("conv", x, as_value(to, weight), shape=to.shape, **attributes)
    if bias is None:
        return y
    return y + reshaped(to, bias, (1, *bias.shape, *[1] * (len(to.shape) - 2)))


def conv_transpose(to: Importer, x: Value, weight: Value, bias: Value | None, stride: Any,
                   padding: Any, output_padding: Any, groups: int, dilation: Any) -> Value:
    return to.add("conv_transpose", as_value(to, x), parameters=(weight, bias),
                  stride=ints(stride), padding=ints(padding),
                  output_padding=ints(output_padding), dilation=ints(dilation), groups=groups)


def batch_norm(to: Importer, x: Value, weight: Value | None, bias: Value | None,
               running_mean: Value | None, running_var: Value | None, training: bool,
               momentum: float, eps: float, _: bool) -> Value:
    batches = to.take_count() if training and running_mean is not None else None
    return normalized(
        to, "batch_norm", x, (weight, bias), len(x.shape) - 2,
        (running_mean, running_var, batches), training=training,
        momentum="none" if math.isnan(momentum) else float(momentum), eps=float(eps))


def normalized(to: Importer, operator: str, x: Value, weight_and_bias: Sequence[Value | None],
               ones: int, statistics: Sequence[Value | None] = (), **attributes: Any) -> Value:
    """Adds the step of a norm, which takes weight and bias if they are parameters. If one of
    them is a result, other steps multiply and add. Both then get `ones` more axes of 1."""
    are_own = all(one is None or one.kind == "a parameter" for one in weight_and_bias)
    own = weight_and_bias if are_own else [None] * len(weight_and_bias)
    y = to.add(operator, as_value(to, x), shape=x.shape, parameters=(*own, *statistics),
               **attributes)
    for step, one in zip(("mul", "add"), () if are_own else weight_and_bias):
        if one is not None:
            y = binary(to, step, y, reshaped(to, one, (*one.shape, *[1] * ones)))
    return y


def _pool(operator: str, *names: str) -> Callable[..., Value]:
    """Returns the row of a pooling whose attributes are the arguments, with these names."""
    return lambda to, x, *given: to.add(
        operator, as_value(to, x), **dict(zip(names, map(ints, given))))


max_pool = _pool("max_pool", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
avg_pool = _pool("avg_pool", "kernel_size", "stride", "padding", "ceil_mode",
                 "count_include_pad", "divisor_override")
adaptive_avg_pool = _pool("adaptive_avg_pool", "output_size")


def adaptive_max_pool(to: Importer, x: Value, output_size: Any) -> list[Any]:
    return [to.add("adaptive_max_pool", as_value(to, x), shape=(*x.shape[:2], *output_size),
                   output_size=ints(output_size)), _PLACES]


def max_along(to: Importer, x: Value, dim: int, keepdim: bool = False) -> list[Any]:
    """The largest elements of an axis. The first one of equal ones has the gradient, as in a
    pooling."""
    axis = dim % len(x.shape)
    if not isinstance(x.shape[axis], int) or len(x.shape) < 2:
        raise to.refuse(f"max of {text_of(x.shape)} along axis {axis}",
                        "one of two axes at least, not that of the batch")
    last = moved(to, x, axis, -1)
    first, *rest, extent = last.shape
    rows = reshaped(to, last, (first, math.prod(rest), extent))
    y = to.add("max_pool", rows, shape=(*rows.shape[:-1], 1), kernel_size=[extent])
    shape = (*x.shape[:axis], *[1] * keepdim, *x.shape[axis + 1:])
    return [reshaped(to, y, shape), _PLACES]


def min_along(to: Importer, x: Value, dim: int, keepdim: bool = False) -> list[Any]:
    largest, places = max_along(to, -x, dim, keepdim)
    return [-largest, places]


def of_two_or(operator: str, along: Callable[..., list[Any]]) -> Callable[..., Any]:
    """Returns the row of an operator with overloads for two tensors, one axis and all axes."""
    def row(to: Importer, x: Value, second: Any = None, keepdim: bool = False) -> Any:
        if second is None:  # of all elements, of which equal ones share the gradient
            reduced: Any = sums.amin if operator == "minimum" else sums.reduced("amax")
            return reduced(to, x)
        if to.dtype is None:  # of the overload that also returns places
            return along(to, x, second, keepdim)
        return binary(to, operator, x, second)

    return row


def dropout(to: Importer, x: Value, p: float, training: bool) -> Value:
    if not training or p == 0:
        return x
    return to.add("dropout", as_value(to, x), shape=x.shape, p=float(p), training=True)


def converted(to: Importer, x: Value, dtype: Any, *_: Any) -> Value:
    if dtype in (None, x.dtype):
        return x
    if x.kind == "an input" and x.dtype in WIDENED.get(dtype, ()):
        return replace(x, dtype=dtype)
    if x.dtype == torch.bool and dtype in INDICES:
        return x
    if dtype == torch.bool and x.dtype == torch.float32:
        return is_not_zero(as_value(to, x))
    if dtype != torch.float32:
        raise to.refuse(f"a conversion to {dtype}",
                        "none: remote(..., dtype=torch.bfloat16) computes in bf16")
    return replace(x, kind="a result") if x.kind == "a count" else x


def copied(to: Importer, x: Value, *_: Any) -> Value:
    return as_value(to, x) if x.dtype == torch.float32 else x


def same(to: Importer, x: Value, *_: Any) -> Value:
    """Torch returns `x` itself or a copy."""
    return x


def typed(to: Importer, x: Value, *_: Any) -> Value:
    return x if to.dtype == x.dtype else converted(to, x, to.dtype)


def ints(value: Any) -> Any:
    """Returns the numbers of a layer's axes; torch takes a list of one for all axes, and an
    empty one for none."""
    if not isinstance(value, (tuple, list)):
        return value
    return value[0] if len(value) == 1 else list(value) or None
