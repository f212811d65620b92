"""Decodes a response's bytes to arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

from convgrad.destinations import Destinations
from convgrad.errors import bad_reply
from convgrad.kept import payload_of
from convgrad.layouts import Array, Descriptor, is_blocked, text_of, wire_dtype, wire_layout
from convgrad.problem import Operation, wire_result
from convgrad.v1 import service_pb2
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
