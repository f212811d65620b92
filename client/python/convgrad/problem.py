"""Encodes a convolution's keywords, and computes its tensors' names and shapes.

The server checks requests. For valid requests this module follows the server's rules. For
others it returns arbitrary shapes, and the server refuses the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convgrad.errors import invalid
from convgrad.layouts import Descriptor, Dims, fits
from convgrad.v1 import operation_pb2, tensor_pb2

Ints = int | Sequence[int]
Padding = str | int | Sequence[int] | Sequence[Sequence[int]]

OPERANDS = ("input", "weight", "bias", "residual", "grad_output", "output")
RESULTS = ("output", "grad_input", "grad_weight", "grad_bias", "grad_residual")
# Operands whose dtype must be the request's dtype.
_PRIMARY = ("input", "weight", "grad_output")
_NAMED_PADDING = {
    "valid": operation_pb2.PADDING_VALID,
    "same": operation_pb2.PADDING_SAME_UPPER,
    "same_upper": operation_pb2.PADDING_SAME_UPPER,
    "same_lower": operation_pb2.PADDING_SAME_LOWER,
}


@dataclass(frozen=True)
class Window:
    """A convolution's keywords with PyTorch's names."""

    stride: Ints = 1
    padding: Padding = 0
    dilation: Ints = 1
    groups: int = 1
    output_padding: Ints | None = None
    output_size: Ints | None = None
    transposed: bool = False
    activation: str | None = None

    def write(self, problem: operation_pb2.ConvProblem, input_dims: Dims,
              weight_dims: Dims, out_channels: int) -> None:
        rank = max(len(input_dims) - 2, 0)
        problem.transposed = self.transposed
        lists = {"input_dims": input_dims, "kernel": weight_dims[2:]}
        if rank:
            lists |= {"stride": ints(self.stride, "stride"),
                      "dilation": ints(self.dilation, "dilation")}
        for name in ("output_padding", "output_size"):
            value = getattr(self, name)
            if value is not None:
                lists[name.replace("size", "dims")] = ints(value, name)
        lists |= self._pads(problem)
        for name, values in lists.items():
            getattr(problem, name).extend(values)
        problem.out_channels = _int(out_channels, "out_channels")
        problem.groups = _int(self.groups, "groups")
        if self.activation not in (None, "relu"):
            raise invalid("INVALID_ENUM", "operation.problem.activation",
                          self.activation, "None or relu")
        if self.activation == "relu":
            problem.activation = operation_pb2.ACTIVATION_RELU

    def _pads(self, problem: operation_pb2.ConvProblem) -> dict[str, Dims]:
        padding: Any = self.padding
        if isinstance(padding, str):
            if padding not in _NAMED_PADDING:
                raise invalid("INVALID_ENUM", "operation.problem.padding", padding,
                              ", ".join(_NAMED_PADDING) + ", numbers or pairs of them")
            problem.padding = _NAMED_PADDING[padding]
            return {}
        if isinstance(padding, np.ndarray):
            padding = padding.tolist()
        elif isinstance(padding, Iterable):
            padding = list(padding)  # an iterator can be read only once
        if not isinstance(padding, Iterable) or all(np.ndim(p) == 0 for p in padding):
            pads = ints(padding, "padding")
            pads = () if set(pads) <= {0} else pads
            return {"pad_begin": pads, "pad_end": pads}
        pairs = [ints(pair, "padding") for pair in padding]
        if any(len(pair) != 2 for pair in pairs):
            raise invalid("SHAPE_MISMATCH", "operation.problem.padding", padding,
                          "pairs of numbers: before and after")
        return {"pad_begin": tuple(p[0] for p in pairs),
                "pad_end": tuple(p[1] for p in pairs)}


@dataclass(frozen=True)
class Operation:
    """The computation of a request. Results have the requested order."""

    forward: bool
    output: Dims
    """Dims of the convolution's output; in a backward operation, of its gradient."""
    operands: Mapping[str, Descriptor]
    results: Mapping[str, Descriptor]

    @property
    def batch(self) -> int:
        return self.output[0]


def wire_result(name: str) -> Any:
    return tensor_pb2.Result.Value(f"RESULT_{name.upper()}")


def operand_dtype(operands: Mapping[str, Descriptor]) -> str:
    return next((operands[name].dtype for name in _PRIMARY if name in operands), "f32")


def have_one_dtype(operands: Mapping[str, Descriptor]) -> bool:
    return len({operands[name].dtype for name in _PRIMARY if name in operands}) < 2


def dims_of_weight(problem: operation_pb2.ConvProblem) -> Dims:
    channels = (problem.input_dims[1] if len(problem.input_dims) > 1 else 0,
                problem.out_channels)
    outer, inner = channels if problem.transposed else channels[::-1]
    return (outer, inner // max(problem.groups, 1), *problem.kernel)


def dims_of_output(problem: operation_pb2.ConvProblem) -> Dims:
    batch = problem.input_dims[0] if problem.input_dims else 0
    return (batch, problem.out_channels, *(
        max(_output_extent(problem, axis), 0) for axis in range(len(problem.input_dims) - 2)))


def _output_extent(problem: operation_pb2.ConvProblem, axis: int) -> int:
    def entry(name: str, default: int) -> int:
        values = getattr(problem, name)
        return values[min(axis, len(values) - 1)] if values else default

    size, stride = problem.input_dims[axis + 2], max(entry("stride", 1), 1)
    if problem.transposed and problem.output_dims:
        return entry("output_dims", 1)
    if problem.padding in (operation_pb2.PADDING_SAME_UPPER, operation_pb2.PADDING_SAME_LOWER):
        return size * stride if problem.transposed else -(-size // stride)
    span = entry("dilation", 1) * (entry("kernel", 1) - 1) + 1
    pads = entry("pad_begin", 0) + entry("pad_end", 0)
    if problem.transposed:
        return (size - 1) * stride - pads + span + entry("output_padding", 0)
    return (size + pads - span) // stride + 1


def out_channels_of(weight_dims: Dims, window: Window) -> int:
    """Returns O from a weight's dims; 0 if they are incomplete."""
    if len(weight_dims) < 2:
        return 0
    return weight_dims[1] * window.groups if window.transposed else weight_dims[0]


def _int(value: object, name: str) -> int:
    # A bool is an int in Python, but a mistake here.
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if fits(int(value)):
            return int(value)
    raise invalid("OUT_OF_RANGE", f"operation.problem.{name}", value,
                  "an integer of 64 bits")


def ints(values: object, name: str) -> Dims:
    is_scalar = isinstance(values, np.ndarray) and values.ndim == 0
    if isinstance(values, Iterable) and not isinstance(values, str) and not is_scalar:
        return tuple(_int(value, name) for value in values)
    return (_int(values, name),)
