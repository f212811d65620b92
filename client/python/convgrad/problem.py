"""A convolution without its data, worked out and checked as the server does it.

Follows backends/core/convolution/conv_problem.cc and proto/codec/decode_problem.cc word
for word: tests/client/python/test_validation.py holds both to the same messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from convgrad.errors import InvalidArgument, invalid
from convgrad.v1 import operation_pb2

MAX_DIMS = 5

Dims = tuple[int, ...]


@dataclass(frozen=True)
class Axis:
    """One spatial axis. Units: elements."""

    size: int = 1
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    pad_begin: int = 0
    pad_end: int = 0
    output_padding: int = 0
    out: int = 1

    def span(self) -> int:
        """Returns the extent that a kernel spans."""
        return self.dilation * (self.kernel - 1) + 1


@dataclass(frozen=True)
class Problem:
    transposed: bool
    batch: int
    in_channels: int
    out_channels: int
    groups: int
    relu: bool
    axes: tuple[Axis, ...] = field(default=())

    def input_dims(self) -> Dims:
        return (self.batch, self.in_channels, *(a.size for a in self.axes))

    def weight_dims(self) -> Dims:
        kernel = tuple(a.kernel for a in self.axes)
        if self.transposed:
            return (self.in_channels, self.out_channels // self.groups, *kernel)
        return (self.out_channels, self.in_channels // self.groups, *kernel)

    def output_dims(self) -> Dims:
        return (self.batch, self.out_channels, *(a.out for a in self.axes))

    def is_bias_shape(self, bias: Dims) -> bool:
        if len(bias) == 0:
            return True
        if len(bias) == 1:
            return bias[0] in (1, self.out_channels)
        output = self.output_dims()
        return len(bias) == len(output) and all(
            b in (1, o) for b, o in zip(bias, output))


def text_of(dims: Sequence[int]) -> str:
    return "[" + ",".join(map(str, dims)) + "]"


def fits(value: int) -> bool:
    """Returns whether 63 bits and a sign hold `value`."""
    return -2**63 <= value < 2**63


def resolve(message: operation_pb2.ConvProblem) -> Problem:
    """Returns the problem with pads, output_padding and outputs worked out.

    Raises InvalidArgument naming field, found and expected.
    """
    problem = _decode(message)
    output = _output_hints(message, len(problem.axes))
    _check_channels(problem)
    axes = []
    for i, axis in enumerate(problem.axes):
        _check_ranges(axis, i)
        wanted = output[i] if output else None
        axis = _with_pads(message, axis, i, wanted)
        axes.append(_with_output(message, axis, i, wanted))
    problem = replace(problem, axes=tuple(axes))
    for i, axis in enumerate(problem.axes):
        _check_axis(problem, axis, i)
    _check_byte_sizes(problem)
    return problem


def _field(name: str, axis: int | None = None) -> str:
    return f"operation.problem.{name}" + ("" if axis is None else f"[{axis}]")


def _entries(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"


def _overflow(name: str, found: object, axis: int | None = None) -> InvalidArgument:
    return invalid("OVERFLOW", _field(name, axis), found, "sizes below 2^63 bytes")


def _per_axis(values: Sequence[int], name: str, rank: int, default: int) -> list[int]:
    if not values:
        return [default] * rank
    if rank == 0 or len(values) not in (1, rank):
        expected = "none, there are no spatial axes"
        if rank == 1:
            expected = "at most 1, for one spatial axis"
        if rank > 1:
            expected = f"none, 1 or {rank}, one per spatial axis"
        raise invalid("SHAPE_MISMATCH", _field(name), _entries(len(values)), expected)
    return list(values) * rank if len(values) == 1 else list(values)


def _decode(message: operation_pb2.ConvProblem) -> Problem:
    dims = message.input_dims
    if not 2 <= len(dims) <= MAX_DIMS:
        raise invalid("SHAPE_MISMATCH", _field("input_dims"), _entries(len(dims)),
                      "2 to 5: batch, channels and the spatial axes")
    rank = len(dims) - 2
    if rank and not message.kernel:
        raise invalid("MISSING", _field("kernel"), _entries(0), f"1 or {rank}")
    window = {
        "kernel": _per_axis(message.kernel, "kernel", rank, 1),
        "stride": _per_axis(message.stride, "stride", rank, 1),
        "dilation": _per_axis(message.dilation, "dilation", rank, 1),
    }
    if message.padding not in (operation_pb2.PADDING_UNSPECIFIED,
                               operation_pb2.PADDING_EXPLICIT):
        for name in ("pad_begin", "pad_end"):
            pads = getattr(message, name)
            if pads:
                padding = operation_pb2.Padding.Name(message.padding)
                raise invalid("SHAPE_MISMATCH", _field(name), _entries(len(pads)),
                              f"none, padding is {padding}")
    for name in ("pad_begin", "pad_end", "output_padding"):
        window[name] = _per_axis(getattr(message, name), name, rank, 0)
    axes = tuple(
        Axis(size=dims[i + 2], **{name: values[i] for name, values in window.items()})
        for i in range(rank))
    return Problem(
        transposed=message.transposed, batch=dims[0], in_channels=dims[1],
        out_channels=message.out_channels,
        groups=message.groups if message.HasField("groups") else 1,
        relu=message.activation == operation_pb2.ACTIVATION_RELU, axes=axes)


def _output_hints(message: operation_pb2.ConvProblem, rank: int) -> list[int] | None:
    if not message.output_dims:
        return None
    return _per_axis(message.output_dims, "output_dims", rank, 1)


def _check_at_least(name: str, axis: int | None, value: int, minimum: int) -> None:
    if value < minimum:
        raise invalid("OUT_OF_RANGE", _field(name, axis), value, f"at least {minimum}")


def _check_channels(problem: Problem) -> None:
    _check_at_least("input_dims", 0, problem.batch, 0)
    _check_at_least("input_dims", 1, problem.in_channels, 1)
    _check_at_least("out_channels", None, problem.out_channels, 1)
    _check_at_least("groups", None, problem.groups, 1)
    for name, axis, channels in (("input_dims", 1, problem.in_channels),
                                 ("out_channels", None, problem.out_channels)):
        if channels % problem.groups:
            raise invalid("SHAPE_MISMATCH", _field(name, axis), channels,
                          f"a multiple of groups = {problem.groups}")


def _check_ranges(axis: Axis, i: int) -> None:
    _check_at_least("input_dims", i + 2, axis.size, 1)
    _check_at_least("kernel", i, axis.kernel, 1)
    _check_at_least("stride", i, axis.stride, 1)
    _check_at_least("dilation", i, axis.dilation, 1)
    _check_at_least("pad_begin", i, axis.pad_begin, 0)
    _check_at_least("pad_end", i, axis.pad_end, 0)
    _check_at_least("output_padding", i, axis.output_padding, 0)


def _convolution_extent(axis: Axis, i: int) -> int:
    span = axis.span()
    if not fits(span):
        raise _overflow("dilation", axis.dilation, i)
    padded = axis.pad_begin + axis.pad_end + axis.size
    if not fits(padded):
        raise _overflow("pad_end", axis.pad_end, i)
    if span > padded:
        raise invalid(
            "SHAPE_MISMATCH", _field("kernel", i),
            f"{axis.kernel} ({span} with dilation {axis.dilation})",
            f"a dilated kernel not larger than the padded input, {padded}")
    return (padded - span) // axis.stride + 1


def _transposed_extent(axis: Axis, i: int) -> int:
    """Returns (in-1)*stride - pads + span, without output_padding."""
    extent = (axis.size - 1) * axis.stride + axis.span()
    if not fits(extent) or not fits(axis.span()):
        raise _overflow("input_dims", axis.size, i + 2)
    pads = axis.pad_begin + axis.pad_end
    if not fits(pads):
        raise _overflow("pad_end", axis.pad_end, i)
    return extent - pads


def _output_extent(transposed: bool, axis: Axis, i: int) -> int:
    if not transposed:
        return _convolution_extent(axis, i)
    extent = _transposed_extent(axis, i) + axis.output_padding
    if not fits(extent):
        raise _overflow("output_padding", axis.output_padding, i)
    return extent


def _is_same(message: operation_pb2.ConvProblem) -> bool:
    return message.padding in (operation_pb2.PADDING_SAME_UPPER,
                               operation_pb2.PADDING_SAME_LOWER)


def _with_pads(message: operation_pb2.ConvProblem, axis: Axis, i: int,
               output: int | None) -> Axis:
    if not _is_same(message):
        return axis
    size = axis.size
    if message.transposed:
        # Named padding is that of the mirrored convolution, whose input is this
        # one's output.
        size = axis.size * axis.stride if output is None else output
        if not fits(size):
            raise _overflow("input_dims", axis.size, i + 2)
        if size < 1:
            raise invalid("SHAPE_MISMATCH", _field("output_dims", i), size, "at least 1")
    total = (size - 1) // axis.stride * axis.stride + axis.span() - size
    if not fits(axis.span()) or not fits(total):
        raise _overflow("kernel", axis.kernel, i)
    pads = max(total, 0)
    odd_one_first = message.padding == operation_pb2.PADDING_SAME_LOWER
    begin = pads - pads // 2 if odd_one_first else pads // 2
    return replace(axis, pad_begin=begin, pad_end=pads - begin)


def _with_output(message: operation_pb2.ConvProblem, axis: Axis, i: int,
                 output: int | None) -> Axis:
    if not message.transposed or (output is None and not _is_same(message)):
        extent = _output_extent(message.transposed, axis, i)
        if output is not None and output != extent:
            raise invalid("SHAPE_MISMATCH", _field("output_dims", i), output, extent)
        return replace(axis, out=extent)
    bare = _transposed_extent(axis, i)
    wanted = axis.size * axis.stride if output is None else output
    derived = wanted - bare
    if not fits(derived) or derived < 0:
        raise invalid("SHAPE_MISMATCH", _field("output_dims", i), wanted,
                      f"at least {bare}")
    if message.output_padding and derived != axis.output_padding:
        raise invalid("SHAPE_MISMATCH", _field("output_padding", i),
                      axis.output_padding, f"{derived}, which output_dims implies")
    return replace(axis, output_padding=derived, out=wanted)


def _check_axis(problem: Problem, axis: Axis, i: int) -> None:
    _check_ranges(axis, i)
    limit = max(axis.stride, axis.dilation)
    if not problem.transposed and axis.output_padding != 0:
        raise invalid("OUT_OF_RANGE", _field("output_padding", i),
                      axis.output_padding, "0 unless the convolution is transposed")
    if problem.transposed and axis.output_padding >= limit:
        raise invalid("OUT_OF_RANGE", _field("output_padding", i),
                      axis.output_padding,
                      f"less than max(stride, dilation) = {limit}")
    out = _output_extent(problem.transposed, axis, i)
    if out < 1:
        raise invalid("SHAPE_MISMATCH", _field("output_dims", i), out, "at least 1")
    if out != axis.out:
        raise invalid("SHAPE_MISMATCH", _field("output_dims", i), axis.out, out)


def _check_byte_sizes(problem: Problem) -> None:
    for name, dims in (("input_dims", problem.input_dims()),
                       ("kernel", problem.weight_dims()),
                       ("output_dims", problem.output_dims())):
        # A batch of 0 must not hide an overflow of the rest.
        if not fits(math.prod((max(dims[0], 1), *dims[1:])) * 4):
            raise _overflow(name, text_of(dims))
