"""Provides torch.nn.functional's convolutions, with gradients from a server.

Each takes the client and `forward`, "remote" or "local", which says where outputs are computed.
The server always computes the gradients.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from convgrad.client import Client
from convgrad.errors import invalid
from convgrad.torch.layers.layer import Ints, Layer, make_layer, settings_of
from convgrad.torch.layers.operators import convolution
from convgrad.torch.tensors import DTYPES, check_dtype

Tensor = torch.Tensor

# Makes torch.fx record a call of it instead of tracing into it.
torch.fx.wrap("apply")


def autocast_dtype(input: Tensor) -> torch.dtype | None:
    """Returns autocast's dtype on the input's device; None if autocast is off."""
    if hasattr(torch, "get_autocast_dtype"):  # PyTorch 2.4; torch.compile supports only these
        modern: Any = torch
        device = "cuda" if input.is_cuda else "cpu"
        return modern.get_autocast_dtype(device) if modern.is_autocast_enabled(device) else None
    if input.is_cuda:
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


def apply(layer: Layer, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Runs the layer, with or without a batch axis, as torch's functions do."""
    for name, tensor in (("input", input), ("weight", weight), ("bias", bias)):
        if tensor is not None:
            check_dtype(name, tensor)
    autocast = autocast_dtype(input)
    if autocast is None and weight.dtype != input.dtype:
        raise invalid("DTYPE_MISMATCH", "operation.operands.weight.dtype",
                      DTYPES[weight.dtype], f"{DTYPES[input.dtype]}, the dtype of input")
    settings = (autocast or input.dtype, *settings_of(layer, weight.shape[2:]))
    rank = len(layer.stride)
    if rank == 0:
        flat = input.reshape(-1, input.shape[-1])
        return convolution(flat, weight, bias, *settings).reshape(
            *input.shape[:-1], weight.shape[0])
    if input.dim() == rank + 1:
        return convolution(input.unsqueeze(0), weight, bias, *settings).squeeze(0)
    if input.dim() != rank + 2:
        raise invalid("SHAPE_MISMATCH", "operation.problem.input_dims",
                      f"{input.dim()} entries",
                      f"{rank + 2}, or {rank + 1} without a batch")
    return convolution(input, weight, bias, *settings)


def _convolution(rank: int) -> Any:
    def convolution(
        input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1,
        padding: str | Ints = 0, dilation: Ints = 1, groups: int = 1, *,
        client: Client, forward: str = "remote",
    ) -> Tensor:
        layer = make_layer(client, forward, rank, stride=stride, padding=padding,
                           dilation=dilation, groups=groups)
        return apply(layer, input, weight, bias)

    convolution.__name__ = convolution.__qualname__ = f"conv{rank}d"
    convolution.__doc__ = f"As torch.nn.functional.conv{rank}d."
    return convolution


def _transposed(rank: int) -> Any:
    def convolution(
        input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1,
        padding: Ints = 0, output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1,
        *, client: Client, forward: str = "remote",
    ) -> Tensor:
        layer = make_layer(client, forward, rank, stride=stride, padding=padding,
                           dilation=dilation, output_padding=output_padding,
                           groups=groups, transposed=True)
        return apply(layer, input, weight, bias)

    convolution.__name__ = convolution.__qualname__ = f"conv_transpose{rank}d"
    convolution.__doc__ = f"As torch.nn.functional.conv_transpose{rank}d."
    return convolution


conv1d, conv2d, conv3d = map(_convolution, (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_transposed, (1, 2, 3))


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, client: Client,
           forward: str = "remote") -> Tensor:
    """Does the same as torch.nn.functional.linear."""
    return apply(make_layer(client, forward, 0), input, weight, bias)
