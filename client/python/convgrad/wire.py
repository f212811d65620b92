"""Messages as a head, protobuf's part, and payloads beside it.

`payloads` is the highest-numbered field of every request and response. Writing
and finding it here costs one copy into the message and none out of it; through
protobuf's objects it would be three and two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# The payload of a stream's frame, at most.
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


def join_message(head: bytes, payloads: Sequence[memoryview]) -> bytes:
    """Returns the message. The payloads are contiguous views of bytes."""
    parts: list[bytes | memoryview] = [head]
    for payload in payloads:
        parts.append(_TAG_BYTES + _varint(payload.nbytes))
        parts.append(payload)
    return b"".join(parts)


def split_message(message: bytes) -> tuple[bytes, list[memoryview]]:
    """Returns the head and views of the payloads.

    Raises ValueError for bytes that are no message.
    """
    view = memoryview(message)
    head: list[memoryview] = []
    payloads: list[memoryview] = []
    for tag, start, body, end in _fields(view):
        if tag == _PAYLOAD_TAG:
            payloads.append(view[body:end])
        else:
            head.append(view[start:end])
    return b"".join(head), payloads


def _fields(view: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yields tag, start of the field, of its body, and its end."""
    at = 0
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
        yield tag, start, body, at


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
