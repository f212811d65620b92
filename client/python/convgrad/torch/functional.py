"""torch.nn.functional's convolutions, with gradients from a server.

Each takes the client and `forward`, "remote" or "local": where outputs are
computed. Gradients are always the server's.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from convgrad.client import Client
from convgrad.errors import InvalidArgument, invalid, unimplemented
from convgrad.torch.tensors import (
    DTYPES,
    check_dtype,
    is_channels_last,
    to_array,
    to_tensor,
)

Ints = int | Sequence[int]
Tensor = torch.Tensor

_LOCAL: dict[tuple[int, bool], Any] = {
    (0, False): F.linear,
    (1, False): F.conv1d, (2, False): F.conv2d, (3, False): F.conv3d,
    (1, True): F.conv_transpose1d, (2, True): F.conv_transpose2d,
    (3, True): F.conv_transpose3d,
}


def no_client(found: str) -> InvalidArgument:
    return invalid("MISSING", "client", found, "a convgrad.Client")


def check_client(client: object) -> None:
    """Raises InvalidArgument unless it has a Client's methods, which wait for their results."""
    if client is None:
        raise no_client("nothing")
    kind = type(client)
    method = getattr(client, "conv_backward", None)
    if kind is type or not callable(method) or inspect.iscoroutinefunction(method):
        raise no_client(f"{kind.__module__}.{kind.__qualname__}")


@dataclass(frozen=True)
class Layer:
    """All of an operation but its tensors. `rank` 0 is linear."""

    client: Client
    forward: str
    rank: int
    stride: Ints = 1
    padding: Any = 0
    dilation: Ints = 1
    groups: int = 1
    output_padding: Ints = 0
    transposed: bool = False

    def __post_init__(self) -> None:
        if self.forward not in ("remote", "local"):
            raise invalid("INVALID_ENUM", "forward", self.forward, "remote or local")
        if self.padding == "same" and any(s != 1 for s in _each(self.stride)):
            # As torch, where the server would do it TensorFlow's way.
            raise invalid("OUT_OF_RANGE", "operation.problem.stride", self.stride,
                          "1 where padding is 'same'")
        check_client(self.client)

    def window(self) -> dict[str, Any]:
        if self.rank == 0:
            return {}
        window: dict[str, Any] = dict(stride=self.stride, padding=self.padding,
                                      dilation=self.dilation, groups=self.groups)
        if self.transposed:
            window["output_padding"] = self.output_padding
        return window

    def method(self, direction: str) -> Any:
        kind = ("linear" if self.rank == 0 else
                "conv_transpose" if self.transposed else "conv")
        return getattr(self.client, f"{kind}_{direction}")

    def local(self) -> Any:
        return _LOCAL[self.rank, self.transposed]

    def run_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.forward == "local":
            y: Tensor = self.local()(input, weight, bias, **self.window())
            return y
        last = is_channels_last(input)
        found = self.method("forward")(
            to_array(input), to_array(weight), None if bias is None else to_array(bias),
            layouts={"output": "NXC" if last else "NCX"}, **self.window())
        return _logical(to_tensor(found.output, input), last)


def _each(values: Ints) -> Sequence[int]:
    return (values,) if isinstance(values, int) else values


def _logical(tensor: Tensor, channels_last: bool) -> Tensor:
    return tensor.movedim(-1, 1) if channels_last else tensor


