"""Encodes arrays and keywords as a request's message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from convgrad import layouts
from convgrad.errors import invalid, parsing_response, unimplemented
from convgrad.kept import Kept, Operand, describe
from convgrad.layouts import Array, Descriptor, Dims, text_of
from convgrad.options import Options, timeout_of, wire_options
from convgrad.placing import Loan, Request
from convgrad.problem import (
    OPERANDS,
    RESULTS,
    Ints,
    Operation,
    Window,
    dims_of_output,
    dims_of_weight,
    have_one_dtype,
    ints,
    operand_dtype,
    wire_result,
)
from convgrad.region import Region
from convgrad.replies import Arrays, destinations_of
from convgrad.streams import Stream, Streamed
from convgrad.v1 import operation_pb2, service_pb2
from convgrad.wire import LentMessage, Message, joined

R = TypeVar("R")

# gRPC counts a message's bytes in 31 bits, and the head needs room beside the payload.
MAX_PAYLOAD_BYTES = 2**31 - 1 - 2 * 2**20
# The server's limit on the payloads of a message (proto/README.md, "Limits").
MAX_PAYLOADS = 1024

@dataclass(frozen=True)
class Call(Generic[R]):
    """A prepared call, which can be sent several times."""

    method: str
    message: Message | None
    """None: the call is a stream."""
    decode: Callable[[Any], R]
    """Makes the result of a Response."""
    request_id: bytes = b""
    options: Options = field(default_factory=Options)
    stream: Stream | Streamed | None = None
    """The same call as a stream, for servers whose messages are too small."""
    frames: Callable[[], Iterator[bytes]] | None = None
    """Yields the messages of a call with several messages and one answer."""
    results: dict[str, Descriptor] = field(default_factory=dict)
    """Descriptors of the results."""
    kept_results: dict[str, Descriptor] = field(default_factory=dict)
    """Descriptors of the results that a session keeps, by their names there."""
    is_change: bool = False
    """Whether the call changes its session."""
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    on_start: Callable[[Any], None] | None = None
    """Receives each attempt's grpc.Future, which cancels the attempt."""
    target: str | None = None
    """The only server that the call may go to; None: any server."""
    place: Callable[[Call[R], Iterable[Region]], Call[R]] | None = None
    """Converts a call by value to one that leaves tensors in the client's regions there."""
    loan: Loan = Loan()
    """The arrays that such a call has in regions."""
    whole: Call[R] | None = None
    """The call with all bytes, if this one leaves out those that the server has. Follows if the
    server no longer has them."""

    def decoded(self, response: Any) -> R:
        """Returns the result of a Response. Errors: Internal if it can't be parsed."""
        with parsing_response():
            return self.decode(response)

    def with_own_bytes(self) -> Call[R]:
        """Returns the call with copies of its arrays, so that the caller may change them."""
        call, message = replace(self, place=None), self.message
        if self.whole is not None:
            call = replace(call, whole=self.whole.with_own_bytes())
        if self.frames is not None:
            frames = list(self.frames())
            return replace(call, frames=lambda: iter(frames))
        if isinstance(self.stream, Stream) and isinstance(message, LentMessage) and (
                message.payloads):
            # Message and stream have the same payloads in the same order, and share the copies.
            payloads = {name: memoryview(bytes(payload))
                        for name, payload in self.stream.request.payloads.items()}
            request = replace(self.stream.request, payloads=payloads)
            return replace(call, message=replace(message, payloads=list(payloads.values())),
                           stream=replace(self.stream, request=request))
        return call if message is None else replace(call, message=joined(message))


def session_call(method: str, request: Any, decode: Callable[[Any], R],
                 timeout: float | None = None, **settings: Any) -> Call[R]:
    """Returns a call of the service ConvGradSessions with one message."""
    return Call("ConvGradSessions/" + method, request.SerializeToString(), decode,
                options=timeout_of(timeout), **settings)


