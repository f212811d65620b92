"""Which function of steps.py each of PyTorch's modules, functions and methods leads to."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch import nn

from convgrad.torch.networks import steps
from convgrad.torch.networks.steps import Importer, Value

Function = Callable[..., Any]


def _convolution_module(to: Importer, m: Any, x: Value) -> Value:
    if m.padding_mode != "zeros":
        raise to.refuse(f"padding_mode={m.padding_mode}", "zeros")
    return steps.conv(
        to, x, to.parameter(m.weight), to.parameter(m.bias),  # type: ignore[arg-type]
        m.stride, m.padding, m.dilation, m.groups)


def _transposed_module(to: Importer, m: Any, x: Value, output_size: Any = None) -> Value:
    if output_size is not None:
        raise to.refuse("output_size", "output_padding")
    return steps.conv_transpose(
        to, x, to.parameter(m.weight), to.parameter(m.bias),  # type: ignore[arg-type]
        m.stride, m.padding, m.output_padding, m.groups, m.dilation)


def _batch_norm_module(to: Importer, m: Any, x: Value) -> Value:
    training = m.training or m.running_mean is None and m.running_var is None
    mean, var, batches = None, None, None
    # Statistics that track_running_stats=False has left behind are for evaluation alone.
    if not m.training or m.track_running_stats:
        mean, var = m.running_mean, m.running_var
        batches = m.num_batches_tracked if training else None
    return steps.batch_norm(to, x, to.parameter(mean), to.parameter(var),
                            to.parameter(m.weight), to.parameter(m.bias), training,
                            m.momentum, m.eps, to.parameter(batches))


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)

_MODULES: dict[type[nn.Module], Function] = {
    **dict.fromkeys(_CONVOLUTIONS, _convolution_module),
    **dict.fromkeys(_TRANSPOSED, _transposed_module),
    **dict.fromkeys(_NORMS, _batch_norm_module),
    **dict.fromkeys(_ADAPTIVE, lambda to, m, x: steps.adaptive_avg_pool(to, x, m.output_size)),
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), lambda to, m, x: steps.max_pool(
        to, x, m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode, m.return_indices)),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d), lambda to, m, x: steps.avg_pool(
        to, x, m.kernel_size, m.stride, m.padding, m.ceil_mode, m.count_include_pad,
        getattr(m, "divisor_override", None))),
    nn.Linear: lambda to, m, x: steps.linear(to, x, to.parameter(m.weight),
                                             to.parameter(m.bias)),
    nn.ReLU: lambda to, m, x: steps.relu(to, x),
    nn.ReLU6: lambda to, m, x: steps.relu6(to, x),
    nn.LeakyReLU: lambda to, m, x: steps.leaky_relu(to, x, m.negative_slope),
    nn.Sigmoid: lambda to, m, x: steps.sigmoid(to, x),
    nn.SiLU: lambda to, m, x: steps.silu(to, x),
    nn.Dropout: lambda to, m, x: steps.dropout(to, x, m.p, m.training),
    nn.Flatten: lambda to, m, x: steps.flatten(to, x, m.start_dim, m.end_dim),
    nn.Upsample: lambda to, m, x: steps.upsample(to, x, m.size, m.scale_factor, m.mode,
                                           m.align_corners, m.recompute_scale_factor),
    nn.Identity: lambda to, m, x: x,
}

_FUNCTIONS: dict[Any, Function] = {
    **dict.fromkeys((F.conv1d, F.conv2d, F.conv3d), steps.conv),
    **dict.fromkeys((F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
                    steps.conv_transpose),
    **dict.fromkeys((F.max_pool1d, F.max_pool2d, F.max_pool3d, torch.max_pool1d,
                     torch.max_pool2d, torch.max_pool3d), steps.max_pool),
    **dict.fromkeys((F.avg_pool1d, F.avg_pool2d, F.avg_pool3d), steps.avg_pool),
    **dict.fromkeys((F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d),
                    steps.adaptive_avg_pool),
    **dict.fromkeys((F.relu, F.relu_, torch.relu, torch.relu_, "relu", "relu_"), steps.relu),
    **dict.fromkeys((F.leaky_relu, F.leaky_relu_), steps.leaky_relu),
    **dict.fromkeys((F.sigmoid, torch.sigmoid, "sigmoid", torch.sigmoid_, "sigmoid_"),
                    steps.sigmoid),
    **dict.fromkeys((F.interpolate, F.upsample), steps.upsample),
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add", "add_"), steps.add),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul, "mul", "mul_"), steps.mul),
    **dict.fromkeys((torch.cat, getattr(torch, "concat", torch.cat)), steps.concat),
    **dict.fromkeys((torch.flatten, "flatten"), steps.flatten),
    **dict.fromkeys(("view", "reshape", torch.reshape), steps.view),
    **dict.fromkeys(("clone", torch.clone), steps.copied), "contiguous": steps.contiguous,
    F.linear: steps.linear, F.batch_norm: steps.batch_norm, F.relu6: steps.relu6,
    F.silu: steps.silu, F.dropout: steps.dropout, "size": steps.size,
    getattr: steps.attribute, operator.getitem: steps.item,
}

_IN_PLACE = (operator.iadd, operator.imul, F.relu_, torch.relu_, F.leaky_relu_, torch.sigmoid_)


def of_module(module: nn.Module) -> Function | None:
    """Returns what takes the importer, the module and its inputs; None if nothing does."""
    return _MODULES.get(type(module))


def of_function(target: Any) -> Function | None:
    """Returns what takes the importer and the arguments of a function, or of the tensor's
    method of this name."""
    if isinstance(target, type) and issubclass(target, tuple):  # a namedtuple's class
        return lambda to, *args, **kwargs: target(*args, **kwargs)
    return _FUNCTIONS.get(target)


def is_in_place(node: torch.fx.Node, args: Sequence[Any]) -> bool:
    """Returns whether the call changes its first operand, which `inplace` may ask for, too."""
    if node.op == "call_module":
        return bool(getattr(args[0], "inplace", False))
    return node.target in _IN_PLACE or (
        isinstance(node.target, str) and node.target.endswith("_"))
