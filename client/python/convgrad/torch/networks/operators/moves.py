"""Steps that arrange elements anew, by functions with the arguments of ATen's operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from convgrad.importers.steps import repeated
from convgrad.shapes import padded
from convgrad.torch.networks.operators.elements import detach
from convgrad.torch.networks.operators.sums import reduce
from convgrad.torch.networks.operators.values import INDICES, Empty, Importer, Value, text_of
from convgrad.torch.networks.operators.views import (
    as_value,
    cut,
    expanded,
    extent_of,
    joined,
    permute,
    reshaped,
    select,
    slice_of,
    split,
    stacked,
    taken,
    transpose,
)


def index_select(to: Importer, x: Value, dim: int, places: Any) -> Value:
    if isinstance(places, Value) and places.dtype in INDICES and (
            places.whole.kind == "a result"):  # as of a roll or a cat
        places = to.sent(places, lambda one: one)
    whole = places.whole if isinstance(places, Value) else None
    if whole is None or whole.dtype not in INDICES:
        raise to.refuse("an index that follows from data",
                        "an input, a buffer, or a view of one, of torch.int64")
    axis = dim % len(x.shape)
    if not isinstance(x.shape[axis], int):
        raise to.refuse(f"an index of {text_of(x.shape)} along axis {dim}",
                        "another axis than the batch")
    y = taken(to, as_value(to, x), dim, whole)
    for view in places.views:
        y = _seen_inside(to, y, x.shape[:axis], view.key, x.shape[axis + 1:])
    return reshaped(to, y, to.shape)


def _seen_inside(to: Importer, y: Value, before: Sequence[Any], key: Sequence[Any],
                 after: Sequence[Any]) -> Value:
    """Returns what a view of the places does to what was taken there, which has other axes
    before and after theirs."""
    kind, *how = key
    first = len(before)
    if kind == "reshape":
        return reshaped(to, y, (*before, *how[0], *after))
    if kind == "expand":
        return expanded(to, y, (*before, *how[0], *after))
    if kind == "permute":
        order = [*range(first), *(first + axis for axis in how)]
        return permute(to, y, [*order, *range(len(order), len(y.shape))])
    if kind == "select":
        return select(to, y, first + how[0], how[1])
    if kind == "slice":
        return cut(to, y, first + how[0], how[1].start, how[1].stop, how[1].step)
    raise to.refuse(f"an index that is a {kind} of an input", "another view")


def embedding(to: Importer, weight: Value, places: Any, padding_idx: int = -1,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Value:
    """Rows of a matrix. The row of `padding_idx` gets no gradient."""
    if scale_grad_by_freq or sparse:
        raise to.refuse("embedding with scale_grad_by_freq or sparse", "neither of them")
    x = as_value(to, weight)
    if padding_idx >= 0 and to.has_gradient(weight):
        sizes = [padding_idx, 1, extent_of(to, x, 0) - padding_idx - 1]
        before, own, after = split(to, x, sizes)
        x = concat(to, [before, detach(to, own), after])
    return index_select(to, x, 0, places)


def repeat(to: Importer, x: Value, repeats: Sequence[Any]) -> Value:
    """Repeats whole axes; the first one can only be 1, repeated to the batch. Also tile, whose
    leading numbers may be missing."""
    repeats = padded(repeats, len(x.shape))
    return repeated(to, as_value(to, x, len(repeats)), repeats)


def pad(to: Importer, x: Value, pads: Sequence[Any], mode: str = "constant",
        value: float | None = None) -> Value:
    """Pads below 0 cut."""
    while len(pads) > 2 and not any(pads[-2:]):
        pads = pads[:-2]
    if any(not isinstance(n, int) for n in pads) or len(pads) // 2 >= len(x.shape):
        raise to.refuse(f"pad of {text_of(x.shape)} by {text_of(pads)}",
                        "numbers, for other axes than the first one")
    x = as_value(to, x)
    if min(pads, default=0) < 0 and mode != "constant":
        raise to.refuse(f"pad with mode={mode} by {list(pads)}", "numbers from 0 on")
    for i in range(0, len(pads), 2):
        axis = len(x.shape) - 1 - i // 2
        first, last = (max(-n, 0) for n in pads[i:i + 2])
        if first or last:
            x = cut(to, x, axis, first, x.shape[axis] - last)
    widths = [max(n, 0) for n in pads]
    if not any(widths):
        return x
    shape = list(x.shape)
    for i, n in enumerate(widths):
        shape[len(shape) - 1 - i // 2] += n
    return to.add("pad", x, shape=tuple(shape), pads=widths, mode=mode,
                  value=float(value) if value else None)


def unfold(to: Importer, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along an axis, whose elements are the last axis of the result."""
    axis, extent = dim % len(x.shape), extent_of(to, x, dim)
    places = torch.arange(0, extent - size + 1, step)[:, None] + torch.arange(size)
    apart = taken(to, as_value(to, x), axis, places)
    return moved(to, apart, axis + 1, -1)


