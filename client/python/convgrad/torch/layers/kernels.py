"""Computes PyTorch's operators on a server, or only their shapes.

Each function takes tensors of any dtype, and `dtype`, in which to compute. Each gradient is
rounded once, to the dtype of its own tensor: float32 master weights under autocast get float32
gradients. `settings` are a Layer's fields with numeric pads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from convgrad.torch.layers import staging
from convgrad.torch.layers.layer import Layer, client_of
from convgrad.torch.tensors import DTYPES, memory_format, to_array, to_tensor

Tensor = torch.Tensor

_LAYOUTS = {torch.contiguous_format: "NCX", torch.channels_last: "NXC",
            torch.channels_last_3d: "NXC"}


def run_forward(input: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype,
                *settings: Any) -> Tensor:
    """Returns the output in `dtype`, channels-last if the input is."""
    layer, form = Layer(*settings), memory_format(input)
    bias = None if bias is None else bias.to(dtype)
    if layer.forward == "local":
        input, weight = input.to(dtype), weight.to(dtype)
        return _run_locally(layer, input, weight, bias).contiguous(memory_format=form)
    found = _method(layer, "forward")(
        to_array(input.to(dtype)), to_array(weight.to(dtype)),
        None if bias is None else to_array(bias),
        layouts={"output": _LAYOUTS[form]}, **_window(layer))
    return to_tensor(_logical(found.output, form), input)


def run_backward(grad_output: Tensor, input: Tensor, weight: Tensor, dtype: torch.dtype,
                 wants_input: bool, wants_weight: bool, wants_bias: bool,
                 *settings: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of input, weight and bias; without elements if not requested.

    Those of input and weight have their tensor's dtype if that is `dtype`, otherwise float32;
    the bias's is always float32. Sends only the operands that the gradients need.
    """
    layer, form = Layer(*settings), memory_format(input)
    wanted = {"grad_input": wants_input, "grad_weight": wants_weight, "grad_bias": wants_bias}
    dtypes = {"grad_input": _gradient_dtype(input, dtype),
              "grad_weight": _gradient_dtype(weight, dtype), "grad_bias": torch.float32}
    names = [name for name in wanted if wanted[name]]
    found = _method(layer, "backward")(
        to_array(grad_output.to(dtype)), to_array(input.to(dtype)),
        to_array(weight.to(dtype)), gradients=names,
        dtypes={name: DTYPES[dtypes[name]] for name in names},
        layouts={"grad_input": _LAYOUTS[form]}, **_window(layer))
    arrays = (_logical(found.grad_input, form), found.grad_weight, found.grad_bias)
    grad_input, grad_weight, grad_bias = (
        input.new_empty(0) if array is None else to_tensor(array, input) for array in arrays)
    return grad_input, grad_weight, grad_bias


def fake_forward(input: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype,
                 *settings: Any) -> Tensor:
    shape = Layer(*settings).output_shape(input.shape, weight.shape)
    return _empty(input, shape, dtype)


def fake_backward(grad_output: Tensor, input: Tensor, weight: Tensor, dtype: torch.dtype,
                  wants_input: bool, wants_weight: bool, wants_bias: bool,
                  *settings: Any) -> tuple[Tensor, Tensor, Tensor]:
    nothing = input.new_empty(0)
    channels = Layer(*settings).out_channels(weight.shape)
    return (
        _empty(input, input.shape, _gradient_dtype(input, dtype)) if wants_input else nothing,
        input.new_empty(weight.shape, dtype=_gradient_dtype(weight, dtype))
        if wants_weight else nothing.clone(),
        input.new_empty(channels, dtype=torch.float32) if wants_bias else nothing.clone())


def _gradient_dtype(tensor: Tensor, computed: torch.dtype) -> torch.dtype:
    # For a tensor of a third dtype, autograd rounds the float32 gradient.
    return computed if tensor.dtype == computed else torch.float32


def _empty(input: Tensor, shape: Any, dtype: torch.dtype) -> Tensor:
    """Returns a tensor with the strides of a result in the memory order of `input`."""
    return torch.empty(shape, dtype=dtype, device=input.device,
                       memory_format=memory_format(input))


def _logical(array: Any, form: torch.memory_format) -> Any:
    # Not a view of a tensor, because PyTorch refuses to change a Function's view in place.
    return np.moveaxis(array, -1, 1) if _LAYOUTS[form] == "NXC" and array is not None else array


def _method(layer: Layer, direction: str) -> Any:
    kind = ("conv_transpose" if layer.transposed else "conv" if layer.rank or layer.groups > 1
            else "linear")
    return staging.method_of(client_of(layer.client), f"{kind}_{direction}")


def _window(layer: Layer) -> dict[str, Any]:
    if layer.rank == 0:
        return {} if layer.groups == 1 else {"groups": layer.groups}
    window: dict[str, Any] = dict(stride=layer.stride, padding=layer.pads(),
                                  dilation=layer.dilation, groups=layer.groups)
    if layer.transposed:
        window["output_padding"] = layer.output_padding
    return window


def _run_locally(layer: Layer, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if layer.rank == 0 and layer.groups == 1:
        return F.linear(input, weight, bias)
    if layer.rank == 0:
        return F.conv1d(input[..., None], weight[..., None], bias,
                        groups=layer.groups)[..., 0]
    begin, end = zip(*layer.pads())
    window = _window(layer)
    window["padding"] = begin if begin == end else "same"  # no other padding is uneven
    name = "conv_transpose" if layer.transposed else "conv"
    return getattr(F, f"{name}{layer.rank}d")(input, weight, bias, **window)
