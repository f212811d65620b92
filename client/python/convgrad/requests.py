"""From arrays and keywords to a request's message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from convgrad import layouts, validation
from convgrad.destinations import destinations_of
from convgrad.errors import invalid, unimplemented
from convgrad.kept import Kept, Operand, describe
from convgrad.layouts import Array, Descriptor
from convgrad.options import Options, wire_options
from convgrad.placing import Loan, Request
from convgrad.problem import Dims, fits, resolve, text_of
from convgrad.region import Region
from convgrad.replies import Arrays
from convgrad.streams import Stream, Streamed
from convgrad.v1 import operation_pb2, service_pb2
from convgrad.wire import Message

Ints = int | Sequence[int]
Padding = str | int | Sequence[int] | Sequence[Sequence[int]]
R = TypeVar("R")

# gRPC counts a message's bytes in 31 bits, and a head comes beside the payload.
MAX_PAYLOAD_BYTES = 2**31 - 1 - 2 * 2**20

_NAMED_PADDING = {
    "valid": operation_pb2.PADDING_VALID,
    "same": operation_pb2.PADDING_SAME_UPPER,
    "same_upper": operation_pb2.PADDING_SAME_UPPER,
    "same_lower": operation_pb2.PADDING_SAME_LOWER,
}


@dataclass(frozen=True)
class Call(Generic[R]):
    """A call ready to be sent, as often as it takes."""

    method: str
    message: Message | None
    """None: it goes as a stream."""
    decode: Callable[[Any], R]
    """Makes the result of a Response."""
    request_id: bytes = b""
    options: Options = field(default_factory=Options)
    stream: Streamed | None = None
    """The same as a stream, for servers whose messages are too small."""
    result: Callable[..., R] | None = None
    """Makes the result of what the stream's reply has gathered."""
    frames: Callable[[], Iterator[bytes]] | None = None
    """Yields the messages of a call that has several, and one as its answer."""
    results: dict[str, Descriptor] = field(default_factory=dict)
    """What the call computes."""
    kept_results: dict[str, str] = field(default_factory=dict)
    """Which results a session keeps, and as what. Such a call is a change of it."""
    is_change: bool = False
    """Whether the call changes its session even so."""
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    on_start: Callable[[Any], None] | None = None
    """Is given each attempt's grpc.Future, to cancel it by."""
    target: str | None = None
    """The server that the call has to go to, where not all will do."""
    place: Callable[[Call[R], Iterable[Region]], Call[R]] | None = None
    """Makes of a call by value one that leaves in the client's regions what lies there."""
    loan: Loan | None = None
    """What such a call has there."""


@dataclass(frozen=True)
class Window:
    """A convolution's keywords, as PyTorch names them."""

    stride: Ints = 1
    padding: Padding = 0
    dilation: Ints = 1
    groups: int = 1
    output_padding: Ints | None = None
    output_size: Ints | None = None
    transposed: bool = False
    activation: str | None = None


