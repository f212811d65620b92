"""Shares memory with a server on this host; arrays in it aren't sent.

proto/region_handshake.h defines the side socket's protocol.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import mmap
import operator
import os
import socket
import struct
import threading
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

import grpc
import numpy as np
import numpy.typing as npt

from convgrad import layouts
from convgrad.arena import Arena, rounded
from convgrad.connections.processes import Home
from convgrad.errors import (
    Internal,
    NotFound,
    ResourceExhausted,
    Unavailable,
    from_rpc,
    invalid,
)
from convgrad.v1 import tensor_pb2

_MAGIC = int.from_bytes(b"CGREGIO1", "little")
_REQUEST = struct.Struct("<Qq")  # magic, bytes
_REPLY = struct.Struct("<QII16s224s")  # magic, status, reserved, id, message
# The server zeroes gigabytes per second.
_REPLY_SECONDS = 60.0

_regions: WeakSet[Region] = WeakSet()


def _close_connections() -> None:
    """Closes a forked process's copies of the connections, so that the regions end with those
    of its parent."""
    for region in _regions:
        region._lock = threading.RLock()  # a thread that the process lacks may hold the other
        region._connection.close()


os.register_at_fork(after_in_child=_close_connections)


class Region:
    """Memory shared with one server. Client.region() makes one. Thread-safe.

        with client.region(2**28) as region:
            x, y = region.empty((16, 64, 56, 56)), region.empty((16, 256, 56, 56))
            x[...] = images
            client.conv_forward(x, w, out={"output": y})

    The client doesn't send operands that lie in the region. The server writes results directly
    to arrays of the region that are named in `out`. Other arrays of the same calls are sent as
    usual.

    The contents are lost when the region ends: at close(), or with the server. Its arrays then
    contain zeros, and calls that name them raise NotFound.
    """

    def __init__(self, address: str, nbytes: int) -> None:
        """Requests `nbytes` zeroed bytes from the side socket at `address`, "unix:PATH".

        Errors: InvalidArgument for an invalid number or address; Unavailable if no server
        listens there; the server's, e.g. ResourceExhausted.
        """
        if not isinstance(nbytes, (int, np.integer)) or not 64 <= nbytes < 2**63:
            raise invalid("OUT_OF_RANGE", "region.nbytes", nbytes,
                          "an integer of at least 64, below 2^63")
        if not address.startswith("unix:"):
            raise invalid("OUT_OF_RANGE", "region.address", f"'{address}'",
                          "unix:PATH of a server's --regions_listen")
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._id, memory = _handshake(self._connection, address, nbytes)
        except BaseException:
            self._connection.close()
            raise
        self._connection.setblocking(False)
        self._bytes = np.frombuffer(memory, np.uint8)
        self.nbytes = self._bytes.nbytes
        self._begin = _address_of(self._bytes)
        self._arena = Arena(nbytes)
        self._held: list[object] = []
        # Reentrant, because a garbage collector that ends a session may call hold().
        self._lock = threading.RLock()
        self._home = Home()
        self._home.settle()
        _regions.add(self)

    @property
    def is_open(self) -> bool:
        """Whether the region exists, here and on the server."""
        with self._lock, contextlib.suppress(OSError):
            try:
                # The server sends nothing more; readable data means that it closed the
                # connection.
                self._connection.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return True
        return False

    def empty(self, shape: int | Iterable[int],
              dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        """Returns an uninitialized array in the region, aligned to 64 bytes.

        `dtype` is a tensor's, by NumPy's or the contract's name ("bf16"). The bytes become free
        once no array and no tensor refers to them; torch.from_numpy shares them.

        Errors: ResourceExhausted if no free range is large enough; FailedPrecondition in a
        process that was forked since, because its parent hands out the same bytes;
        InvalidArgument.
        """
        self._home.check()
        known = layouts.KEPT_DTYPES
        wanted = known[layouts.name_of_dtype(dtype, "dtype", known)]
        dims = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
        if min(dims, default=0) < 0:
            raise invalid("OUT_OF_RANGE", "shape", layouts.text_of(dims), "extents from 0 on")
        size = math.prod(dims) * wanted.itemsize
        if size == 0:
            return np.empty(dims, wanted)
        at = self._arena.take(size)
        if at is None:
            raise ResourceExhausted.of(
                "region", f"{size} bytes wanted", f"at most {self._arena.largest()} of "
                f"{self.nbytes}, which are free in one piece")
        return np.asarray(_Block(self, at, size)).view(wanted).reshape(dims)

    def range_of(self, array: npt.NDArray[Any]) -> tensor_pb2.Tensor.Region | None:
        """Returns the place of a C-contiguous array; None unless all of it is in the region."""
        begin = _address_of(array) - self._begin
        if array.nbytes == 0 or begin < 0 or begin + array.nbytes > self.nbytes:
            return None
        return tensor_pb2.Tensor.Region(region_id=self._id, byte_offset=begin,
                                        byte_length=array.nbytes)

    @property
    def is_whole(self) -> bool:
        """Whether all of the region can be allocated, because hold() was never called."""
        with self._lock:
            return not self._held

    def hold(self, arrays: Iterable[object]) -> None:
        """Never frees these bytes, because a call that was given up may still use them."""
        with self._lock:
            self._held.extend(arrays)

    def close(self) -> None:
        """Ends the region. Its arrays keep their memory but lose the contents."""
        with self._lock:
            self._connection.close()
            self._held.clear()

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Block:
    """A piece of a region; freed once no array refers to it."""

    def __init__(self, region: Region, at: int, size: int) -> None:
        self._region, self._at, self._size = region, at, size
        self.__array_interface__ = {
            "version": 3, "typestr": "|u1", "shape": (size,),
            "data": (region._begin + at, False)}

    def __del__(self) -> None:
        self._region._arena.give_back(self._at, rounded(self._size))


def ended(field: str) -> NotFound:
    """Returns the error for an array in a region that isn't open."""
    return NotFound.of(
        field, "an array of a region that was closed, or whose server has ended",
        "one of an open region, what this one held is gone")


