"""Steps of whole layers, by functions with the arguments of ATen's operators.

Each function takes the importer, adds the steps to its program and returns the value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from convgrad.torch.networks.operators.elements import binary
from convgrad.torch.networks.operators.values import Importer, Value, text_of
from convgrad.torch.networks.operators.views import as_value, cut, reshaped
from convgrad.torch.networks.stand_ins import Constant


def conv(to: Importer, x: Value, weight: Value, bias: Value | None, stride: Any,
         padding: Any, dilation: Any, groups: int) -> Value:
    attributes = dict(stride=_ints(stride), dilation=_ints(dilation), groups=groups,
                      padding=padding if isinstance(padding, str) else _ints(padding))
    if weight.kind == "a parameter" and (bias is None or bias.kind == "a parameter"):
        return to.add("conv", x, parameters=(weight, bias), **attributes)
    return _with_bias(to, to.add("conv", x, as_value(to, weight), **attributes), bias)


def _with_bias(to: Importer, y: Value, bias: Value | None) -> Value:
    if bias is None:
        return y
    of_channels = reshaped(to, bias, (1, *bias.shape, *[1] * (len(to.shape) - 2)))
    return binary(to, "add", replace(y, shape=to.shape), of_channels)


def conv_transpose(to: Importer, x: Value, weight: Value, bias: Value | None, stride: Any,
                   padding: Any, output_padding: Any, groups: int, dilation: Any) -> Value:
    return to.add("conv_transpose", x, parameters=(weight, bias), stride=_ints(stride),
                  padding=_ints(padding), output_padding=_ints(output_padding),
                  dilation=_ints(dilation), groups=groups)


def batch_norm(to: Importer, x: Value, weight: Value | None, bias: Value | None,
               running_mean: Value | None, running_var: Value | None, training: bool,
               momentum: float, eps: float, _: bool) -> Value:
    batches = to.take_count() if training and running_mean is not None else None
    return to.add(
        "batch_norm", x, parameters=(weight, bias, running_mean, running_var, batches),
        training=training, momentum="none" if math.isnan(momentum) else float(momentum),
        eps=float(eps))


def max_pool(to: Importer, x: Value, kernel_size: Any, stride: Any, padding: Any,
             dilation: Any, ceil_mode: bool) -> Value:
    return to.add("max_pool", x, kernel_size=_ints(kernel_size), stride=_ints(stride) or None,
                  padding=_ints(padding), dilation=_ints(dilation), ceil_mode=ceil_mode)


def avg_pool(to: Importer, x: Value, kernel_size: Any, stride: Any, padding: Any,
             ceil_mode: bool, count_include_pad: bool,
             divisor_override: int | None = None) -> Value:
    return to.add("avg_pool", x, kernel_size=_ints(kernel_size), stride=_ints(stride) or None,
                  padding=_ints(padding), ceil_mode=ceil_mode,
                  count_include_pad=count_include_pad, divisor_override=divisor_override)


def adaptive_avg_pool(to: Importer, x: Value, output_size: Any) -> Value:
    return to.add("adaptive_avg_pool", x, output_size=_ints(output_size))


def adaptive_max_pool(to: Importer, x: Value, output_size: Any) -> list[Any]:
    """The places of the largest elements can't be used."""
    places = Constant("the places of the largest elements", None)
    y = to.add("adaptive_max_pool", x, output_size=_ints(output_size))
    return [replace(y, shape=(*x.shape[:2], *output_size)), places]


def pad(to: Importer, x: Value, pads: Sequence[Any], mode: str = "constant",
        value: float | None = None) -> Value:
    """Pads below 0 cut."""
    if any(not isinstance(n, int) for n in pads) or len(pads) // 2 >= len(x.shape):
        raise to.refuse(f"pad of {text_of(x.shape)} by {text_of(pads)}",
                        "numbers, for other axes than the first one")
    x = as_value(to, x)
    if min(pads) < 0 and mode != "constant":
        raise to.refuse(f"pad with mode={mode} by {list(pads)}", "numbers from 0 on")
    for i in range(0, len(pads), 2):
        axis = len(x.shape) - 1 - i // 2
        first, last = (max(-n, 0) for n in pads[i:i + 2])
        if first or last:
            x = cut(to, x, axis, first, x.shape[axis] - last)
    widths = [max(n, 0) for n in pads]
    if not any(widths):
        return to.copy(x)
    return to.add("pad", x, pads=widths, mode=mode, value=float(value) if value else None)


def dropout(to: Importer, x: Value, p: float, training: bool) -> Value:
    if not training or p == 0:
        return x
    return to.add("dropout", x, p=float(p), training=True)


def converted(to: Importer, x: Value, dtype: Any, *_: Any) -> Value:
    if dtype != torch.float32:
        raise to.refuse(f"a conversion to {dtype}",
                        "none: remote(..., dtype=torch.bfloat16) computes in bf16")
    return to.branch(x)


def upsample_nearest(to: Importer, x: Value, size: Any, scales: Any) -> Value:
    return _upsample(to, x, "nearest", False, size, scales)


def upsample_bilinear(to: Importer, x: Value, size: Any, align_corners: bool,
                      scales: Any) -> Value:
    return _upsample(to, x, "bilinear", align_corners, size, scales)


def upsample_bicubic(to: Importer, x: Value, size: Any, align_corners: bool,
                     scales: Any) -> Value:
    return _upsample(to, x, "bicubic", align_corners, size, scales)


def _upsample(to: Importer, x: Value, mode: str, align_corners: bool, size: Any,
              scales: Any) -> Value:
    return to.add("upsample", x, size=_ints(size), mode=mode, align_corners=align_corners,
                  scale_factor=None if scales is None else [float(one) for one in scales])


def copied(to: Importer, x: Value, *_: Any) -> Value:
    return to.copy(x)


def contiguous(to: Importer, x: Value, *_: Any) -> Value:
    """Torch returns `x` itself or a copy. The layout at run time decides."""
    return to.branch(x)


def _ints(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, list)) else value
