"""Transfers tensors to a session and back, in one message or as a stream."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from convgrad import layouts, operations
from convgrad.caller import Caller
from convgrad.errors import bad_reply, invalid, parsing_response
from convgrad.kept import array_of, describe, descriptor_of, empty_array
from convgrad.layouts import KEPT_DTYPES, Array, Descriptor
from convgrad.placing import Loan, find_places
from convgrad.region import Region
from convgrad.requests import MAX_PAYLOAD_BYTES, MAX_PAYLOADS, Call, session_call
from convgrad.streams import Streamed
from convgrad.v1 import session_pb2, tensor_pb2
from convgrad.wire import FRAME_BYTES, LentMessage, Response, join_message, parse, split_bytes

R = TypeVar("R")

# Every server's messages hold this much, so the client needn't ask.
_UNASKED_BYTES = 64 << 10


@dataclass(frozen=True)
class Put:
    """A tensor to keep, packed."""

    name: str
    descriptor: Descriptor
    payload: memoryview
    place: tensor_pb2.Tensor.Region | None = None
    """Place of the payload in a region, from which the server reads it."""

    def digest(self) -> bytes:
        """Returns NamedPut.digest as proto/convgrad/v1/session.proto defines it."""
        digest = hashlib.sha256(f"{self.descriptor}\n".encode())
        digest.update(self.payload)
        return digest.digest()


def put_of(name: str, array: npt.ArrayLike, layout: str) -> Put:
    """Returns the tensor. Raises InvalidArgument for a dtype or layout that isn't kept."""
    found = np.asarray(array)
    dtype = layouts.name_of_dtype(found.dtype, f"tensors.{name}.dtype", KEPT_DTYPES)
    layout = layouts.layout_named(layout)
    layouts.wire_layout(layout, f"tensors.{name}.layout")
    if layouts.is_blocked(layout):
        raise invalid("LAYOUT_MISMATCH", f"tensors.{name}.layout", layout,
                      "a row-major layout, whose dims follow from the array's shape")
    dims = layouts.logical_dims(found.shape, layout)
    # Not pack(), which may choose another layout: get() returns the array as it was put.
    payload = np.ascontiguousarray(found).reshape(-1).view(np.uint8).data
    return Put(name, Descriptor(dtype, layout, dims), payload)


@dataclass(frozen=True)
class PutRequest:
    """Tensors to put, which can be sent several times."""

    puts: Sequence[Put]
    digests: Mapping[str, bytes]
    """By name, for tensors put with a digest."""
    trainer_state: bytes = b""
    known: frozenset[bytes] = frozenset()
    """Digests whose bytes the server has."""

    def size(self) -> int:
        """Returns the payload bytes that are sent."""
        return sum(put.payload.nbytes for put in self.puts if self._is_sent(put))

    def count(self) -> int:
        """Returns how many payloads are sent."""
        return sum(map(self._is_sent, self.puts))

    def placed(self, regions: Iterable[Region]) -> tuple[PutRequest, Loan] | None:
        """Returns the request with tensors in a region left there; None if there are none.

        Errors: NotFound for memory of a region that isn't open.
        """
        places, loan = find_places({f"tensors.{put.name}": np.frombuffer(put.payload, np.uint8)
                                    for put in self.puts}, regions)
        if not places:
            return None
        puts = [replace(put, place=places.get(f"tensors.{put.name}")) for put in self.puts]
        return replace(self, puts=puts), loan

    def message(self) -> LentMessage:
        """Returns a PutTensorsRequest that refers to the tensors' bytes."""
        return LentMessage(self._head(is_stream=False).SerializeToString(),
                           [put.payload for put in self.puts if self._is_sent(put)])

    def frames(self) -> Iterator[bytes]:
        """Yields the messages of PutTensorsStream."""
        head = self._head(is_stream=True)
        yield session_pb2.PutTensorsStreamRequest(header=head).SerializeToString()
        for index, put in enumerate(self.puts):
            if not self._is_sent(put):
                continue
            for at in range(0, put.payload.nbytes, FRAME_BYTES):
                frame = session_pb2.PutTensorsStreamRequest(
                    frame=session_pb2.TensorFrame(tensor=index, byte_offset=at))
                yield join_message(frame.SerializeToString(),
                                   [put.payload[at:at + FRAME_BYTES]])

    def _is_known(self, put: Put) -> bool:
        return self.digests.get(put.name) in self.known

    def _is_sent(self, put: Put) -> bool:
        return put.place is None and not self._is_known(put)

    def _head(self, *, is_stream: bool) -> session_pb2.PutTensorsRequest:
        head = session_pb2.PutTensorsRequest(trainer_state=self.trainer_state)
        indices = itertools.count()
        for put in self.puts:
            message = head.tensors.add(name=put.name, digest=self.digests.get(put.name, b""))
            if self._is_known(put):
                continue
            describe(put.descriptor, message.tensor)
            if put.place is not None:
                message.tensor.region.CopyFrom(put.place)
            elif is_stream:
                message.tensor.stream.SetInParent()
            else:
                message.tensor.inline.payload_index = next(indices)
        return head


def sent(call: Call[None], request: PutRequest, limit: int) -> Call[None]:
    """Returns the call with the request as a message of at most `limit` bytes and MAX_PAYLOADS
    payloads, or in frames."""
    def place(by_value: Call[None], regions: Iterable[Region]) -> Call[None]:
        placed = request.placed(regions)
        if placed is None:
            return by_value
        return replace(sent(call, placed[0], limit), place=None, loan=placed[1],
                       whole=by_value.whole)

    call_by_value = replace(call, place=place)
    if request.size() < limit and request.count() <= MAX_PAYLOADS:
        message = request.message()
        if len(message) <= limit:
            return replace(call_by_value, message=message)
    return replace(call_by_value, method=call.method + "Stream", frames=request.frames)


