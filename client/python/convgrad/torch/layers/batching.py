"""Defines how torch.func.vmap maps the operators: each becomes one or two calls.

Mapped activations extend the batch. If weights are mapped, each of them gets its own channel
groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from convgrad.torch.layers.layer import Layer

Tensor = torch.Tensor
Dim = int | None


def map_convolution(convolution: Callable[..., Tensor]) -> Callable[..., Any]:
    """Returns the vmap rule of `convolution`."""

    def rule(info: Any, dims: tuple[Dim, ...], input: Tensor, weight: Tensor,
             bias: Tensor | None, dtype: torch.dtype, *settings: Any) -> tuple[Tensor, Dim]:
        size = info.batch_size
        if dims[1] is None and dims[2] is None:
            output = convolution(_joined(input, dims[0], size), weight, bias, dtype,
                                 *settings)
            return _split(output, 0, size), 0
        output = convolution(
            _into_channels(input, dims[0], size), _joined(weight, dims[1], size),
            None if bias is None else _joined(bias, dims[2], size), dtype,
            *_grouped(settings, size))
        return _split(output, 1, size), 1

    return rule


def map_backward(convolution_backward: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the vmap rule of `convolution_backward`. Gradients that need no mapped weight use
    the batch."""

    def rule(info: Any, dims: tuple[Dim, ...], grad_output: Tensor, input: Tensor,
             weight: Tensor, dtype: torch.dtype, wants_input: bool, wants_weight: bool,
             wants_bias: bool, *settings: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        found = [input.new_empty(0)] * 3
        found_dims: list[Dim] = [None] * 3
        in_batch = wants_input and dims[2] is None
        if in_batch:
            gradient, _, _ = convolution_backward(
                _joined(grad_output, dims[0], size), _joined(input, dims[1], size),
                weight, dtype, True, False, False, *settings)
            found[0], found_dims[0] = _split(gradient, 0, size), 0
        wanted = (wants_input and not in_batch, wants_weight, wants_bias)
        if any(wanted):
            gradients = convolution_backward(
                _into_channels(grad_output, dims[0], size),
                _into_channels(input, dims[1], size), _joined(weight, dims[2], size),
                dtype, *wanted, *_grouped(settings, size))
            for i, axis in enumerate((1, 0, 0)):
                if wanted[i]:
                    found[i], found_dims[i] = _split(gradients[i], axis, size), axis
        return tuple(found), tuple(found_dims)

    return rule


def _grouped(settings: tuple[Any, ...], size: int) -> Layer:
    layer = Layer(*settings)
    return layer._replace(groups=layer.groups * size)


def _first(tensor: Tensor, dim: Dim, size: int) -> Tensor:
    """Returns the tensor with the mapped axis first, expanded if it has none."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _joined(tensor: Tensor, dim: Dim, size: int) -> Tensor:
    """Returns the tensor with the mapped axis as the outer part of the first one."""
    return _first(tensor, dim, size).flatten(0, 1)


def _into_channels(tensor: Tensor, dim: Dim, size: int) -> Tensor:
    return _first(tensor, dim, size).movedim(0, 1).flatten(1, 2)


def _split(tensor: Tensor, axis: int, size: int) -> Tensor:
    """Returns the tensor with the mapped axis split off the outer part of `axis`."""
    shape = tensor.shape
    return tensor.reshape(*shape[:axis], size, shape[axis] // size, *shape[axis + 1:])
