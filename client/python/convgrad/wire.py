"""Encodes and decodes messages as a protobuf head with separate payloads.

`payloads` is the highest-numbered field of every request and response. Writing and finding it
here costs one copy into the message and none out of it; protobuf's objects would cost three and
two. The native module needs no copy, because it sends the parts in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

# Maximum payload of a stream's frame.
FRAME_BYTES = 4 << 20

# Field 536870911, wire type 2 (length-delimited), as a varint.
_PAYLOAD_TAG = 536870911 << 3 | 2


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_TAG_BYTES = _varint(_PAYLOAD_TAG)


@dataclass(frozen=True)
class LentMessage:
    """A message whose payloads are contiguous views of arrays' bytes."""

    head: bytes
    payloads: Sequence[memoryview]

    def __len__(self) -> int:
        return sum(memoryview(part).nbytes for part in parts_of(self))


Message = bytes | LentMessage


class Payload(Protocol):
    """Bytes that the native module has received; they can be copied out once."""

    @property
    def nbytes(self) -> int: ...

    def move_to(self, destination: Any) -> None: ...


Response = bytes | tuple[bytes, "list[Payload]"]


def parts_of(message: Message) -> list[bytes | memoryview]:
    """Returns the message's bytes as consecutive parts."""
    if isinstance(message, bytes):
        return [message]
    parts: list[bytes | memoryview] = [message.head]
    for payload in message.payloads:
        parts += [_TAG_BYTES + _varint(payload.nbytes), payload]
    return parts


def joined(message: Message) -> bytes:
    """Returns the message in one piece; a copy unless it already is."""
    return message if isinstance(message, bytes) else b"".join(parts_of(message))


def join_message(head: bytes, payloads: Sequence[memoryview]) -> bytes:
    """Returns the message. The payloads must be contiguous views of bytes."""
    return joined(LentMessage(head, payloads))


def receive(payload: memoryview | Payload, array: npt.NDArray[Any]) -> None:
    """Copies a payload's bytes to a C-contiguous array.

    Requires: equal sizes, and a payload that wasn't received before.
    """
    target = array.reshape(-1).view(np.uint8)
    if isinstance(payload, memoryview):
        target[...] = np.frombuffer(payload, np.uint8)
    else:
        payload.move_to(target)


def parse(kind: Any, message: Response) -> tuple[Any, Sequence[memoryview | Payload]]:
    """Returns the message, of protobuf's class `kind`, and its payloads; views if the message
    is in one piece.

    Errors: ValueError or protobuf's DecodeError for malformed bytes.
    """
    head, payloads = message if isinstance(message, tuple) else split_bytes(message)
    return kind.FromString(head), payloads


def split_bytes(message: bytes) -> tuple[bytes, list[memoryview]]:
    """Returns the head and the payloads of a message in one piece.

    Errors: ValueError for malformed bytes.
    """
    view, at = memoryview(message), 0
    head: list[memoryview] = []
    payloads: list[memoryview] = []
    while at < len(view):
        start = at
        tag, at = _read_varint(view, at)
        body = at
        wire_type = tag & 7
        if wire_type == 0:
            _, at = _read_varint(view, at)
        elif wire_type == 1:
            at += 8
        elif wire_type == 2:
            length, body = _read_varint(view, at)
            at = body + length
        elif wire_type == 5:
            at += 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if at > len(view):
            raise ValueError("a field beyond the message's end")
        if tag == _PAYLOAD_TAG:
            payloads.append(view[body:at])
        else:
            head.append(view[start:at])
    return b"".join(head), payloads


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(view):
            break
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number without end")
