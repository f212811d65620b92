"""Steps of values that have their features last, by functions with the arguments of ATen's
operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from convgrad.importers import steps
from convgrad.shapes import axis_of
from convgrad.torch.networks.operators.elements import binary, of_each, times, with_number
from convgrad.torch.networks.operators.known import Known
from convgrad.torch.networks.operators.layers import normalized
from convgrad.torch.networks.operators.masks import chosen, compare
from convgrad.torch.networks.operators.sums import reduce
from convgrad.torch.networks.operators.values import Importer, Value
from convgrad.torch.networks.operators.views import as_value, expanded, reshaped, transpose


def linear(to: Importer, x: Value, weight: Value, bias: Value | None) -> Value:
    x = as_value(to, x)
    shape = (*x.shape[:-1], weight.shape[0])
    if len(weight.shape) == 1:
        y = product(to, x, weight)
    elif weight.kind == "a parameter" and (bias is None or bias.kind == "a parameter"):
        return to.add("linear", x, parameters=(weight, bias), shape=shape)
    elif weight.kind == "a parameter":
        y = to.add("linear", x, parameters=(weight, None), shape=shape)
    else:
        columns = as_value(to, transpose(to, weight, 0, 1), len(x.shape))
        y = to.add("matmul", x, columns, shape=shape)
    return y if bias is None else y + bias


def layer_norm(to: Importer, x: Value, normalized_shape: Sequence[int], weight: Value | None,
               bias: Value | None, eps: float, *_: Any) -> Value:
    return normalized(to, "layer_norm", x, (weight, bias), 0, axes=len(normalized_shape),
                      eps=float(eps))


def rms_norm(to: Importer, x: Value, normalized_shape: Sequence[int], weight: Value | None,
             eps: float | None) -> Value:
    return normalized(to, "rms_norm", x, (weight,), 0, axes=len(normalized_shape),
                      eps=torch.finfo(torch.float32).eps if eps is None else float(eps))


def group_norm(to: Importer, x: Value, groups: int, weight: Value | None, bias: Value | None,
               eps: float, *_: Any) -> Value:
    return normalized(to, "group_norm", x, (weight, bias), len(x.shape) - 2, groups=groups,
                      eps=float(eps))


def instance_norm(to: Importer, x: Value, weight: Value | None, bias: Value | None,
                  running_mean: Value | None, running_var: Value | None,
                  uses_input: bool, _: float, eps: float, *__: Any) -> Value:
    if not uses_input:
        return normalized(to, "batch_norm", x, (weight, bias), len(x.shape) - 2,
                          (running_mean, running_var), training=False, eps=float(eps))
    if running_mean is not None or running_var is not None:
        raise to.refuse("instance_norm that updates running statistics", "its eval mode")
    return group_norm(to, x, x.shape[1], weight, bias, eps)


def softmax(operator: str) -> Any:
    def add(to: Importer, x: Value, dim: int, dtype: Any = None, *_: Any) -> Value:
        if dtype not in (None, torch.float32):
            raise to.refuse(f"{operator} in {dtype}", "torch.float32")
        return to.add(operator, as_value(to, x), shape=x.shape,
                      axis=axis_of(len(x.shape), dim))

    return add


def product(to: Importer, x: Value, y: Value) -> Value:
    """Multiplies matrices that have axes of the first one's extents, or 1, before them. A
    vector is a matrix of one row, or as the second operand of one column."""
    if len(x.shape) == 1 or len(y.shape) == 1:
        rows = reshaped(to, x, (1, *x.shape)) if len(x.shape) == 1 else x
        columns = reshaped(to, y, (*y.shape, 1)) if len(y.shape) == 1 else y
        return reshaped(to, product(to, rows, columns), to.shape)
    rank = max(len(x.shape), len(y.shape))
    x, y = as_value(to, x, rank), as_value(to, y, rank)
    shape = (*(n if m == 1 else m for m, n in zip(x.shape[:-2], y.shape)), x.shape[-2],
             y.shape[-1])
    return to.add("matmul", x, y, shape=shape)


def addmm(to: Importer, x: Value, first: Value, second: Value, beta: float = 1,
          alpha: float = 1) -> Value:
    y = times(to, product(to, first, second), alpha)
    return binary(to, "add", y, times(to, x, beta)) if beta else expanded(to, y, to.shape)


def is_of_two(equation: str) -> bool:
    """Returns whether an einsum has two operands, and each axis once in each."""
    terms, arrow, result = equation.replace(" ", "").partition("->")
    letters = terms.split(",")
    return len(letters) == 2 and bool(arrow) and "." not in terms and all(
        len(set(term)) == len(term) for term in (*letters, result))


def einsum(to: Importer, equation: str, operands: Sequence[Value], *_: Any) -> Any:
    if not is_of_two(equation):
        raise to.refuse(f"einsum of {equation}", "two operands, and each axis once in each")
    terms, arrow, result = equation.replace(" ", "").partition("->")
    (first, second), (x, y) = terms.split(","), operands
    sizes = dict(zip(first, x.shape))
    if not steps.is_product(first, second, result) or any(
            sizes.get(c, n) != n for c, n in zip(second, y.shape)):
        raise to.refuse(f"einsum of {equation}", "equal extents, and sums over axes of both")
    return steps.einsum(to, x, y, first, second, result)


def attention(to: Importer, query: Value, key: Value, value: Value, mask: Any = None,
              dropout: float = 0.0, causal: bool = False, scale: float | None = None,
              gqa: bool = False) -> Value:
    if gqa or dropout and causal:
        raise to.refuse(f"attention with dropout_p={dropout}, is_causal={causal}, "
                        f"enable_gqa={gqa}", "no enable_gqa, and a mask beside dropout")
    is_known = isinstance(mask, Known)
    if isinstance(mask, Known):
        if dropout and not mask.tensor.any(-1).all():
            raise to.refuse(f"attention with dropout and {mask} that leaves a query no key",
                            "a key for each query")
        mask = None if mask.tensor.all() else to.constant(
            torch.zeros(mask.tensor.shape).masked_fill(~mask.tensor, -math.inf))
    elif isinstance(mask, Value) and mask.dtype == torch.bool:
        mask = chosen(to, mask, 0.0, -math.inf)
    if dropout:
        return _with_dropout(to, query, key, value, mask, dropout, scale, not is_known)
    # Leading axes broadcast, for example if all heads share their keys (multi-query attention).
    operands = [expanded(to, as_value(to, one), (*to.shape[:-2], *one.shape[-2:]))
                for one in (query, key, value)]
    if mask is not None:
        operands.append(as_value(to, mask, len(query.shape)))
    return to.add("attention", *operands, causal=causal or None, scale=scale)


def _with_dropout(to: Importer, query: Value, key: Value, value: Value, mask: Value | None,
                  dropout: float, scale: float | None, may_be_empty: bool) -> Value:
    """If the mask may leave a query no key, such a query's weights are 0, as in torch."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = product(to, with_number(to, "mul", query, factor), transpose(to, key, -2, -1))
    has_key: Any = 1
    if mask is not None:
        if may_be_empty:
            has_key = compare("ge")(to, reduce(to, "amax", mask, -1, True), torch.finfo().min)
            mask = chosen(to, has_key, mask, 0.0)
        scores = scores + mask
    weights = times(to, of_each(to, "softmax", scores, axis=-1), has_key)
    weights = of_each(to, "dropout", weights, p=float(dropout), training=True)
    return product(to, weights, value)
