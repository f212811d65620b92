"""Decodes a response's bytes to arrays, new ones or the caller's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from convgrad.errors import bad_reply, invalid
from convgrad.kept import empty_array, payload_of
from convgrad.layouts import (
    DTYPES,
    Array,
    Descriptor,
    is_blocked,
    text_of,
    wire_dtype,
    wire_layout,
)
from convgrad.problem import Operation, wire_result
from convgrad.v1 import service_pb2, tensor_pb2
from convgrad.wire import Response, parse, receive


class Forward(NamedTuple):
    """The result of a forward call."""

    output: Any
    """An array; None if a session keeps it."""
    report: service_pb2.Report


class Gradients(NamedTuple):
    """The result of a backward call; None for gradients that weren't requested or that a
    session keeps."""

    grad_input: Array | None
    grad_weight: Array | None
    grad_bias: Array | None
    grad_residual: Array | None
    report: service_pb2.Report


Arrays = dict[str, Array]


def forward_of(arrays: Arrays, report: service_pb2.Report) -> Forward:
    return Forward(arrays.get("output"), report)


def gradients_of(arrays: Arrays, report: service_pb2.Report) -> Gradients:
    return Gradients(arrays.get("grad_input"), arrays.get("grad_weight"),
                     arrays.get("grad_bias"), arrays.get("grad_residual"), report)


@dataclass(frozen=True)
class Destinations:
    """Destinations of results, by name. A result without one is returned in a new array."""

    kept: Mapping[str, str] = field(default_factory=dict)
    """Names under which the session keeps results."""
    out: Mapping[str, Array] = field(default_factory=dict)
    places: Mapping[str, tensor_pb2.Tensor.Region] = field(default_factory=dict)
    """Regions of arrays in `out` that lie in one; the server writes these results there."""

    def array(self, which: str, wanted: Descriptor) -> Array:
        """Returns the array that receives a result."""
        return self.out[which] if which in self.out else empty_array(wanted)


def destinations_of(operation: Operation, kept: Mapping[str, str], out: Mapping[str, Array],
                    payloads: Mapping[str, memoryview]) -> Destinations:
    """Returns the destinations of the operation's results. `payloads` are its operands' bytes.

    Errors: InvalidArgument for an array that can't receive its result.
    """
    if not out:
        return Destinations(kept)
    taken = {f"operand {name}": np.frombuffer(payload, np.uint8)
             for name, payload in payloads.items()}
    for name, array in out.items():
        if name in kept:
            raise invalid("DUPLICATE", f"out.{name}", "a result that the session keeps",
                          "one that the call returns")
        _check(f"out.{name}", array, operation.results[name])
        for other, memory in taken.items():
            # Exact, because both are contiguous.
            if np.may_share_memory(array, memory):
                raise invalid("DUPLICATE", f"out.{name}", f"memory of {other}",
                              "memory of no operand and of no other result")
        taken[f"result {name}"] = array
    return Destinations(kept, out)


def _check(path: str, array: object, wanted: Descriptor) -> None:
    shape, dtype, kind = wanted.shape(), DTYPES[wanted.dtype], type(array)
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        reason, found = "DTYPE_MISMATCH", f"{kind.__module__}.{kind.__qualname__}"
    elif array.dtype != dtype or array.shape != shape:
        reason = "DTYPE_MISMATCH" if array.dtype != dtype else "SHAPE_MISMATCH"
        found = f"one of {array.dtype} and shape {array.shape}"
    elif not array.flags.c_contiguous:
        reason, found = "LAYOUT_MISMATCH", f"strides {array.strides}"
    elif not array.flags.writeable:
        reason, found = "LAYOUT_MISMATCH", "a read-only one"
    else:
        return
    raise invalid(reason, path, found, f"a writable, C-contiguous numpy.ndarray of {dtype} "
                  f"and shape {shape}")


def decode(operation: Operation, response: Response,
           destinations: Destinations) -> tuple[Arrays, service_pb2.Report]:
    """Returns the arrays in a response, without the results that a session keeps.

    Errors: Internal if it doesn't fit the operation; ValueError or protobuf's DecodeError for
    a malformed response.
    """
    kind = (service_pb2.ConvForwardResponse if operation.forward
            else service_pb2.ConvBackwardResponse)
    message, payloads = parse(kind, response)
    if len(message.results) != len(operation.results):
        raise bad_reply("results", len(message.results), len(operation.results))
    arrays = {}
    kept = destinations.kept
    for named, (which, wanted) in zip(message.results, operation.results.items()):
        check_tensor(which, named, wanted)
        if which in kept:
            if named.tensor.kept.tensor_id != kept[which]:
                raise bad_reply(which, f"'{named.tensor.kept.tensor_id}'", kept[which])
            continue
        arrays[which] = destinations.array(which, wanted)
        if which in destinations.places:
            if named.tensor.region != destinations.places[which]:
                raise bad_reply(which, "another place", destinations.places[which])
            continue
        receive(payload_of(which, named.tensor, wanted, payloads), arrays[which])
    return arrays, message.report


def check_tensor(which: str, named: service_pb2.NamedTensor, wanted: Descriptor) -> None:
    """Raises Internal unless `named` is the requested result."""
    if named.which != wire_result(which):
        raise bad_reply("results", named.which, which)
    tensor = named.tensor
    same = tensor.dtype == wire_dtype(wanted.dtype) and tuple(tensor.dims) == wanted.dims
    if which != "grad_bias":
        same = same and tensor.layout == wire_layout(wanted.layout, which)
    if is_blocked(wanted.layout):
        same = same and tensor.c0 == wanted.c0
    if not same:
        raise bad_reply(which, f"dtype {tensor.dtype}, layout {tensor.layout}, dims "
                        f"{text_of(tensor.dims)}", wanted)