class Uploads:
    """Asks one server what an upload needn't, or can't, send in one message. Thread-safe."""

    def __init__(self, client: Caller, target: str) -> None:
        self._client = client
        self._target = target
        self._max_message_bytes: int | None = None

    def known(self, digests: Iterable[bytes], timeout: float | None) -> frozenset[bytes]:
        """Returns the digests whose bytes the server has."""
        asked = list(dict.fromkeys(digests))
        if not asked:
            return frozenset()
        request = session_pb2.HaveTensorsRequest(digests=asked)
        answer = self._client.run(session_call(
            "HaveTensors", request, session_pb2.HaveTensorsResponse.FromString, timeout,
            target=self._target))
        return frozenset(digest for digest, have in zip(asked, answer.have) if have)

    def message_limit(self, size: int, timeout: float | None) -> int:
        """Returns how many bytes a request of `size` may have in one message."""
        if size <= _UNASKED_BYTES:
            return _UNASKED_BYTES + size
        if self._max_message_bytes is None:
            answer = self._client.run(replace(
                operations.capabilities(timeout=timeout), target=self._target))
            self._max_message_bytes = answer.limits.max_message_bytes
        return min(self._max_message_bytes, MAX_PAYLOAD_BYTES)


def get_request(names: Iterable[str], dtype: npt.DTypeLike | None, layout: str | None,
                first_item: int, items: int) -> session_pb2.GetTensorsRequest:
    """Returns the message of Session.get()."""
    request = session_pb2.GetTensorsRequest()
    for name in names:
        wanted = request.tensors.add(name=name, first_item=first_item, items=items)
        if dtype is not None:
            wanted.dtype = layouts.wire_dtype(
                layouts.name_of_dtype(dtype, "dtype", KEPT_DTYPES))
        if layout is not None:
            wanted.layout = layouts.wire_layout(layouts.layout_named(layout), "layout")
    return request


class GetReply:
    """Gathers the answer of GetTensorsStream. Owned by one attempt.

    `result` makes the call's result of the arrays, and the number of the change as of which
    they are.
    """

    def __init__(self, result: Callable[[dict[str, Array], int], Any]) -> None:
        self._result = result
        self._arrays: dict[str, Array] | None = None
        self._number = 0
        self._order: list[Array] = []
        self._next = (0, 0)

    def take(self, response: bytes) -> None:
        """Adds a message. Raises Internal for one that doesn't follow the earlier ones."""
        with parsing_response():
            head, payloads = split_bytes(response)
            message = session_pb2.GetTensorsStreamResponse.FromString(head)
        if message.HasField("frame"):
            self._take_frame(message.frame, payloads)
        elif message.HasField("header") and self._arrays is None:
            self._take_header(message.header)
        else:
            raise bad_reply("part", "another", "a header, then frames")

    def finish(self) -> Any:
        """Returns the call's result. Raises Internal if bytes are missing."""
        if self._arrays is None or self._next[0] < len(self._order):
            raise bad_reply("message", "the end", "frames of all tensors")
        return self._result(self._arrays, self._number)

    def _take_header(self, header: session_pb2.GetTensorsResponse) -> None:
        self._order = [empty_array(descriptor_of(info.tensor)) for info in header.tensors]
        self._arrays = {info.name: array for info, array in zip(header.tensors, self._order)}
        self._number = header.number
        self._skip_complete()

    def _take_frame(self, frame: session_pb2.TensorFrame,
                    payloads: list[memoryview]) -> None:
        tensor, at = self._next
        left = self._order[tensor].nbytes - at if tensor < len(self._order) else 0
        size = payloads[0].nbytes if len(payloads) == 1 else 0
        if (frame.tensor, frame.byte_offset) != self._next or not 0 < size <= left:
            raise bad_reply("frame", f"{frame.tensor} at {frame.byte_offset}, {size} bytes",
                            f"{tensor} at {at}, at most {left}")
        target = self._order[tensor].reshape(-1).view(np.uint8)
        target[at:at + size] = np.frombuffer(payloads[0], np.uint8)
        self._next = tensor, at + size
        self._skip_complete()

    def _skip_complete(self) -> None:
        tensor, at = self._next
        while tensor < len(self._order) and at == self._order[tensor].nbytes:
            tensor, at = tensor + 1, 0
        self._next = tensor, at


def get_call(request: session_pb2.GetTensorsRequest,
             result: Callable[[dict[str, Array], int], R],
             timeout: float | None = None) -> Call[R]:
    """Returns a call whose answer is a message, or a stream if a message is too small. `result`
    receives the arrays and the number of the change as of which they are."""
    stream = Streamed(lambda: iter([request.SerializeToString()]), lambda: GetReply(result))
    return session_call("GetTensors", request,
                        lambda response: result(*_got_tensors(response)), timeout,
                        stream=stream)


def _got_tensors(response: Response) -> tuple[dict[str, Array], int]:
    """Returns the arrays of a GetTensorsResponse as new arrays, and its number."""
    message, payloads = parse(session_pb2.GetTensorsResponse, response)
    return {info.name: array_of(info.name, info.tensor, payloads)
            for info in message.tensors}, message.number
