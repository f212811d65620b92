"""Steps of a program, by functions with the arguments of ATen's operators.

Each takes the importer, adds what the operator is to its program, and returns the value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from convgrad.errors import Unimplemented
from convgrad.programs import Attribute


@dataclass(frozen=True)
class Value:
    """A tensor: the program's value that it holds."""

    name: str
    memory: int
    """Equal for tensors that are views of one another."""
    branch: int = 0
    """Differs between tensors that share memory or don't, as torch's contiguous() decides."""
    kind: str = "a result"
    """Or "a parameter", "an input"."""
    shape: tuple[Any, ...] = ()
    """Numbers, and expressions of the batch."""


@dataclass
class Noise:
    """A tensor of random ones and zeros, or of nothing yet, and its factor."""

    shape: tuple[Any, ...]
    keep: float | None = None
    divisor: float = 1.0


class Importer(Protocol):
    """What follows a model's calls and has the program."""

    def refuse(self, found: object, expected: str) -> Unimplemented:
        """Returns the error that names the module under way."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the result under way."""

    def add(self, operator: str, *operands: Any, parameters: Sequence[Any] = (),
            view_of: Value | None = None, **attributes: Attribute | None) -> Value:
        """Adds a step of these operands, then parameters. Attributes that are None are left
        out."""

    def like(self, extent: Any) -> Value:
        """Returns a value whose first axis has this extent, which depends on the batch."""

    def with_rank(self, value: Any, rank: int) -> Any:
        """Returns a parameter as a value, and a value with leading axes of 1 up to `rank`."""

    def copy(self, value: Value) -> Value:
        """Returns the same value in memory of its own."""

    def branch(self, value: Value) -> Value:
        """Returns the same value, in the same memory or in a copy."""

    def count_batch(self, batches: Value) -> Value:
        """Notes that 1 was added to a num_batches_tracked, which a batch_norm then does."""

    def take_count(self) -> Value | None:
        """Returns what count_batch() has noted in the module under way, if anything."""


def conv(to: Importer, x: Value, weight: Value, bias: Value | None, stride: Any,
         padding: Any, dilation: Any, groups: int) -> Value:
    return to.add("conv", x, parameters=(weight, bias), stride=_ints(stride),
                  padding=padding if isinstance(padding, str) else _ints(padding),
                  dilation=_ints(dilation), groups=groups)


def conv_transpose(to: Importer, x: Value, weight: Value, bias: Value | None, stride: Any,
                   padding: Any, output_padding: Any, groups: int, dilation: Any) -> Value:
    return to.add("conv_transpose", x, parameters=(weight, bias), stride=_ints(stride),
                  padding=_ints(padding), output_padding=_ints(output_padding),
                  dilation=_ints(dilation), groups=groups)


def linear(to: Importer, x: Value, weight: Value, bias: Value | None) -> Value:
    return to.add("linear", x, parameters=(weight, bias))


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


def mean(to: Importer, x: Value, axes: Sequence[int] | None, keepdim: bool,
         dtype: torch.dtype | None) -> Value:
    """Of means those over all spatial axes."""
    rank = len(x.shape)
    found = sorted(axis % rank for axis in axes or range(rank))
    if rank < 3 or found != list(range(2, rank)) or dtype not in (None, torch.float32):
        raise to.refuse(f"mean of {text_of(x.shape)} over the axes {found}",
                        "all axes behind the channels")
    pooled = to.add("adaptive_avg_pool", x, output_size=[1] * (rank - 2))
    return pooled if keepdim else to.add("flatten", pooled)


def pointwise(operator: str) -> Any:
    return lambda to, x: to.add(operator, x)


def leaky_relu(to: Importer, x: Value, negative_slope: float) -> Value:
    return to.add("leaky_relu", x, negative_slope=float(negative_slope))


def hardtanh(to: Importer, x: Value, least: float, most: float) -> Value:
    if (least, most) != (0, 6):
        raise to.refuse(f"hardtanh from {least} to {most}", "from 0 to 6, relu6")
    return to.add("relu6", x)


def dropout(to: Importer, x: Value, p: float, training: bool) -> Value:
    if not training or p == 0:
        return x
    return to.add("dropout", x, p=float(p), training=True)


def add(to: Importer, x: Any, y: Any, alpha: float = 1) -> Value:
    if isinstance(x, Value) and x.kind == "a parameter" and y == 1 == alpha:
        return to.count_batch(x)
    if alpha != 1:
        raise to.refuse(f"add with alpha={alpha}", "alpha=1")
    return broadcast(to, "add", x, y)


def mul(to: Importer, x: Any, y: Any) -> Value:
    if isinstance(x, Noise):
        x, y = y, x
    if not isinstance(y, Noise) or not isinstance(x, Value):
        return broadcast(to, "mul", x, y)
    of_rows = (*x.shape[:1], *[1] * (len(x.shape) - 1))
    if y.keep is None or y.keep != y.divisor or y.shape != of_rows:
        raise to.refuse(f"mul with random numbers of {text_of(y.shape)}",
                        "bernoulli_(p).div_(p) of one number for each sample")
    return to.add("dropout", x, p=1.0 - y.keep, training=True, by_row=True)


def empty(to: Importer, *_: Any) -> Noise:
    return Noise(to.shape)


def bernoulli(to: Importer, x: Any, p: Any = None, *_: Any) -> Noise:
    if not isinstance(x, Noise) or not isinstance(p, (int, float)):
        raise to.refuse("bernoulli of a tensor's numbers", "bernoulli_(p) of an empty tensor")
    x.keep = float(p)
    return x


def div(to: Importer, x: Any, y: Any, *_: Any) -> Noise:
    if not isinstance(x, Noise) or not isinstance(y, (int, float)):
        raise to.refuse("div", "an operator that programs have")
    x.divisor *= y
    return x


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


def _upsample(to: Importer, x: Value, mode: str, align_corners: bool, size: Any,
              scales: Any) -> Value:
    return to.add("upsample", x, size=_ints(size), mode=mode, align_corners=align_corners,
                  scale_factor=None if scales is None else [float(one) for one in scales])


def copied(to: Importer, x: Value, *_: Any) -> Value:
    return to.copy(x)


def contiguous(to: Importer, x: Value, *_: Any) -> Value:
    """Torch returns `x` itself or a copy. The layout at run time decides."""
    return to.branch(x)


def text_of(shape: Sequence[Any]) -> str:
    """Returns the shape with N for the batch."""
    return f"({', '.join(str(n) if isinstance(n, int) else 'N' for n in shape)})"


def broadcast(to: Importer, name: str, x: Any, y: Any) -> Value:
    """The second operand is the one that is repeated over the other's elements."""
    if isinstance(x, Value) and isinstance(y, Value):
        if x.shape != to.shape and y.shape == to.shape:
            x, y = y, x
        if x.shape != to.shape:
            raise to.refuse(f"{name} of {text_of(x.shape)} and {text_of(y.shape)}",
                            "one operand that has the result's shape")
        y = to.with_rank(y, len(x.shape))
    return to.add(name, to.with_rank(x, 0), y)


def _ints(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, list)) else value