class _Convolution(torch.autograd.Function):
    """Input, weight and bias come as they are; `dtype` is what they are computed in.

    So each gradient is rounded once, to the dtype of its own tensor: float32 master
    weights under autocast get float32 gradients.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None,
                layer: Layer, dtype: torch.dtype) -> Tensor:
        ctx.layer = layer
        # Autograd rounds what comes in f32 for a tensor of a third dtype.
        ctx.dtypes = {
            f"grad_{name}": DTYPES[dtype if tensor.dtype == dtype else torch.float32]
            for name, tensor in (("input", input), ("weight", weight), ("bias", bias))
            if tensor is not None}
        input, weight = input.to(dtype), weight.to(dtype)
        ctx.save_for_backward(input, weight)
        return layer.run_forward(input, weight, None if bias is None else bias.to(dtype))

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        # Autograd records a backward where create_graph asks for it, only then. These
        # gradients would be constants in that graph, and what is derived from them wrong;
        # torch's once_differentiable misses that where grad_output is a constant, too.
        if torch.is_grad_enabled():
            raise unimplemented(
                "create_graph", True, "False, or the layer computed by torch.nn.functional."
                f"{ctx.layer.local().__name__}: the server has no second derivatives")
        input, weight = ctx.saved_tensors
        names = ("grad_input", "grad_weight", "grad_bias")
        wanted = [n for n, needed in zip(names, ctx.needs_input_grad) if needed]
        if not wanted:
            return None, None, None, None, None
        last = is_channels_last(input)
        found = ctx.layer.method("backward")(
            to_array(grad_output), to_array(input), to_array(weight), gradients=wanted,
            dtypes={name: ctx.dtypes[name] for name in wanted},
            layouts={"grad_input": "NXC" if last else "NCX"}, **ctx.layer.window())
        gradients = [None if array is None else to_tensor(array, input)
                     for array in found[:3]]
        if gradients[0] is not None:
            gradients[0] = _logical(gradients[0], last)
        return *gradients, None, None


def _autocast_dtype(input: Tensor) -> torch.dtype | None:
    """Returns what autocast asks for on the input's device, None where it is off."""
    if input.is_cuda:
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


def apply(layer: Layer, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Runs the layer; also without its batch axis, as torch's functions do."""
    for name, tensor in (("input", input), ("weight", weight), ("bias", bias)):
        if tensor is not None:
            check_dtype(name, tensor)
    autocast = _autocast_dtype(input)
    if autocast is None and weight.dtype != input.dtype:
        raise invalid("DTYPE_MISMATCH", "operation.operands.weight.dtype",
                      DTYPES[weight.dtype], f"{DTYPES[input.dtype]}, the dtype of input")
    dtype = autocast or input.dtype
    if layer.rank == 0:
        flat = input.reshape(-1, input.shape[-1])
        y: Tensor = _Convolution.apply(flat, weight, bias, layer, dtype)
        return y.reshape(*input.shape[:-1], weight.shape[0])
    if input.dim() == layer.rank + 1:
        y = _Convolution.apply(input.unsqueeze(0), weight, bias, layer, dtype)
        return y.squeeze(0)
    if input.dim() != layer.rank + 2:
        raise invalid("SHAPE_MISMATCH", "operation.problem.input_dims",
                      f"{input.dim()} entries",
                      f"{layer.rank + 2}, or {layer.rank + 1} without a batch")
    y = _Convolution.apply(input, weight, bias, layer, dtype)
    return y


def _convolution(rank: int) -> Any:
    def convolution(
        input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1,
        padding: str | Ints = 0, dilation: Ints = 1, groups: int = 1, *,
        client: Client, forward: str = "remote",
    ) -> Tensor:
        layer = Layer(client, forward, rank, stride, padding, dilation, groups)
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
        layer = Layer(client, forward, rank, stride, padding, dilation, groups,
                      output_padding, transposed=True)
        return apply(layer, input, weight, bias)

    convolution.__name__ = convolution.__qualname__ = f"conv_transpose{rank}d"
    convolution.__doc__ = f"As torch.nn.functional.conv_transpose{rank}d."
    return convolution


conv1d, conv2d, conv3d = map(_convolution, (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_transposed, (1, 2, 3))


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, client: Client,
           forward: str = "remote") -> Tensor:
    """As torch.nn.functional.linear."""
    return apply(Layer(client, forward, 0), input, weight, bias)
