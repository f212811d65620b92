"""What one session keeps for a model: tensors by their memory, and when they go."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from convgrad.client import Client
from convgrad.errors import (
    ConvgradError,
    EpochEnded,
    NotFound,
    ResourceExhausted,
    SessionTakenOver,
)
from convgrad.events import EventThread
from convgrad.kept import Kept
from convgrad.sessions import Session
from convgrad.torch.endings import end_with
from convgrad.transfers import put_of

Tensor = torch.Tensor

# A process that is gone leaves its tensors on the server for so long.
# What quotas count beside a tensor's bytes: its entry with its name, and the reply of its
# put until that is acknowledged.
_ENTRY_BYTES = 640 + 32
_REPLY_BYTES = 1024
_LEASE_SECONDS = 60.0
# What is freed within this time is dropped by one call.
_DROP_SECONDS = 0.05
_LAYOUTS = {"input": "NCX", "weight": "OIX"}
# Of a session, where the tensors that a call names aren't what they were.
LOST = (EpochEnded, NotFound, SessionTakenOver)


@dataclass
class _Entry:
    """A kept tensor. Guarded by its keeper's lock."""

    kept: Kept
    put: Future[None]
    size: int
    version: int
    checksum: int | None
    """Of a weight: changes by way of `.data` or NumPy aren't in torch's count."""
    tensor: weakref.ref[Tensor]

    def is_there(self) -> bool:
        return not (self.put.done() and self.put.exception())


class TensorStore:
    """Puts tensors, finds them again, and drops what nothing refers to. Thread-safe.

    At most `limit_bytes` are kept, 0: what the server lets a session have; beyond it goes
    what wasn't used for longest.
    """

    def __init__(self, client: Client, limit_bytes: int) -> None:
        self._client = client
        self._quota_bytes = limit_bytes
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._sessions: list[Session] = []  # one, or none
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._bytes = 0
        self._dead: list[_Entry] = []  # still to be dropped
        self._drops: list[tuple[Future[None], list[_Entry]]] = []
        self._numbers = itertools.count()
        self._thread = EventThread("convgrad-keeper")
        end_with(self, self._sessions, self._thread)

    def find(self, role: str, tensor: Tensor, array: npt.NDArray[Any],
             is_forward: bool) -> tuple[Session, Kept] | None:
        """Returns where the tensor is kept; a forward's is put where it isn't yet."""
        key = (role, array.dtype, tensor.data_ptr(), tensor.dtype, tensor.shape,
               tensor.stride())
        checksum = zlib.crc32(_memory(array)) if role == "weight" and is_forward else None
        with self._lock:
            self._forget_lost_session()
            entry = self._entries.get(key)
            if entry is not None and not self._is_current(entry, tensor, checksum, is_forward):
                self._remove(key)
                entry = None
            if entry is not None:
                self._entries.move_to_end(key)
            elif not is_forward:
                return None
            else:
                entry = self._put(role, tensor, array, checksum)
                if entry is None:
                    return None
                self._entries[key] = entry
                self._bytes += entry.size
            return self._sessions[0], entry.kept

    def forget_lost(self) -> None:
        """Learns which tensors never came to the server, or all of them if it lost them."""
        with self._lock:
            self._forget_lost_session()
            for key, entry in list(self._entries.items()):
                if entry.put.done() and isinstance(entry.put.exception(), ResourceExhausted):
                    self._limit_bytes -= entry.size
                if not entry.is_there():
                    self._remove(key)

    def _forget_lost_session(self) -> None:
        if self._sessions and self._sessions[0].is_lost:
            self._sessions.clear()
            self._entries.clear()
            self._dead, self._drops, self._bytes = [], [], 0

    def _is_current(self, entry: _Entry, tensor: Tensor, checksum: int | None,
                    is_forward: bool) -> bool:
        if (entry.tensor() is None or entry.version != tensor._version
                or not entry.is_there()):
            return False
        # What no operation of torch's has made may be memory that others write to.
        source = tensor if tensor._base is None else tensor._base
        is_ours = checksum is not None or not is_forward or source.grad_fn is not None
        return is_ours and checksum in (None, entry.checksum)

    def _put(self, role: str, tensor: Tensor, array: npt.NDArray[Any],
             checksum: int | None) -> _Entry | None:
        session = self._open()
        size = _kept_size(array.nbytes)
        if not self._make_room(size):
            return None
        name = f"{role} {next(self._numbers)}"
        try:
            put = session.submit(session.put, name, array, layout=_LAYOUTS[role])
        except LOST:
            return None
        return _Entry(
            Kept(name, put_of(name, array, _LAYOUTS[role]).descriptor), put, size,
            tensor._version, checksum,
            weakref.ref(tensor, functools.partial(_drop_soon, weakref.ref(self))))

    def _open(self) -> Session:
        if not self._sessions:
            self._sessions.append(self._client.session(lease=_LEASE_SECONDS,
                                                       quota=self._quota_bytes))
            self._limit_bytes = self._sessions[0].quota_bytes - _REPLY_BYTES
        return self._sessions[0]

    def _make_room(self, size: int) -> bool:
        """Drops what is dead, then what wasn't used for longest."""
        if self._bytes + size > self._limit_bytes:
            self._collect()
        while self._entries and size <= self._limit_bytes < self._bytes + size:
            self._remove(next(iter(self._entries)))
        self._send_drops()
        undropped = sum(entry.size for entry in self._dead)
        return self._bytes + undropped + size <= self._limit_bytes

    def _remove(self, key: Hashable) -> None:
        entry = self._entries.pop(key)
        self._bytes -= entry.size
        self._dead.append(entry)

    def _collect(self) -> None:
        for key, entry in list(self._entries.items()):
            if entry.tensor() is None:
                self._remove(key)

    def _send_drops(self) -> None:
        """Drops what is dead; what isn't known to be there yet waits for the next time."""
        for future, entries in self._drops:
            if future.done() and future.exception():
                self._dead += entries
        self._drops = [(future, entries) for future, entries in self._drops
                       if not future.done()]
        there = [entry for entry in self._dead if entry.put.done() and entry.is_there()]
        self._dead = [entry for entry in self._dead if not entry.put.done()]
        if there and self._sessions and not self._sessions[0].is_lost:
            session, names = self._sessions[0], [entry.kept.name for entry in there]
            self._drops.append((session.submit(session.drop, *names), there))

    def drop_later(self) -> None:
        """May be called with any lock held."""
        self._thread.later(_DROP_SECONDS, functools.partial(_drop_dead, weakref.ref(self)))

    def drop_dead(self) -> None:
        with self._lock, contextlib.suppress(ConvgradError):
            self._collect()
            self._send_drops()


def _drop_soon(store: weakref.ref[TensorStore], _: object) -> None:
    found = store()
    if found is not None:
        found.drop_later()


def _drop_dead(store: weakref.ref[TensorStore]) -> None:
    found = store()
    if found is not None:
        found.drop_dead()


def _kept_size(size: int) -> int:
    """Returns what quotas count: as BufferPool::CapacityFor in the server, and the entry."""
    step = max(64, 2 ** (size.bit_length() - 1) // 8)
    return -(-size // step) * step + _ENTRY_BYTES


def _memory(array: npt.NDArray[Any]) -> Any:
    """Returns the array's bytes, in whatever order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
