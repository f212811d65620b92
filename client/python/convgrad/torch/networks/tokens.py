"""Steps of values that have their features last, by functions with the arguments of ATen's
operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from convgrad.torch.networks.steps import Importer, Value, broadcast, text_of
from convgrad.torch.networks.views import as_value, reshaped


def layer_norm(to: Importer, x: Value, normalized_shape: Sequence[int], weight: Value | None,
               bias: Value | None, eps: float, *_: Any) -> Value:
    return to.add("layer_norm", x, parameters=(weight, bias), axes=len(normalized_shape),
                  eps=float(eps))


def rms_norm(to: Importer, x: Value, normalized_shape: Sequence[int], weight: Value | None,
             eps: float | None) -> Value:
    return to.add("rms_norm", x, parameters=(weight,), axes=len(normalized_shape),
                  eps=torch.finfo(torch.float32).eps if eps is None else float(eps))


def group_norm(to: Importer, x: Value, groups: int, weight: Value | None, bias: Value | None,
               eps: float, *_: Any) -> Value:
    """A layer_norm of each group, times and plus a number for each channel."""
    shape = x.shape
    rows = reshaped(to, x, (shape[0], groups, -(-_size(to, shape) // groups)))
    y = reshaped(to, to.add("layer_norm", rows, axes=1, eps=float(eps)), shape)
    for operator, parameter in (("mul", weight), ("add", bias)):
        if parameter is not None:
            numbers = to.add("read", parameters=(parameter,),
                             shape=[1, shape[1], *[1] * (len(shape) - 2)])
            y = to.add(operator, y, numbers)
    return y


def softmax(operator: str) -> Any:
    def add(to: Importer, x: Value, dim: int, dtype: Any = None, *_: Any) -> Value:
        if dtype not in (None, torch.float32):
            raise to.refuse(f"{operator} in {dtype}", "torch.float32")
        return to.add(operator, x, axis=dim % len(x.shape))

    return add


def matmul(to: Importer, x: Value, y: Value) -> Value:
    rank = max(len(x.shape), len(y.shape))
    if min(len(x.shape), len(y.shape)) < 2:
        raise to.refuse(f"matmul of {text_of(x.shape)} and {text_of(y.shape)}",
                        "two axes each at least")
    return to.add("matmul", as_value(to, x, rank), as_value(to, y, rank))


def attention(to: Importer, query: Value, key: Value, value: Value, mask: Any = None,
              dropout: float = 0.0, causal: bool = False, scale: float | None = None,
              gqa: bool = False) -> Value:
    if dropout or gqa:
        raise to.refuse(f"attention with dropout_p={dropout}, enable_gqa={gqa}",
                        "neither dropout nor enable_gqa")
    operands = [query, key, value]
    if mask is not None:
        operands.append(as_value(to, mask, len(query.shape)))
    return to.add("attention", *operands, causal=causal or None, scale=scale)


def square(to: Importer, x: Value, power: float = 2) -> Value:
    if power != 2:
        raise to.refuse(f"pow by {power}", "by 2")
    return broadcast(to, "mul", x, x)


def _size(to: Importer, shape: Sequence[Any]) -> int:
    """Returns the number of elements of a sample."""
    size = 1
    for extent in shape[1:]:
        if not isinstance(extent, int):
            raise to.refuse(f"group_norm of {text_of(shape)}", "a batch that comes first")
        size *= extent
    return size
