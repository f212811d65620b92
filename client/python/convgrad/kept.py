"""Names, encodes and decodes tensors that a session keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad import layouts
from convgrad.errors import NotFound, bad_reply, invalid
from convgrad.layouts import KEPT_DTYPES, Array, Descriptor, Dims
from convgrad.v1 import session_pb2, tensor_pb2
from convgrad.wire import Payload, receive


@dataclass(frozen=True)
class Kept:
    """A tensor on the server, to pass instead of an array."""

    name: str
    descriptor: Descriptor
    version: int = 0
    """Number of the change that wrote it; 0: unknown."""
    kept_bytes: int = 0
    """Bytes that it counts in the session's quota; 0: unknown."""

    @property
    def shape(self) -> Dims:
        """The shape of an array with its layout."""
        return self.descriptor.shape()

    @property
    def dtype(self) -> np.dtype[Any]:
        return KEPT_DTYPES[self.descriptor.dtype]


Operand = Array | Kept


def operand_of(tensor: npt.ArrayLike | Kept) -> Operand:
    """Returns an operand. Raises InvalidArgument for a name, which only sessions accept."""
    if isinstance(tensor, str):
        raise invalid("MISSING", "session", f"the name '{tensor}' in a call of none",
                      "an array, or the call of a session")
    return tensor if isinstance(tensor, Kept) else np.asarray(tensor)


def describe(descriptor: Descriptor, tensor: tensor_pb2.Tensor) -> None:
    """Writes the descriptor to `tensor`, without a source."""
    tensor.dtype = layouts.wire_dtype(descriptor.dtype)
    tensor.layout = layouts.wire_layout(descriptor.layout, "layout")
    tensor.c0 = descriptor.c0
    tensor.dims.extend(descriptor.dims)


def descriptor_of(tensor: tensor_pb2.Tensor) -> Descriptor:
    """Returns the descriptor in `tensor`."""
    dtype = tensor_pb2.DataType.Name(tensor.dtype).removeprefix("DATA_TYPE_").lower()
    layout = tensor_pb2.Layout.Name(tensor.layout).removeprefix("LAYOUT_")
    if dtype not in KEPT_DTYPES:
        raise bad_reply("dtype", dtype, ", ".join(KEPT_DTYPES))
    return Descriptor(dtype, layout, tuple(tensor.dims),
                      tensor.c0 if layouts.is_blocked(layout) else 0)


def empty_array(descriptor: Descriptor) -> Array:
    """Returns an uninitialized array for a tensor's bytes."""
    return np.empty(descriptor.shape(), KEPT_DTYPES[descriptor.dtype])


def payload_of(name: str, tensor: tensor_pb2.Tensor, wanted: Descriptor,
               payloads: Sequence[memoryview | Payload]) -> memoryview | Payload:
    """Returns the bytes of a reply's tensor. Raises Internal if their number is wrong."""
    index = tensor.inline.payload_index
    if not tensor.HasField("inline") or not 0 <= index < len(payloads):
        raise bad_reply(name, "no payload", "its bytes inline")
    payload, expected = payloads[index], wanted.byte_size()
    if payload.nbytes != expected:
        raise bad_reply(name, f"{payload.nbytes} bytes", expected)
    return payload


def array_of(name: str, tensor: tensor_pb2.Tensor,
             payloads: Sequence[memoryview | Payload]) -> Array:
    """Returns a tensor of a reply as a new array."""
    descriptor = descriptor_of(tensor)
    payload = payload_of(name, tensor, descriptor, payloads)
    array = empty_array(descriptor)
    receive(payload, array)
    return array


def find(name: str, kept: Mapping[str, Kept]) -> Kept:
    """Returns the tensor of this name. Errors: NotFound."""
    if name not in kept:
        raise NotFound.of("operation.operands", f"'{name}', which the session doesn't keep",
                          "the name of a kept tensor")
    return kept[name]


def listed_tensors(response: bytes) -> dict[str, Kept]:
    """Returns the tensors in a ListTensorsResponse by name."""
    return {info.name: Kept(info.name, descriptor_of(info.tensor), info.version,
                            info.kept_bytes)
            for info in session_pb2.ListTensorsResponse.FromString(response).tensors}