class RequestBuilder:
    """Gathers a request's parts. Owned by one call."""

    def __init__(self, window: Window, options: Options) -> None:
        self._options = options
        self._window = window
        self._message = operation_pb2.ConvOperation()
        self._payloads: dict[str, memoryview] = {}
        self._kept_results: dict[str, str] = {}
        unknown = set(options) - set(Options.__annotations__)
        if unknown:
            raise TypeError(f"unknown keyword {sorted(unknown)[0]!r}")

    def layout_of(self, name: str) -> str:
        key, default = (("weight_layout", "OIX") if name in ("weight", "grad_weight")
                        else ("layout", "NCX"))
        layout: str = self._options.get(key, default)  # type: ignore[assignment]
        return layouts.layout_named(self._options.get("layouts", {}).get(name, layout))

    def dims_of(self, name: str, array: Operand | None, shape: Ints | None) -> Dims:
        """Returns the logical dims of a tensor: as named, or its array's, or ()."""
        if shape is not None:
            return _ints(shape, f"{name}_shape")
        if isinstance(array, Kept):
            return array.descriptor.dims
        layout = self.layout_of(name)
        if array is None or layouts.is_blocked(layout):
            return ()
        return layouts.logical_dims(array.shape, layout)

    def set_problem(self, input_dims: Dims, weight_dims: Dims, out_channels: int) -> None:
        window, problem = self._window, self._message.problem
        rank = max(len(input_dims) - 2, 0)
        problem.transposed = window.transposed
        lists = {"input_dims": input_dims, "kernel": weight_dims[2:]}
        if rank:
            lists |= {"stride": _ints(window.stride, "stride"),
                      "dilation": _ints(window.dilation, "dilation")}
        for name in ("output_padding", "output_size"):
            value = getattr(window, name)
            if value is not None:
                lists[name.replace("size", "dims")] = _ints(value, name)
        lists |= self._pads()
        for name, values in lists.items():
            getattr(problem, name).extend(values)
        problem.out_channels = _int(out_channels, "out_channels")
        problem.groups = _int(window.groups, "groups")
        if window.activation not in (None, "relu"):
            raise invalid("INVALID_ENUM", "operation.problem.activation",
                          window.activation, "None or relu")
        if window.activation == "relu":
            problem.activation = operation_pb2.ACTIVATION_RELU

    def add_operand(self, name: str, array: Operand) -> None:
        """Requires: set_problem, where the array's layout is blocked."""
        path = f"operation.operands.{name}"
        if isinstance(array, Kept):
            tensor = getattr(self._message.operands, name)
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
        tensor = getattr(self._message.operands, name)
        tensor.dtype = layouts.wire_dtype(dtype)
        tensor.layout = layouts.wire_layout(layout, f"{path}.layout")
        if layouts.is_blocked(layout):
            tensor.c0 = self._c0(dtype)
        tensor.dims.extend(dims)
        tensor.inline.payload_index = len(self._payloads)
        self._payloads[name] = packed.reshape(-1).view(np.uint8).data

    def add_results(self, names: Iterable[str], bias_dims: Dims | None = None) -> None:
        names = list(names)
        for key in ("dtypes", "scales", "layouts", "keep", "add", "out"):
            named: Mapping[str, object] = self._options.get(key, {})  # type: ignore[assignment]
            for name in named:
                if name not in validation.RESULTS + (
                        validation.OPERANDS if key == "layouts" else ()):
                    raise invalid("INVALID_ENUM", key, name, "a tensor's name")
        for i, name in enumerate(names):
            path = f"operation.results[{i}]"
            if name not in validation.RESULTS:
                raise invalid("INVALID_ENUM", f"{path}.which", name,
                              ", ".join(validation.RESULTS))
            request = self._message.results.add(which=validation.wire_result(name))
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
        for key in ("keep", "add", "out"):
            for name in self._options.get(key, {}):  # type: ignore[attr-defined]
                if name not in names:
                    raise invalid("MISSING", f"{key}.{name}", "a result not asked for",
                                  ", ".join(names))

    def _keep_result(self, name: str, request: operation_pb2.ResultRequest) -> None:
        """Has the session keep the result, where the call says so."""
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

    def call(self, forward: bool,
             result: Callable[[Arrays, service_pb2.Report], R]) -> Call[R]:
        """Returns the validated call; `result` makes its result of arrays."""
        sizes = [payload.nbytes for payload in self._payloads.values()]
        operation = validation.validate(self._message, forward, sizes)
        destinations = destinations_of(operation, self._kept_results,
                                       self._options.get("out", {}), self._payloads)
        request = Request(operation, self._message, wire_options(self._options),
                          self._payloads, destinations)
        answer = sum(tensor.byte_size() or 0 for name, tensor in operation.results
                     if name not in self._kept_results)
        fits_message = max(sum(sizes), answer) <= MAX_PAYLOAD_BYTES
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
            results=dict(operation.results), kept_results=self._kept_results,
            stream=None if stays else Stream(
                operation, self._message, request.options, self._payloads,
                self._options.get("slice_items", 0), destinations),
            result=result)

    def _pads(self) -> dict[str, Dims]:
        padding = self._window.padding
        problem = self._message.problem
        if isinstance(padding, str):
            if padding not in _NAMED_PADDING:
                raise invalid("INVALID_ENUM", "operation.problem.padding", padding,
                              ", ".join(_NAMED_PADDING) + ", numbers or pairs of them")
            problem.padding = _NAMED_PADDING[padding]
            return {}
        if isinstance(padding, int) or all(np.ndim(p) == 0 for p in padding):
            pads = _ints(padding, "padding")
            pads = () if set(pads) <= {0} else pads
            return {"pad_begin": pads, "pad_end": pads}
        pairs = [_ints(pair, "padding") for pair in padding]
        if any(len(pair) != 2 for pair in pairs):
            raise invalid("SHAPE_MISMATCH", "operation.problem.padding", padding,
                          "pairs of numbers: before and after")
        return {"pad_begin": tuple(p[0] for p in pairs),
                "pad_end": tuple(p[1] for p in pairs)}

    def _c0(self, dtype: str) -> int:
        return self._options.get("c0", 0) or layouts.default_c0(dtype)

    def _blocked_dims(self, name: str, array: Array, dtype: str) -> Dims:
        """Returns the dims that the problem gives a packed array."""
        problem = resolve(self._message.problem)
        dims = {"input": problem.input_dims(), "weight": problem.weight_dims(),
                }.get(name, problem.output_dims())
        c0 = self._c0(dtype)
        if c0 not in (8, 16):
            raise invalid("OUT_OF_RANGE", "c0", c0, "8 or 16")
        expected = Descriptor(dtype, self.layout_of(name), dims, c0, problem.groups).shape()
        if array.shape != expected:
            raise invalid("SHAPE_MISMATCH", f"operation.operands.{name}",
                          f"an array of shape {text_of(array.shape)}",
                          f"{text_of(expected)}, packed")
        return dims


def _int(value: object, name: str) -> int:
    # A bool is an int to Python, and a mistake here.
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if fits(int(value)):
            return int(value)
    raise invalid("OUT_OF_RANGE", f"operation.problem.{name}", value,
                  "an integer of 64 bits")


def _ints(values: object, name: str) -> Dims:
    if isinstance(values, Iterable) and not isinstance(values, str):
        return tuple(_int(value, name) for value in values)
    return (_int(values, name),)


def out_channels_of(weight_dims: Dims, window: Window) -> int:
    """Returns O as a weight's dims have it, 0 where they are missing."""
    if len(weight_dims) < 2:
        return 0
    return weight_dims[1] * window.groups if window.transposed else weight_dims[0]
