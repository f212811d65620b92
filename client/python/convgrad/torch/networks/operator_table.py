"""Which function of steps.py each of PyTorch's modules, functions and methods leads to."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
import torch.nn.functional as F
from torch import nn

from convgrad.torch.networks import steps
from convgrad.torch.networks.steps import Importer, Value

Function = Callable[..., Any]


def _without_module(step: Function) -> Function:
    return lambda to, m, x: step(to, x)


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


def _upsample_module(to: Importer, m: Any, x: Value) -> Value:
    return steps.upsample(to, x, m.size, m.scale_factor, m.mode, m.align_corners,
                          m.recompute_scale_factor)


class Row(NamedTuple):
    """What leads to one function of steps.py."""

    step: Function
    """Takes the importer and the arguments of each of the functions."""
    functions: tuple[Any, ...] = ()
    """Torch's functions, and the names of its tensors' methods."""
    modules: tuple[type[nn.Module], ...] = ()
    module_step: Function | None = None
    """Takes the importer, one of the modules and its inputs. None: step does, without the
    module."""
    in_place: tuple[Any, ...] = ()
    """Further functions, which change their first operand. So do methods in "_"."""


ROWS = (
    Row(steps.conv, (F.conv1d, F.conv2d, F.conv3d), (nn.Conv1d, nn.Conv2d, nn.Conv3d),
        _convolution_module),
    Row(steps.conv_transpose, (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), _transposed_module),
    Row(steps.linear, (F.linear,), (nn.Linear,), lambda to, m, x: steps.linear(
        to, x, to.parameter(m.weight), to.parameter(m.bias))),
    Row(steps.batch_norm, (F.batch_norm,), (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
        _batch_norm_module),
    Row(steps.max_pool, (F.max_pool1d, F.max_pool2d, F.max_pool3d, torch.max_pool1d,
                         torch.max_pool2d, torch.max_pool3d),
        (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), lambda to, m, x: steps.max_pool(
            to, x, m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode,
            m.return_indices)),
    Row(steps.avg_pool, (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d),
        (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d), lambda to, m, x: steps.avg_pool(
            to, x, m.kernel_size, m.stride, m.padding, m.ceil_mode, m.count_include_pad,
            getattr(m, "divisor_override", None))),
    Row(steps.adaptive_avg_pool,
        (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d),
        (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
        lambda to, m, x: steps.adaptive_avg_pool(to, x, m.output_size)),
    Row(steps.element_function("relu"), (F.relu, torch.relu, "relu", "relu_"), (nn.ReLU,),
        in_place=(F.relu_, torch.relu_)),
    Row(steps.element_function("relu6"), (F.relu6,), (nn.ReLU6,)),
    Row(steps.leaky_relu, (F.leaky_relu,), (nn.LeakyReLU,),
        lambda to, m, x: steps.leaky_relu(to, x, m.negative_slope), in_place=(F.leaky_relu_,)),
    Row(steps.element_method("sigmoid"), (F.sigmoid, torch.sigmoid, "sigmoid", "sigmoid_"),
        (nn.Sigmoid,), in_place=(torch.sigmoid_,)),
    Row(steps.element_function("silu"), (F.silu,), (nn.SiLU,)),
    Row(steps.element_method("tanh"), (F.tanh, torch.tanh, "tanh", "tanh_"), (nn.Tanh,),
        in_place=(torch.tanh_,)),
    Row(steps.add, (operator.add, torch.add, "add", "add_"), in_place=(operator.iadd,)),
    Row(steps.mul, (operator.mul, torch.mul, "mul", "mul_"), in_place=(operator.imul,)),
    Row(steps.concat, (torch.cat, getattr(torch, "concat", torch.cat))),
    Row(steps.flatten, (torch.flatten, "flatten"), (nn.Flatten,),
        lambda to, m, x: steps.flatten(to, x, m.start_dim, m.end_dim)),
    Row(steps.view, ("view", "reshape", torch.reshape)),
    Row(steps.upsample, (F.interpolate, F.upsample), (nn.Upsample,), _upsample_module),
    Row(steps.dropout, (F.dropout,), (nn.Dropout,),
        lambda to, m, x: steps.dropout(to, x, m.p, m.training)),
    # What adds no step.
    Row(steps.same, modules=(nn.Identity,)),
    Row(steps.copied, ("clone", torch.clone)),
    Row(steps.contiguous, ("contiguous",)),
    Row(steps.size, ("size",)),
    Row(steps.attribute, (getattr,)),
    Row(steps.item, (operator.getitem,)),
)

_FUNCTIONS: dict[Any, Function] = {
    function: row.step for row in ROWS for function in (*row.functions, *row.in_place)}
_MODULES: dict[type[nn.Module], Function] = {
    module: row.module_step or _without_module(row.step)
    for row in ROWS for module in row.modules}
_IN_PLACE = tuple(function for row in ROWS for function in row.in_place)


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
