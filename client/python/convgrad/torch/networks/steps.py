"""Steps of a program, by functions with the signatures of torch.nn.functional's.

Each takes the importer, adds what the operator is to its program, and returns the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.fx
from torch import nn

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
    is_single: bool = False
    """Whether it is known to have one element for each channel of a sample."""
    kind: str = "a result"
    """Or "a parameter", "an input"."""


@dataclass(frozen=True)
class Size:
    """An extent of a tensor, or with no axis its shape."""

    of: Value
    axis: int | None = None


class Importer(Protocol):
    """What follows a model's calls and has the program."""

    def refuse(self, found: object, expected: str) -> Unimplemented:
        """Returns the error that names the module under way."""

    def users(self) -> list[tuple[torch.fx.Node, nn.Module | None]]:
        """Returns the calls that use the result under way, with their modules."""

    def parameter(self, tensor: torch.Tensor | None) -> Value | None: ...

    def add(self, operator: str, *operands: Any, parameters: Sequence[Any] = (),
            view_of: Value | None = None, **attributes: Attribute | None) -> Value:
        """Adds a step of these operands, then parameters. Attributes that are None are left
        out."""

    def copy(self, value: Value) -> Value:
        """Returns the same value in memory of its own."""

    def branch(self, value: Value) -> Value:
        """Returns the same value, in the same memory or in a copy."""


