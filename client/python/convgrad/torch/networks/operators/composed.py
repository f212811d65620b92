"""Operators that are made of several steps, by functions with the arguments of ATen's
operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from convgrad.shapes import broadcast
from convgrad.torch.networks.operators import masks, moves
from convgrad.torch.networks.operators.detaching import detach
from convgrad.torch.networks.operators.elements import (
    binary,
    clamp,
    of_each,
    times,
    with_number,
)
from convgrad.torch.networks.operators.losses import reduced_loss
from convgrad.torch.networks.operators.sums import norm, reduce
from convgrad.torch.networks.operators.tokens import product
from convgrad.torch.networks.operators.values import Importer, Value, text_of
from convgrad.torch.networks.operators.views import (
    as_value,
    cut,
    expanded,
    extent_of,
    permute,
    reshaped,
)

_LARGEST = torch.finfo(torch.float32).max


def logsumexp(to: Importer, x: Value, dim: Any, keepdim: bool = False) -> Value:
    """The largest element is taken out. A finite one in place of an infinite one gives what
    torch gives."""
    x = as_value(to, x)
    largest = clamp(to, detach(to, reduce(to, "amax", x, dim, True)), -_LARGEST, _LARGEST)
    powers = of_each(to, "exp", binary(to, "sub", x, largest))
    y = binary(to, "add", of_each(to, "log", reduce(to, "sum", powers, dim, True)), largest)
    return y if keepdim else reshaped(to, y, to.shape)


def cosine_similarity(to: Importer, x: Value, y: Value, dim: int = 1,
                      eps: float = 1e-8) -> Value:
    shape = broadcast(x.shape, y.shape)
    if shape is None:
        raise to.refuse(f"cosine_similarity of {text_of(x.shape)} and {text_of(y.shape)}",
                        "operands whose extents are equal, or 1")
    parts = [expanded(to, as_value(to, one, len(shape)), shape) for one in (x, y)]
    units = []
    for one in parts:
        size = norm(to, one, 2, dim, True)
        # As in torch, the gradient of a size below eps isn't 0.
        lacking = detach(to, binary(to, "sub", clamp(to, size, eps), size))
        units.append(binary(to, "div", one, binary(to, "add", size, lacking)))
    return reduce(to, "sum", binary(to, "mul", *units), dim, False)


def pairwise_distance(to: Importer, x: Value, y: Value, p: float = 2, eps: float = 1e-6,
                      keepdim: bool = False) -> Value:
    apart = with_number(to, "add", binary(to, "sub", x, y), eps)
    return norm(to, apart, p, -1, keepdim)


def weight_norm(to: Importer, x: Value, lengths: Value, dim: int) -> Value:
    """Rows along an axis, or all of `x` if it is -1, of these lengths."""
    x = as_value(to, x)
    axes = [axis for axis in range(len(x.shape)) if axis != dim]
    return binary(to, "mul", x, binary(to, "div", lengths, norm(to, x, 2, axes, True)))


def outer(to: Importer, x: Value, y: Value) -> Value:
    return binary(to, "mul", reshaped(to, x, (*x.shape, 1)), y)


def cdist(to: Importer, x: Value, y: Value, p: float = 2, _: Any = None) -> Value:
    apart = [reshaped(to, as_value(to, one), (*one.shape[:at], 1, *one.shape[at:]))
             for one, at in ((x, len(x.shape) - 1), (y, len(y.shape) - 2))]
    return norm(to, binary(to, "sub", *apart), p, -1)


def triplet_margin_loss(to: Importer, anchor: Value, positive: Value, negative: Value,
                        margin: float, p: float, eps: float, swap: bool,
                        reduction: int) -> Value:
    near = pairwise_distance(to, anchor, positive, p, eps)
    far = pairwise_distance(to, anchor, negative, p, eps)
    if swap:
        far = binary(to, "minimum", far, pairwise_distance(to, positive, negative, p, eps))
    each = clamp(to, with_number(to, "add", binary(to, "sub", near, far), margin), 0.0)
    return reduced_loss(to, each, reduction)


def accumulated(operator: str, neutral: float) -> Callable[..., Value]:
    """Returns the row of a sum or a product of all elements up to each one."""
    def row(to: Importer, x: Value, dim: int, dtype: Any = None) -> Value:
        x = as_value(to, x)
        axis, extent = dim % len(x.shape), extent_of(to, x, dim)
        last = len(x.shape) - 1
        order = list(range(len(x.shape)))
        order[axis], order[last] = last, axis
        x = permute(to, x, order)
        step = 1
        while step < extent:
            before = moves.pad(to, cut(to, x, last, 0, extent - step), [step, 0], "constant",
                               neutral)
            x = binary(to, operator, x, before)
            step *= 2
        return permute(to, x, order)

    return row


def celu(to: Importer, x: Value, alpha: float = 1.0) -> Value:
    """Where x is above 0, it is x; elsewhere alpha * (exp(x / alpha) - 1)."""
    if alpha <= 0:
        raise to.refuse(f"celu with alpha={alpha}", "one above 0")
    return with_number(to, "mul", of_each(to, "elu", with_number(
        to, "mul", x, 1 / alpha), alpha=1.0), alpha)


def lerp(to: Importer, x: Value, end: Value, weight: Any) -> Value:
    """Starts from the nearer end, as torch does: it is exactly `end` where the weight is 1."""
    rise = binary(to, "sub", end, x)

    def from_start() -> Value:
        return binary(to, "add", x, times(to, rise, weight))

    def from_end() -> Value:
        return binary(to, "sub", end, times(to, rise, binary(to, "sub", 1, weight)
                                            if isinstance(weight, Value) else 1 - weight))

    if isinstance(weight, Value):
        is_near = masks.compare("lt")(to, weight, 0.5)
        return masks.chosen(to, is_near, from_start(), from_end())
    return from_start() if weight < 0.5 else from_end()


def softshrink(to: Importer, x: Value, limit: float = 0.5) -> Value:
    return binary(to, "sub", x, clamp(to, x, -limit, limit))


def hardshrink(to: Importer, x: Value, limit: float = 0.5) -> Value:
    is_small = masks.compare("le")(to, of_each(to, "abs", x), limit)
    return masks.chosen(to, is_small, 0.0, x)


def threshold(to: Importer, x: Value, limit: float, other: float) -> Value:
    return masks.chosen(to, masks.compare("gt")(to, x, limit), x, other)


def bilinear(to: Importer, x: Value, y: Value, weight: Value, bias: Value | None) -> Value:
    results, rows, columns = weight.shape
    lead = x.shape[:-1]
    matrix = reshaped(to, permute(to, as_value(to, weight), [1, 0, 2]),
                      (rows, results * columns))
    wide = reshaped(to, product(to, x, matrix), (*lead, results, columns))
    apart = reshaped(to, y, (*lead, 1, columns))
    found = reduce(to, "sum", binary(to, "mul", wide, apart), -1, False)
    return found if bias is None else binary(to, "add", found, bias)
