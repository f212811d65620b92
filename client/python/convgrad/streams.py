"""Runs operations of any size as streams of frames, in slices of the batch.

The header alone determines what is sent when (StreamHeader and OperandFrame in
proto/convgrad/v1/service.proto; proto/stream_slices.cc does the same).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from convgrad.errors import bad_reply, invalid, parsing_response
from convgrad.layouts import Descriptor
from convgrad.placing import Request
from convgrad.problem import OPERANDS, wire_result
from convgrad.replies import Arrays, check_tensor
from convgrad.v1 import operation_pb2, service_pb2, tensor_pb2
from convgrad.wire import FRAME_BYTES, join_message, split_bytes

_SLICE_BYTES = 16 << 20


class Reply(Protocol):
    """Gathers the messages of a stream's answer."""

    def take(self, response: bytes) -> None:
        """Adds a message. Raises Internal for one that doesn't belong to the call."""

    def finish(self) -> Any:
        """Returns the call's result. Raises Internal if something is missing."""


class Streamed(NamedTuple):
    """A call as a stream, which can be sent several times."""

    requests: Callable[[], Iterator[bytes]]
    """Yields the messages."""
    reply: Callable[[], Reply]
    """Returns an object that gathers the answer of one attempt."""


def _item_bytes(tensor: Descriptor) -> int:
    return replace(tensor, dims=(1, *tensor.dims[1:])).byte_size()


@dataclass(frozen=True)
class Stream:
    """An operation as a stream, which can be sent several times."""

    request: Request
    slice_items: int
    """Items of the batch per slice; 0: the contract's formula."""
    result: Callable[[Arrays, service_pb2.Report], Any]
    """Makes the result of the gathered arrays."""

    def __post_init__(self) -> None:
        if not isinstance(self.slice_items, (int, np.integer)) or self.slice_items < 0:
            raise invalid("OUT_OF_RANGE", "slice_items", self.slice_items,
                          "an integer of at least 0")

    def reply(self) -> StreamReply:
        """Returns an object that gathers the answer of one attempt."""
        return StreamReply(self)

    def requests(self) -> Iterator[bytes]:
        """Yields the header, then frames: of uncut operands, then of the others by slices."""
        items, payloads = self._items(), self.request.payloads
        yield service_pb2.ConvStreamRequest(header=service_pb2.StreamHeader(
            operation=self._streamed(), options=self.request.options,
            slice_items=items)).SerializeToString()
        cut = [n for n in OPERANDS if n in payloads and self._is_cut(n)]
        for name in payloads:
            if name not in cut:
                yield from self._frames(name, 0, payloads[name].nbytes)
        operation = self.request.operation
        for first in range(0, operation.batch, items):
            last = min(first + items, operation.batch)
            for name in cut:
                size = _item_bytes(operation.operands[name])
                yield from self._frames(name, first * size, last * size)

    def _streamed(self) -> operation_pb2.ConvOperation:
        message = operation_pb2.ConvOperation()
        message.CopyFrom(self.request.message)
        for name in self.request.payloads:
            getattr(message.operands, name).stream.SetInParent()
        return message

    def _frames(self, name: str, begin: int, end: int) -> Iterator[bytes]:
        which = tensor_pb2.Operand.Value(f"OPERAND_{name.upper()}")
        for at in range(begin, end, FRAME_BYTES):
            head = service_pb2.ConvStreamRequest()
            head.frame.which = which  # type: ignore[assignment]
            head.frame.byte_offset = at
            payload = self.request.payloads[name][at:min(at + FRAME_BYTES, end)]
            yield join_message(head.SerializeToString(), [payload])

    def _is_cut(self, name: str, tensor: Descriptor | None = None) -> bool:
        """Returns whether the tensor's first axis is the batch."""
        output = self.request.operation.output
        dims = (tensor or self.request.operation.operands[name]).dims
        if name in ("bias", "grad_bias"):
            return len(dims) == len(output) and output[0] != 1 and dims[0] == output[0]
        return name not in ("weight", "grad_weight")

    def _items(self) -> int:
        operation = self.request.operation
        batch = max(operation.batch, 1)
        if self.slice_items:
            return min(self.slice_items, batch)
        per_item = sum(_item_bytes(tensor) for name, tensor in operation.operands.items()
                       if self._is_cut(name))
        sums = 0
        for name, tensor in operation.results.items():
            if self._is_cut(name, tensor):
                per_item += _item_bytes(tensor)
            else:
                sums += 4 * int(np.prod(tensor.dims, dtype=np.int64))
        return min(max(max(_SLICE_BYTES, sums) // max(per_item, 1), 1), batch)


class StreamReply:
    """Gathers the answer of a stream. Owned by one attempt."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._results = stream.request.operation.results
        self._received = dict.fromkeys(self._results, 0)
        self._end: service_pb2.StreamEnd | None = None

    @cached_property
    def _arrays(self) -> Arrays:
        """The results' arrays, allocated when the server has accepted the request."""
        return {name: self._stream.request.destinations.array(name, tensor)
                for name, tensor in self._results.items()}

    def take(self, response: bytes) -> None:
        """Adds a message. Raises Internal for one that doesn't belong to this operation."""
        with parsing_response():
            head, payloads = split_bytes(response)
            message = service_pb2.ConvStreamResponse.FromString(head)
        if self._end is not None:
            raise bad_reply("message", "one after the end", "none")
        if message.HasField("end"):
            self._end = message.end
        elif message.HasField("frame"):
            self._take_frame(message.frame, payloads)
        else:
            raise bad_reply("part", "nothing", "frame or end")

    def finish(self) -> Any:
        """Returns the call's result. Raises Internal if bytes are missing."""
        if self._end is None:
            raise bad_reply("message", "no end", "one at the end")
        if len(self._end.results) != len(self._results):
            raise bad_reply("results", len(self._end.results), len(self._results))
        for named, (name, wanted) in zip(self._end.results, self._results.items()):
            check_tensor(name, named, wanted)
            if self._received[name] != self._arrays[name].nbytes:
                raise bad_reply(name, f"{self._received[name]} bytes",
                                self._arrays[name].nbytes)
        return self._stream.result(self._arrays, self._end.report)

    def _take_frame(self, frame: service_pb2.ResultFrame,
                    payloads: list[memoryview]) -> None:
        name = next((n for n in self._arrays if wire_result(n) == frame.which), None)
        if name is None or len(payloads) != 1:
            raise bad_reply("frame.which", frame.which,
                            "a result that was asked for, with one payload")
        at, size = self._received[name], payloads[0].nbytes
        left = self._arrays[name].nbytes - at
        if frame.byte_offset != at or size > left:
            raise bad_reply("frame.byte_offset", f"{frame.byte_offset} with {size} bytes",
                            f"{at} with at most {left} bytes")
        target = self._arrays[name].reshape(-1).view(np.uint8)
        target[at:at + size] = np.frombuffer(payloads[0], np.uint8)
        self._received[name] += size