def conv(to: Importer, x: Value, weight: Value, bias: Value | None = None, stride: Any = 1,
         padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Value:
    return _like(x, to.add("conv", x, parameters=(weight, bias), stride=_ints(stride),
                           padding=padding if isinstance(padding, str) else _ints(padding),
                           dilation=_ints(dilation), groups=groups))


def conv_transpose(to: Importer, x: Value, weight: Value, bias: Value | None = None,
                   stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
                   groups: int = 1, dilation: Any = 1) -> Value:
    return to.add("conv_transpose", x, parameters=(weight, bias), stride=_ints(stride),
                  padding=_ints(padding), output_padding=_ints(output_padding),
                  dilation=_ints(dilation), groups=groups)


def linear(to: Importer, x: Value, weight: Value, bias: Value | None = None) -> Value:
    return to.add("linear", x, parameters=(weight, bias))


def batch_norm(to: Importer, x: Value, running_mean: Value | None, running_var: Value | None,
               weight: Value | None = None, bias: Value | None = None,
               training: bool = False, momentum: float | None = 0.1,
               eps: float = 1e-5, batches: Value | None = None) -> Value:
    """`batches`: num_batches_tracked."""
    return _like(x, to.add(
        "batch_norm", x, parameters=(weight, bias, running_mean, running_var, batches),
        training=training, momentum="none" if momentum is None else float(momentum),
        eps=float(eps)))


def max_pool(to: Importer, x: Value, kernel_size: Any, stride: Any = None, padding: Any = 0,
             dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> Value:
    if return_indices:
        raise to.refuse("max_pool with return_indices", "the maxima alone")
    return to.add("max_pool", x, kernel_size=_ints(kernel_size), stride=_ints(stride),
                  padding=_ints(padding), dilation=_ints(dilation), ceil_mode=ceil_mode)


def avg_pool(to: Importer, x: Value, kernel_size: Any, stride: Any = None, padding: Any = 0,
             ceil_mode: bool = False, count_include_pad: bool = True,
             divisor_override: int | None = None) -> Value:
    return to.add("avg_pool", x, kernel_size=_ints(kernel_size), stride=_ints(stride),
                  padding=_ints(padding), ceil_mode=ceil_mode,
                  count_include_pad=count_include_pad, divisor_override=divisor_override)


def adaptive_avg_pool(to: Importer, x: Value, output_size: Any) -> Value:
    sizes = _ints(output_size)
    if sizes is None or not isinstance(sizes, int) and None in sizes:
        raise to.refuse(f"adaptive_avg_pool to {output_size}", "a size for each axis")
    is_single = all(size == 1 for size in ([sizes] if isinstance(sizes, int) else sizes))
    return replace(to.add("adaptive_avg_pool", x, output_size=sizes), is_single=is_single)


def element_function(name: str) -> Callable[..., Value]:
    """Returns the function of each element, with torch's `inplace`."""
    def add_step(to: Importer, x: Value, inplace: bool = False) -> Value:
        return _like(x, to.add(name, x))
    return add_step


def element_method(name: str) -> Callable[..., Value]:
    """As element_function, for what torch has as functions of tensors, without `inplace`."""
    def add_step(to: Importer, x: Value) -> Value:
        return _like(x, to.add(name, x))
    return add_step


def leaky_relu(to: Importer, x: Value, negative_slope: float = 0.01,
               inplace: bool = False) -> Value:
    return _like(x, to.add("leaky_relu", x, negative_slope=float(negative_slope)))


def dropout(to: Importer, x: Value, p: float = 0.5, training: bool = True,
            inplace: bool = False) -> Value:
    if not training or p == 0:
        return x
    return _like(x, to.add("dropout", x, p=float(p), training=True))


def add(to: Importer, x: Value, y: Value, *, alpha: float = 1) -> Value:
    if alpha != 1:
        raise to.refuse(f"add with alpha={alpha}", "alpha=1")
    return _broadcast(to, "add", x, y)


def mul(to: Importer, x: Value, y: Value) -> Value:
    return _broadcast(to, "mul", x, y)


def concat(to: Importer, tensors: Sequence[Value], dim: int = 0) -> Value:
    if dim != 1:
        raise to.refuse(f"concat along axis {dim}", "axis 1, the channels")
    if len(tensors) == 1:
        return to.copy(tensors[0])
    return to.add("concat", *tensors)


def flatten(to: Importer, x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    if (start_dim, end_dim) != (1, -1):
        raise to.refuse(f"flatten from axis {start_dim} to {end_dim}", "from 1 to -1")
    return to.add("flatten", x, view_of=x)


def view(to: Importer, x: Value, *shape: Any) -> Value:
    """Of views those that keep the batch and flatten the rest."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    if len(shape) == 2:
        keeps_batch = isinstance(shape[0], Size) and shape[0].axis == 0
        if keeps_batch and shape[1] == -1:
            return flatten(to, x, 1)
        if (keeps_batch or shape[0] == -1) and _goes_into_linear(to, shape[1]):
            return flatten(to, x, 1)
    found = ", ".join("a size" if isinstance(s, Size) else str(s) for s in shape)
    raise to.refuse(f"a view as ({found})", "flatten(1), or view(x.size(0), -1)")


def _goes_into_linear(to: Importer, features: Any) -> bool:
    """Returns whether linear layers of as many features, which the server checks, follow."""
    return all(isinstance(module, nn.Linear) and module.in_features == features
               for _, module in to.users())


def upsample(to: Importer, x: Value, size: Any = None, scale_factor: Any = None,
             mode: str = "nearest", align_corners: bool | None = None,
             recompute_scale_factor: bool | None = None, antialias: bool = False) -> Value:
    if mode not in ("nearest", "bilinear") or antialias or recompute_scale_factor:
        raise to.refuse(f"interpolation by {mode}, antialias={antialias}, "
                        f"recompute_scale_factor={recompute_scale_factor}",
                        "nearest or bilinear, without the others")
    if _has_size(size):
        raise to.refuse("interpolation to another tensor's size", "numbers, or a scale_factor")
    scale = None if scale_factor is None else (
        [float(s) for s in scale_factor] if isinstance(scale_factor, (tuple, list))
        else float(scale_factor))
    return to.add("upsample", x, size=_ints(size), scale_factor=scale, mode=mode,
                  align_corners=bool(align_corners))


def same(to: Importer, x: Value) -> Value:
    return x


def copied(to: Importer, x: Value, **_: Any) -> Value:
    return to.copy(x)


def contiguous(to: Importer, x: Value, **_: Any) -> Value:
    """Torch returns `x` itself or a copy. The layout at run time decides."""
    return to.branch(x)


def size(to: Importer, x: Value, dim: int | None = None) -> Size:
    return Size(x, dim)


def attribute(to: Importer, x: Any, name: str) -> Any:
    if isinstance(x, Value) and name == "shape":
        return Size(x)
    raise to.refuse(f"Tensor.{name}", "shape")


def item(to: Importer, x: Any, index: Any) -> Any:
    if isinstance(x, Size) and x.axis is None and isinstance(index, int):
        return Size(x.of, index)
    raise to.refuse(f"[{index}]", "an axis of a shape")


def _like(x: Value, y: Value) -> Value:
    return replace(y, is_single=x.is_single)


def _broadcast(to: Importer, name: str, x: Any, y: Any) -> Value:
    """The second operand is the one that is repeated over the other's elements."""
    if isinstance(x, Value) and isinstance(y, Value) and x.is_single and not y.is_single:
        x, y = y, x
    return to.add(name, x, y)


def _has_size(value: Any) -> bool:
    return isinstance(value, Size) or isinstance(value, (tuple, list)) and any(
        isinstance(one, Size) for one in value)


def _ints(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, list)) else value
