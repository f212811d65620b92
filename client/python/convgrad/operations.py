"""Prepares the operations as calls that a client runs.

Shapes: an array's shape is that of its layout, e.g. (N, H, W, C) for NXC. `*_shape` are logical
dims, which don't depend on the layout: (N, C, H, W), (O, C/groups, kh, kw). They determine the
number of spatial axes.

Arrays may have any strides; a call copies them only if their memory has the order of no layout.
The server validates requests: InvalidArgument names field, found and expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy.typing as npt

from convgrad.errors import invalid
from convgrad.kept import Kept, Operand, operand_of
from convgrad.layouts import Dims
from convgrad.options import Options, timeout_of
from convgrad.problem import Ints, Padding, Window, out_channels_of
from convgrad.replies import Forward, Gradients, forward_of, gradients_of
from convgrad.requests import Call, RequestBuilder
from convgrad.v1 import capabilities_pb2

if TYPE_CHECKING:
    from typing_extensions import Unpack

Tensor = npt.ArrayLike | Kept

ALL_GRADIENTS = ("grad_input", "grad_weight", "grad_bias")

_NEEDS = {"grad_input": "weight", "grad_weight": "input"}


def conv_forward(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, *,
    residual: Tensor | None = None, stride: Ints = 1, padding: Padding = 0,
    dilation: Ints = 1, groups: int = 1, activation: str | None = None,
    input_shape: Dims | None = None, weight_shape: Dims | None = None,
    **options: Unpack[Options],
) -> Call[Forward]:
    """Returns activation(conv(input, weight) + bias + residual), and the server's report.

    Shapes in the layout NCX: input (N, C, spatial...), weight (O, C/groups, kernel...), bias
    (), (1), (O) or the output's rank, residual as the output. There are 0 to 3 spatial axes.

    `stride`, `padding` and `dilation` are a number for all axes, or one number per axis.
    `padding` may also be "valid", "same", "same_lower", or pairs (before, after). `activation`
    is None or "relu". Tensors in blocked layouts need `input_shape` and `weight_shape`.
    `options` are the keywords of convgrad.options.Options.

    Errors: InvalidArgument names field, found and expected; Unimplemented for a valid operation
    that the server doesn't support.
    """
    window = Window(stride, padding, dilation, groups, activation=activation)
    return _forward(window, _arrays(input=input, weight=weight, bias=bias, residual=residual),
                    {"input": input_shape, "weight": weight_shape}, options)


def conv_backward(
    grad_output: Tensor, input: Tensor | None = None,
    weight: Tensor | None = None, *, gradients: Iterable[str] = ALL_GRADIENTS,
    stride: Ints = 1, padding: Padding = 0, dilation: Ints = 1, groups: int = 1,
    activation: str | None = None, output: Tensor | None = None,
    input_shape: Dims | None = None, weight_shape: Dims | None = None,
    bias_shape: Dims | None = None, **options: Unpack[Options],
) -> Call[Gradients]:
    """Returns the requested gradients, and the server's report. Others are None.

    `gradients` are names in ALL_GRADIENTS, or "grad_residual"; or a single name. grad_input
    requires weight, and input or input_shape. grad_weight requires input, and weight or
    weight_shape. A fused ReLU also requires `output`, the forward's. The client doesn't send
    tensors that the gradients don't need.

    Shapes: each gradient has the shape of its tensor; grad_bias has `bias_shape`, by default
    (O). Other keywords and errors are those of conv_forward.
    """
    window = Window(stride, padding, dilation, groups, activation=activation)
    arrays = _arrays(input=input, weight=weight, grad_output=grad_output, output=output)
    return _backward(window, arrays, (gradients, bias_shape),
                     {"input": input_shape, "weight": weight_shape}, options)


def conv_transpose_forward(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, *,
    residual: Tensor | None = None, stride: Ints = 1, padding: Padding = 0,
    output_padding: Ints | None = None, groups: int = 1, dilation: Ints = 1,
    output_size: Ints | None = None, activation: str | None = None,
    input_shape: Dims | None = None, weight_shape: Dims | None = None,
    **options: Unpack[Options],
) -> Call[Forward]:
    """Does the same as conv_forward, transposed: weight is (C, O/groups, kernel...).

    output_padding defaults to 0, or to the value implied by output_size (spatial extents).
    """
    window = Window(stride, padding, dilation, groups, output_padding, output_size,
                    transposed=True, activation=activation)
    return _forward(window, _arrays(input=input, weight=weight, bias=bias, residual=residual),
                    {"input": input_shape, "weight": weight_shape}, options)


def conv_transpose_backward(
    grad_output: Tensor, input: Tensor | None = None,
    weight: Tensor | None = None, *, gradients: Iterable[str] = ALL_GRADIENTS,
    stride: Ints = 1, padding: Padding = 0, output_padding: Ints | None = None,
    groups: int = 1, dilation: Ints = 1, activation: str | None = None,
    output: Tensor | None = None, input_shape: Dims | None = None,
    weight_shape: Dims | None = None, bias_shape: Dims | None = None,
    **options: Unpack[Options],
) -> Call[Gradients]:
    """Does the same as conv_backward, transposed; grad_output determines output_padding."""
    window = Window(stride, padding, dilation, groups, output_padding, transposed=True,
                    activation=activation)
    arrays = _arrays(input=input, weight=weight, grad_output=grad_output, output=output)
    return _backward(window, arrays, (gradients, bias_shape),
                     {"input": input_shape, "weight": weight_shape}, options)


def linear_forward(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, *,
    residual: Tensor | None = None, activation: str | None = None,
    **options: Unpack[Options],
) -> Call[Forward]:
    """Returns activation(input @ weight.T + bias + residual), and the server's report.

    Shapes: input (N, C), weight (O, C), output (N, O). Keywords and errors are those of
    conv_forward.
    """
    arrays = _arrays(input=input, weight=weight, bias=bias, residual=residual)
    _check_flat("input", _get(arrays, "input").shape)
    return _forward(Window(activation=activation), arrays, {}, options)


def linear_backward(
    grad_output: Tensor, input: Tensor | None = None,
    weight: Tensor | None = None, *, gradients: Iterable[str] = ALL_GRADIENTS,
    activation: str | None = None, output: Tensor | None = None,
    input_shape: Dims | None = None, weight_shape: Dims | None = None,
    bias_shape: Dims | None = None, **options: Unpack[Options],
) -> Call[Gradients]:
    """Does the same as conv_backward for linear_forward."""
    arrays = _arrays(input=input, weight=weight, grad_output=grad_output, output=output)
    _check_flat("grad_output", _get(arrays, "grad_output").shape)
    return _backward(Window(activation=activation), arrays, (gradients, bias_shape),
                     {"input": input_shape, "weight": weight_shape}, options)


def capabilities(*, timeout: float | None = None) -> Call[
        capabilities_pb2.GetCapabilitiesResponse]:
    """Returns what the server can compute on its machine, and its limits."""
    return Call("GetCapabilities", b"",
                capabilities_pb2.GetCapabilitiesResponse.FromString,
                options=timeout_of(timeout))


def _arrays(**tensors: Tensor | None) -> dict[str, Operand]:
    return {name: operand_of(tensor) for name, tensor in tensors.items()
            if tensor is not None}


def _get(arrays: Mapping[str, Operand], name: str) -> Operand:
    """Returns an operand that the operation requires."""
    if name not in arrays:
        raise invalid("MISSING", f"operation.operands.{name}", "nothing",
                      "a tensor, which the results asked for need")
    return arrays[name]


def _check_flat(name: str, shape: Dims) -> None:
    if len(shape) != 2:
        raise invalid("SHAPE_MISMATCH", f"operation.operands.{name}.dims",
                      f"{len(shape)} entries", "2: batch and channels")


def _forward(window: Window, arrays: dict[str, Operand], shapes: dict[str, Dims | None],
             options: Options) -> Call[Forward]:
    builder = RequestBuilder(options)
    input_dims, weight_dims = (
        builder.dims_of(name, _get(arrays, name), shapes.get(name))
        for name in ("input", "weight"))
    builder.set_problem(window, input_dims, weight_dims, out_channels_of(weight_dims, window))
    for name, array in arrays.items():
        builder.add_operand(name, array)
    builder.add_results(["output"])
    return builder.call(True, forward_of)


def _backward(window: Window, arrays: dict[str, Operand],
              results: tuple[Iterable[str], Dims | None],
              shapes: dict[str, Dims | None], options: Options) -> Call[Gradients]:
    builder = RequestBuilder(options)
    input_dims, weight_dims = (
        builder.dims_of(name, arrays.get(name), shapes.get(name))
        for name in ("input", "weight"))
    grad_output = builder.dims_of("grad_output", _get(arrays, "grad_output"), None)
    channels = out_channels_of(weight_dims, window)
    if len(grad_output) > 1:
        channels = grad_output[1]
    if window.transposed:
        window = replace(window, output_size=grad_output[2:] or None)
    builder.set_problem(window, input_dims, weight_dims, channels)
    names = (results[0],) if isinstance(results[0], str) else results[0]
    # Sorted, because a set's order differs between processes.
    wanted = sorted(set(names))
    needed = {_NEEDS[name] for name in wanted if name in _NEEDS} | {"grad_output"}
    if window.activation is not None:
        needed.add("output")
    for name, array in arrays.items():
        if name in needed:
            builder.add_operand(name, array)
    builder.add_results(wanted, results[1])
    return builder.call(False, gradients_of)
