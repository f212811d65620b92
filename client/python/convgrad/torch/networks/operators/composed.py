"""Operators that are made of several steps, by functions with the arguments of ATen's
operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from convgrad.shapes import broadcast
from convgrad.torch.networks.operators import masks, moves, views
from convgrad.torch.networks.operators.elements import binary, clamp, detach, of_each, times
from convgrad.torch.networks.operators.losses import reduced_loss
from convgrad.torch.networks.operators.sums import norm, reduce
from convgrad.torch.networks.operators.tokens import product
from convgrad.torch.networks.operators.values import Importer, Value, text_of

_LARGEST = torch.finfo(torch.float32).max


def logsumexp(to: Importer, x: Value, dim: Any, keepdim: bool = False) -> Value:
    """The largest element is taken out. A finite one in place of an infinite one gives what
    torch gives."""
    x = views.as_value(to, x)
    largest = clamp(to, detach(to, reduce(to, "amax", x, dim, True)), -_LARGEST, _LARGEST)
    powers = of_each(to, "exp", x - largest)
    y = of_each(to, "log", reduce(to, "sum", powers, dim, True)) + largest
    return y if keepdim else views.reshaped(to, y, to.shape)


def cosine_similarity(to: Importer, x: Value, y: Value, dim: int = 1,
                      eps: float = 1e-8) -> Value:
    shape = broadcast(x.shape, y.shape)
    if shape is None:
        raise to.refuse(f"cosine_similarity of {text_of(x.shape)} and {text_of(y.shape)}",
                        "operands whose extents are equal, or 1")
    parts = [views.expanded(to, views.as_value(to, one, len(shape)), shape) for one in (x, y)]
    units = []
    for one in parts:
        size = norm(to, one, 2, dim, True)
        # As in torch, the gradient of a size below eps isn't 0.
        units.append(one / (size + detach(to, clamp(to, size, eps) - size)))
    return reduce(to, "sum", units[0] * units[1], dim, False)


def pairwise_distance(to: Importer, x: Value, y: Value, p: float = 2, eps: float = 1e-6,
                      keepdim: bool = False) -> Value:
    return norm(to, binary(to, "sub", x, y) + eps, p, -1, keepdim)


def weight_norm(to: Importer, x: Value, lengths: Value, dim: int) -> Value:
    """Rows along an axis, or all of `x` if it is -1, of these lengths."""
    x = views.as_value(to, x)
    axes = [axis for axis in range(len(x.shape)) if axis != dim]
    return x * (lengths / norm(to, x, 2, axes, True))


def cdist(to: Importer, x: Value, y: Value, p: float = 2, _: Any = None) -> Value:
    rows = views.with_axis(to, views.as_value(to, x), len(x.shape) - 1)
    columns = views.with_axis(to, views.as_value(to, y), len(y.shape) - 2)
    return norm(to, rows - columns, p, -1)


def triplet_margin_loss(to: Importer, anchor: Value, positive: Value, negative: Value,
                        margin: float, p: float, eps: float, swap: bool,
                        reduction: int) -> Value:
    near = pairwise_distance(to, anchor, positive, p, eps)
    far = pairwise_distance(to, anchor, negative, p, eps)
    if swap:
        far = binary(to, "minimum", far, pairwise_distance(to, positive, negative, p, eps))
    return reduced_loss(to, clamp(to, near - far + margin, 0.0), reduction)


def accumulated(operator: str, neutral: float) -> Callable[..., Value]:
    """Returns the row of a sum or a product of all elements up to each one."""
    def row(to: Importer, x: Value, dim: int, dtype: Any = None) -> Value:
        extent, last, step = views.extent_of(to, x, dim), len(x.shape) - 1, 1
        x = views.transpose(to, x, dim, last)
        while step < extent:
            start = views.cut(to, x, last, 0, extent - step)
            before = moves.pad(to, start, [step, 0], "constant", neutral)
            x = binary(to, operator, x, before)
            step *= 2
        return views.transpose(to, x, dim, last)

    return row


def celu(to: Importer, x: Value, alpha: float = 1.0) -> Value:
    """Where x is above 0, it is x; elsewhere alpha * (exp(x / alpha) - 1)."""
    if alpha <= 0:
        raise to.refuse(f"celu with alpha={alpha}", "one above 0")
    return of_each(to, "elu", x * (1 / alpha), alpha=1.0) * alpha


def lerp(to: Importer, x: Value, end: Value, weight: Any) -> Value:
    """Starts from the nearer end, as torch does: it is exactly `end` where the weight is 1."""
    rise = end - x
    if isinstance(weight, Value):
        is_near = masks.compare("lt")(to, weight, 0.5)
        return masks.chosen(to, is_near, x + rise * weight, end - rise * (1 - weight))
    return x + times(to, rise, weight) if weight < 0.5 else end - times(to, rise, 1 - weight)


def softshrink(to: Importer, x: Value, limit: float = 0.5) -> Value:
    return hardshrink(to, x, limit, x - clamp(to, x, -limit, limit))


def hardshrink(to: Importer, x: Value, limit: float = 0.5, y: Value | None = None) -> Value:
    """`y` is what becomes of numbers above the limit; by default, they stay."""
    is_small = masks.compare("le")(to, of_each(to, "abs", x), limit)
    return masks.chosen(to, is_small, 0.0, x if y is None else y)


def threshold(to: Importer, x: Value, limit: float, other: float) -> Value:
    return masks.chosen(to, masks.compare("le")(to, x, limit), other, x)


def bilinear(to: Importer, x: Value, y: Value, weight: Value, bias: Value | None) -> Value:
    results, rows, columns = weight.shape
    lead = x.shape[:-1]
    matrix = views.reshaped(to, views.permute(to, weight, [1, 0, 2]), (rows, results * columns))
    wide = views.reshaped(to, product(to, x, matrix), (*lead, results, columns))
    apart = views.reshaped(to, y, (*lead, 1, columns))
    found = reduce(to, "sum", wide * apart, -1, False)
    return found if bias is None else found + bias