def im2col(to: Importer, x: Value, kernel: Sequence[int], dilation: Sequence[int],
           padding: Sequence[int], stride: Sequence[int]) -> Value:
    """The windows of images: (N, C, H, W) to (N, C * window, places)."""
    batch, channels, *sizes = image_of(to, x)
    x = pad(to, x, [padding[1]] * 2 + [padding[0]] * 2)
    for axis, extent in enumerate(sizes):
        reach = dilation[axis] * (kernel[axis] - 1)
        starts = torch.arange(0, extent + 2 * padding[axis] - reach, stride[axis])
        places = starts + dilation[axis] * torch.arange(kernel[axis])[:, None]
        x = taken(to, x, 2 + 2 * axis, places)
    return reshaped(to, permute(to, x, [0, 1, 2, 4, 3, 5]), to.shape)


def col2im(to: Importer, x: Value, size: Sequence[int], kernel: Sequence[int],
           dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]) -> Value:
    """Adds up the windows of images: (N, C * window, places) to (N, C, H, W). Zeros fill up
    the sums, since products with zeros would spread NaN."""
    if len(x.shape) != 3:
        raise to.refuse(f"windows of {text_of(x.shape)}", "three axes")
    counts = [(size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
              for i in range(2)]
    batch, channels = to.shape[:2]
    x = reshaped(to, x, (batch, channels, *kernel, *counts))
    x = permute(to, x, [0, 1, 3, 5, 2, 4])
    for i in range(2):
        x = reshaped(to, x, (*x.shape[:-2], kernel[i] * counts[i]))
        x = pad(to, x, [0, 1])
        reached: list[list[int]] = [[] for _ in range(size[i])]
        for place in range(kernel[i] * counts[i]):
            tap, start = divmod(place, counts[i])
            at = start * stride[i] + tap * dilation[i] - padding[i]
            if 0 <= at < size[i]:
                reached[at].append(place)
        most = max(1, *map(len, reached))
        places = torch.tensor([row + [kernel[i] * counts[i]] * (most - len(row))
                               for row in reached]).t().contiguous()
        axis = len(x.shape) - 1
        x = reduce(to, "sum", taken(to, x, axis, places), axis, False)
        if i == 0:
            x = permute(to, x, [0, 1, 4, 2, 3])
    return x


def concat(to: Importer, tensors: Sequence[Any], dim: int = 0) -> Value:
    return joined(to, [as_value(to, one) for one in tensors if not isinstance(one, Empty)], dim)


def stack(to: Importer, tensors: Sequence[Any], dim: int = 0) -> Value:
    return stacked(to, [as_value(to, one) for one in tensors], dim % len(to.shape))


def roll(to: Importer, x: Value, shifts: Any, dims: Any = ()) -> Value:
    if isinstance(dims, (list, tuple)) and not dims:
        flat = reshaped(to, x, (math.prod(x.shape),))
        return reshaped(to, roll(to, flat, shifts, 0), x.shape)
    for shift, dim in zip(*(([n] if isinstance(n, int) else n) for n in (shifts, dims))):
        extent, axis = extent_of(to, x, dim), dim % len(x.shape)
        if shift % extent:
            first = extent - shift % extent
            x = joined(to, [cut(to, x, axis, first, extent), cut(to, x, axis, 0, first)], axis)
    return x


def narrow(to: Importer, x: Value, dim: int, start: int, length: int) -> Value:
    return slice_of(to, x, dim, start, start % x.shape[dim] + length)


def moved(to: Importer, x: Value, source: Any, target: Any) -> Value:
    """Moves axes to other places, and keeps the order of the others."""
    rank = len(x.shape)
    if rank < 2:
        return x
    old, new = ([axis % rank for axis in ([one] if isinstance(one, int) else one)]
                for one in (source, target))
    order = [axis for axis in range(rank) if axis not in old]
    for place, axis in sorted(zip(new, old)):
        order.insert(place, axis)
    return permute(to, x, order)


def transposed(to: Importer, x: Value) -> Value:
    return permute(to, x, range(len(x.shape))[::-1])


def matrices_transposed(to: Importer, x: Value) -> Value:
    return transpose(to, x, -2, -1)


def flip(to: Importer, x: Value, dims: Sequence[int]) -> Value:
    x = as_value(to, x)
    for dim in dims:
        places = torch.arange(extent_of(to, x, dim)).flip(0)
        x = taken(to, x, dim, places)
    return x


def channel_shuffle(to: Importer, x: Value, groups: int) -> Value:
    channels, rest = x.shape[1] // groups, x.shape[2:]
    apart = reshaped(to, x, (x.shape[0], groups, channels, *rest))
    return reshaped(to, moved(to, apart, 1, 2), x.shape)


def pixel_shuffle(to: Importer, x: Value, factor: int) -> Value:
    batch, channels, height, width = image_of(to, x)
    split_up = reshaped(to, x, (batch, channels // factor ** 2, factor, factor, height, width))
    return reshaped(to, permute(to, split_up, [0, 1, 4, 2, 5, 3]), to.shape)


def pixel_unshuffle(to: Importer, x: Value, factor: int) -> Value:
    batch, channels, height, width = image_of(to, x)
    split_up = reshaped(to, x, (batch, channels, height // factor, factor, width // factor,
                                factor))
    return reshaped(to, permute(to, split_up, [0, 1, 3, 5, 2, 4]), to.shape)


def image_of(to: Importer, x: Value) -> tuple[Any, ...]:
    if len(x.shape) == 4:
        return x.shape
    raise to.refuse(f"pixels of {text_of(x.shape)}", "four axes")