def _address_of(array: npt.NDArray[Any]) -> int:
    return array.__array_interface__["data"][0]


def _handshake(connection: socket.socket, address: str, nbytes: int) -> tuple[bytes, mmap.mmap]:
    """Returns the region's id and memory."""
    connection.settimeout(_REPLY_SECONDS)
    try:
        connection.connect(address.removeprefix("unix:"))
        with contextlib.suppress(BrokenPipeError):  # the server refused already
            connection.sendall(_REQUEST.pack(_MAGIC, nbytes))
        reply, files = _receive_reply(connection)
    except OSError as error:
        raise Unavailable.of("region", f"'{address}': {error.strerror or error}",
                             "the side socket of a server on this host") from None
    try:
        return _memory_of(reply, files, nbytes)
    finally:
        for file in files:
            os.close(file)


def _receive_reply(connection: socket.socket) -> tuple[bytes, list[int]]:
    reply, files = b"", []
    while len(reply) < _REPLY.size:
        part, received, _, _ = socket.recv_fds(connection, _REPLY.size - len(reply), 1)
        files += received
        if not part:
            break
        reply += part
    return reply, files


def _memory_of(reply: bytes, files: list[int], nbytes: int) -> tuple[bytes, mmap.mmap]:
    if len(reply) != _REPLY.size or _REPLY.unpack(reply)[0] != _MAGIC:
        raise Internal("region: found no reply of a convgrad-server")
    _, status, _, name, text = _REPLY.unpack(reply)
    if status != 0:
        code = next((c for c in grpc.StatusCode if c.value[0] == status),
                    grpc.StatusCode.UNKNOWN)
        raise from_rpc(code, text.partition(b"\0")[0].decode("utf-8", "replace"), None)
    # The seal guarantees that the server can't shrink the memory.
    if (len(files) != 1 or os.fstat(files[0]).st_size != nbytes
            or not fcntl.fcntl(files[0], fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK):
        raise Internal("region: found memory of another size, or not sealed")
    try:
        # mmap.MAP_POPULATE exists since Python 3.10; all pages exist already.
        return name, mmap.mmap(files[0], nbytes, mmap.MAP_SHARED | mmap.MAP_POPULATE)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise ResourceExhausted.of("region", "no memory to map", f"{nbytes} bytes") from None
