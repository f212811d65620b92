"""Reads and writes recordings: files with all changes of a session, which can be repeated.

A recording begins with MAGIC. Each part that follows has the length of its head (4 bytes,
little-endian), the head (a JSON object), and messages, whose sizes the head has. The first part
has no messages and tells what the server is; each other part is a change.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from convgrad.errors import invalid
from convgrad.files import open_regular
from convgrad.v1 import network_pb2, service_pb2, session_pb2, tensor_pb2
from convgrad.wire import Response, join_message, receive, split_bytes

MAGIC = b"convgrad recording 1\n"
_LENGTH_BYTES = 4
_MOST_HEAD_BYTES = 16 << 20

# The changes of a session, and the messages that answer them.
REPLIES: Mapping[str, Any] = {
    "ConvBackward": service_pb2.ConvBackwardResponse,
    "ConvForward": service_pb2.ConvForwardResponse,
    "ConvGradNetworks/BackwardProgram": network_pb2.BackwardProgramResponse,
    "ConvGradNetworks/DropPrograms": network_pb2.DropProgramsResponse,
    "ConvGradNetworks/LoadProgram": network_pb2.LoadProgramResponse,
    "ConvGradNetworks/RunProgram": network_pb2.RunProgramResponse,
    "ConvGradNetworks/UpdateParameters": network_pb2.UpdateParametersResponse,
    "ConvGradSessions/DropTensors": session_pb2.DropTensorsResponse,
    "ConvGradSessions/PutTensors": session_pb2.PutTensorsResponse,
    "ConvGradSessions/PutTensorsStream": session_pb2.PutTensorsResponse,
}


@dataclass(frozen=True)
class Recorded:
    """A change of a recording."""

    sequence: int
    """Its number in the session, from 1."""
    method: str
    offset: int
    """Offset of its first message in the file."""
    sizes: tuple[int, ...]
    """Bytes of its messages: exactly one unless it is a stream."""
    reply: dict[str, str] | None
    """Digests of its reply, as of digests_of(); None if the client lost the reply."""

    @property
    def is_stream(self) -> bool:
        return self.method.endswith("Stream")


def part_of(head: Mapping[str, Any], messages: Sequence[bytes] = ()) -> bytes:
    """Returns the bytes of a part."""
    text = json.dumps(head).encode()
    return b"".join((len(text).to_bytes(_LENGTH_BYTES, "little"), text, *messages))


def whole(response: Response) -> bytes:
    """Returns the response in one piece. Requires: its payloads were not received before."""
    if not isinstance(response, tuple):
        return response
    head, payloads = response
    arrays = [np.empty(payload.nbytes, np.uint8) for payload in payloads]
    for payload, array in zip(payloads, arrays):
        receive(payload, array)
    return join_message(head, [array.data for array in arrays])


def digests_of(method: str, response: bytes) -> dict[str, str]:
    """Returns a SHA-256 for each tensor of the response, by its name, and one for the rest,
    under "reply". They don't depend on times and on the report.

    Errors: ValueError or protobuf's DecodeError for a malformed response.
    """
    head, payloads = split_bytes(response)
    message = REPLIES[method].FromString(head)
    if "report" in message.DESCRIPTOR.fields_by_name:
        message.ClearField("report")
    found = {}
    for value in getattr(message, "values", ()):
        found[value.name] = _digest_of(value.tensor, payloads)
    for result in getattr(message, "results", ()):
        found[tensor_pb2.Result.Name(result.which)] = _digest_of(result.tensor, payloads)
    found["reply"] = hashlib.sha256(message.SerializeToString(deterministic=True)).hexdigest()
    return found


def _digest_of(tensor: Any, payloads: Sequence[Any]) -> str:
    if not tensor.HasField("inline"):
        return ""
    if not 0 <= tensor.inline.payload_index < len(payloads):
        raise ValueError("a payload_index without a payload")
    return hashlib.sha256(payloads[tensor.inline.payload_index]).hexdigest()


class Recording:
    """An open recording, whose parts were checked. Owned by one thread.

    Errors: InvalidArgument naming the file and the part for anything else than a recording;
    OSError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        file, self._end = open_regular(self.path, "a recording")
        self._file = io.BufferedReader(file)
        try:
            if self._file.read(len(MAGIC)) != MAGIC:
                self._refuse("first line", "another", MAGIC.decode().strip())
            head = self._head()
            if head is None:
                self._refuse("server", "nothing", "its first part")
            self.server: dict[str, Any] = self._taken(head, "server", dict)
            self.is_cut = False
            """Whether its last part is incomplete, as if its program was killed."""
            self.changes = self._ordered(list(self._changes()))
            """The complete changes, by number: 1, 2, 3 and so on."""
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def messages(self, change: Recorded) -> list[bytes]:
        """Returns the change's messages.

        Errors: InvalidArgument if the file has become shorter.
        """
        self._file.seek(change.offset)
        messages = [self._file.read(size) for size in change.sizes]
        if [len(message) for message in messages] != list(change.sizes):
            self._refuse(f"change {change.sequence}", "the file's end", "its messages")
        return messages

    def _changes(self) -> Iterator[Recorded]:
        while (head := self._head()) is not None:
            sizes = self._taken(head, "sizes", list)
            if not all(type(size) is int and size >= 0 for size in sizes):
                self._refuse("sizes", "something else", "numbers of bytes")
            method = self._taken(head, "method", str)
            if method not in REPLIES:
                self._refuse("method", ascii(method[:80]), "a method that changes sessions")
            if not method.endswith("Stream") and len(sizes) != 1:
                self._refuse("sizes", f"{len(sizes)} messages", "1")
            reply = None if head.get("reply") is None else self._taken(head, "reply", dict)
            offset = self._file.tell()
            if offset + sum(sizes) > self._end:
                self.is_cut = True
                return
            yield Recorded(self._taken(head, "sequence", int), method, offset, tuple(sizes),
                           reply)
            self._file.seek(offset + sum(sizes))

    def _ordered(self, changes: list[Recorded]) -> list[Recorded]:
        """Returns the changes in the order of their numbers: their replies may have come in
        another one. Leaves those out that lie behind a gap at the end of a cut recording."""
        changes.sort(key=lambda change: change.sequence)
        for number, change in enumerate(changes, 1):
            if change.sequence < number:
                self._refuse(f"change {change.sequence}", "two of them", "one")
            if change.sequence > number:
                self.is_cut = True
                return changes[:number - 1]
        return changes

    def _head(self) -> dict[str, Any] | None:
        """Returns the head of the next part; None at the end of the file."""
        length = self._file.read(_LENGTH_BYTES)
        size = int.from_bytes(length, "little")
        if len(length) < _LENGTH_BYTES or size > self._end - self._file.tell():
            self.is_cut = length != b""
            return None
        if size > _MOST_HEAD_BYTES:
            self._refuse("length of a head", size, f"at most {_MOST_HEAD_BYTES}")
        try:
            head = json.loads(self._file.read(size))
        except (ValueError, RecursionError):
            head = None
        if not isinstance(head, dict):
            self._refuse(f"part at byte {self._file.tell() - size}", "something else",
                         "a JSON object")
        return head

    def _taken(self, head: Mapping[str, Any], key: str, kind: Callable[..., Any]) -> Any:
        if type(head.get(key)) is not kind:
            self._refuse(key, "nothing or something else", f"a JSON value of type {kind}")
        return head[key]

    def _refuse(self, field: str, found: object, expected: object) -> NoReturn:
        raise invalid("MALFORMED", f"{self.path}: {field}", found, expected)