class RequestBuilder:
    """Gathers a request's parts. Owned by one call."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._message = operation_pb2.ConvOperation()
        self._payloads: dict[str, memoryview] = {}
        self._operands: dict[str, Descriptor] = {}
        self._results: dict[str, Descriptor] = {}
        self._kept_results: dict[str, str] = {}
        self._dims: dict[str, Dims] = {}
        unknown = set(options) - set(Options.__annotations__)
        if unknown:
            raise TypeError(f"unknown keyword {sorted(unknown)[0]!r}")

    def layout_of(self, name: str) -> str:
        key, default = (("weight_layout", "OIX") if name in ("weight", "grad_weight")
                        else ("layout", "NCX"))
        layout: str = self._options.get(key, default)  # type: ignore[assignment]
        return layouts.layout_named(self._options.get("layouts", {}).get(name, layout))

    def dims_of(self, name: str, array: Operand | None, shape: Ints | None) -> Dims:
        """Returns the logical dims of a tensor: from `shape`, or its array's, or ()."""
        if shape is not None:
            return ints(shape, f"{name}_shape")
        if isinstance(array, Kept):
            return array.descriptor.dims
        layout = self.layout_of(name)
        if array is None or layouts.is_blocked(layout):
            return ()
        return layouts.logical_dims(array.shape, layout)

    def set_problem(self, window: Window, input_dims: Dims, weight_dims: Dims,
                    out_channels: int) -> None:
        problem = self._message.problem
        window.write(problem, input_dims, weight_dims, out_channels)
        self._dims = {"input": input_dims, "weight": dims_of_weight(problem),
                      "output": dims_of_output(problem)}

    def add_operand(self, name: str, array: Operand) -> None:
        """Requires: set_problem() first if the array's layout is blocked."""
        path = f"operation.operands.{name}"
        tensor = getattr(self._message.operands, name)
        if isinstance(array, Kept):
            self._operands[name] = array.descriptor
            describe(array.descriptor, tensor)
            tensor.kept.tensor_id = array.name
            return
        dtype = layouts.name_of_dtype(array.dtype, f"{path}.dtype")
        layout = "NCX" if name == "bias" else self.layout_of(name)
        if layouts.is_blocked(layout):
            packed, dims = np.ascontiguousarray(array), self._blocked_dims(name, array, dtype)
        elif name == "bias":
            packed, dims = np.ascontiguousarray(array).reshape(array.shape), array.shape
        else:
            layouts.wire_layout(layout, f"{path}.layout")
            dims = layouts.logical_dims(array.shape, layout)
            packed, layout = layouts.pack(array, layout)
        c0 = self._c0(dtype) if layouts.is_blocked(layout) else 0
        self._operands[name] = Descriptor(dtype, layout, dims, c0)
        describe(self._operands[name], tensor)
        tensor.inline.payload_index = len(self._payloads)
        self._payloads[name] = packed.reshape(-1).view(np.uint8).data

    def add_results(self, names: Iterable[str], bias_dims: Dims | None = None) -> None:
        names = list(names)
        for key in ("dtypes", "scales", "layouts", "keep", "add", "out"):
            named: Mapping[str, object] = self._options.get(key, {})  # type: ignore[assignment]
            for name in named:
                if name not in RESULTS + (OPERANDS if key == "layouts" else ()):
                    raise invalid("INVALID_ENUM", key, name, "a tensor's name")
        for i, name in enumerate(names):
            path = f"operation.results[{i}]"
            if name not in RESULTS:
                raise invalid("INVALID_ENUM", f"{path}.which", name, ", ".join(RESULTS))
            request = self._message.results.add(which=wire_result(name))
            if name == "grad_bias":
                if bias_dims is not None:
                    request.bias_dims.dim.extend(bias_dims)
                    request.bias_dims.SetInParent()
            else:
                request.layout = layouts.wire_layout(self.layout_of(name), f"{path}.layout")
                if layouts.is_blocked(self.layout_of(name)):
                    request.c0 = self._options.get("c0", 0)
            if name in self._options.get("dtypes", {}):
                request.dtype = layouts.wire_dtype(layouts.name_of_dtype(
                    self._options["dtypes"][name], f"{path}.dtype"))
            if name in self._options.get("scales", {}):
                request.scale = self._options["scales"][name]
            self._keep_result(name, request)
            self._results[name] = self._described(name, request)
        for key in ("keep", "add", "out"):
            for name in self._options.get(key, {}):  # type: ignore[attr-defined]
                if name not in names:
                    raise invalid("MISSING", f"{key}.{name}", "a result not asked for",
                                  ", ".join(names))

    def _keep_result(self, name: str, request: operation_pb2.ResultRequest) -> None:
        """Makes the session keep the result if the call requests it."""
        kept, added = self._options.get("keep", {}), self._options.get("add", {})
        if name in kept and name in added:
            raise invalid("DUPLICATE", f"add.{name}", f"'{added[name]}'",
                          "nothing, or no such name in keep")
        if name not in kept and name not in added:
            return
        self._kept_results[name] = kept[name] if name in kept else added[name]
        request.kept.tensor_id = self._kept_results[name]
        if name in added:
            request.store = operation_pb2.ResultRequest.STORE_ADD

    def _described(self, name: str, request: operation_pb2.ResultRequest) -> Descriptor:
        """Returns the descriptor of the result that the server will return."""
        problem, one = self._message.problem, operand_dtype(self._operands)
        dtype = "f32" if request.store or name in ("grad_weight", "grad_bias") else one
        if name in self._options.get("dtypes", {}):
            dtype = layouts.name_of_dtype(self._options["dtypes"][name], name)
        if name == "grad_bias":
            dims = (tuple(request.bias_dims.dim) if request.HasField("bias_dims")
                    else (problem.out_channels,))
            return Descriptor(dtype, "NCX", dims)
        layout, c0 = self.layout_of(name), 0
        if layouts.is_blocked(layout):
            c0 = request.c0 or next((operand.c0 for operand in self._operands.values()
                                     if operand.c0), layouts.default_c0(one))
        return Descriptor(dtype, layout, self._dims_in_problem(name.removeprefix("grad_")),
                          c0, max(problem.groups, 1))

    def _fits(self) -> bool:
        """Returns whether the operands have the problem's shapes and one dtype."""
        return have_one_dtype(self._operands) and all(
            operand.dims == self._dims_in_problem(name)
            for name, operand in self._operands.items() if name != "bias")

    def call(self, forward: bool,
             result: Callable[[Arrays, service_pb2.Report], R]) -> Call[R]:
        """Returns the call; `result` makes its result of arrays."""
        operation = Operation(forward, self._dims["output"], self._operands,
                              self._results)
        destinations = destinations_of(operation, self._kept_results,
                                       self._options.get("out", {}), self._payloads)
        streamed = Request(operation, self._message, wire_options(self._options),
                           self._payloads, destinations)
        # If they don't fit, send no payloads: the server refuses the request with its own
        # message.
        request = streamed if self._fits() else replace(streamed, payloads={})
        size = sum(payload.nbytes for payload in request.payloads.values())
        returned = [tensor.byte_size() for name, tensor in self._results.items()
                    if name not in self._kept_results]
        # The server refuses a result beyond 63 bits, also in a message.
        fits_message = max(size, sum(filter(layouts.fits, returned))) <= MAX_PAYLOAD_BYTES
        stays = bool(self._kept_results)
        streams = "slice_items" in self._options
        if stays and (streams or not fits_message):
            raise unimplemented("slice_items", "a stream whose results stay", "a message")

        def place(call: Call[R], regions: Iterable[Region]) -> Call[R]:
            if streams or (placed := request.placed(regions)) is None:
                return call
            message, answered, loan = placed
            return replace(call, message=message, decode=answered.decoder(result), loan=loan)

        return Call(
            method="ConvForward" if forward else "ConvBackward",
            message=request.by_value() if fits_message and not streams else None,
            decode=request.decoder(result), place=place,
            request_id=request.options.request_id, options=self._options,
            results=self._results, is_change=stays, kept_results={
                kept: self._results[name] for name, kept in self._kept_results.items()},
            stream=None if stays else Stream(
                streamed, self._options.get("slice_items", 0), result))

    def _c0(self, dtype: str) -> int:
        return self._options.get("c0", 0) or layouts.default_c0(dtype)

    def _dims_in_problem(self, name: str) -> Dims:
        return self._dims.get(name, self._dims["output"])

    def _blocked_dims(self, name: str, array: Array, dtype: str) -> Dims:
        """Returns the dims of a packed array, as the problem determines them."""
        dims, groups = self._dims_in_problem(name), max(self._message.problem.groups, 1)
        c0 = self._c0(dtype)
        if c0 not in (8, 16):
            raise invalid("OUT_OF_RANGE", "c0", c0, "8 or 16")
        expected = Descriptor(dtype, self.layout_of(name), dims, c0, groups).shape()
        if array.shape != expected:
            raise invalid("SHAPE_MISMATCH", f"operation.operands.{name}",
                          f"an array of shape {text_of(array.shape)}",
                          f"{text_of(expected)}, packed")
        return dims
