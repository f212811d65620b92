"""Layers' tensors by way of memory that is shared with a server on this host.

A call's operands are copied into a region of the client's and its results out of it, which
takes less time than to send them. Where there is no such memory everything is sent.
"""

from __future__ import annotations

import functools
import math
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from convgrad import operations
from convgrad.client import Client
from convgrad.errors import ConvgradError, NotFound, ResourceExhausted
from convgrad.region import Region
from convgrad.torch.tensors import to_tensor

Array = npt.NDArray[Any]

# Smaller calls gain less than what it takes to work their results' shapes out first.
_LEAST_BYTES = 2**20
_LEAST_REGION_BYTES = 2**26
# A server that had no memory to share is asked again after this time.
_REFUSED_SECONDS = 60.0

_CPU = torch.empty(0)
_stages: weakref.WeakKeyDictionary[Client, _Stage] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def method_of(client: Any, name: str) -> Callable[..., Any]:
    """Returns a function that does what the client's method `name` does, with the call's
    tensors in shared memory where the client's server offers that."""
    method: Callable[..., Any] = getattr(client, name)
    if not isinstance(client, Client) or len(client.targets) != 1:
        return method
    with _lock:
        stage = _stages.get(client)
        if stage is None:
            stage = _stages[client] = _Stage()
            client.at_close(stage.close)
    return functools.partial(stage.run, client, method, getattr(operations, name))


class _Stage:
    """The region through which one client's calls go. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._region: Region | None = None
        self._refused_bytes = math.inf
        self._refused_until = 0.0

    def close(self) -> None:
        """Gives the memory back."""
        with self._lock:
            if self._region is not None:
                self._region.close()

    def run(self, client: Client, method: Callable[..., Any], prepare: Callable[..., Any],
            *operands: Any, **keywords: Any) -> Any:
        """Returns what the method does of the operands."""
        size = sum(one.nbytes for one in operands if isinstance(one, np.ndarray))
        if size >= _LEAST_BYTES:
            results = prepare(*operands, **keywords).results
            size += sum(result.byte_size() or 0 for result in results.values())
            region = self._region_of(client, size)
            if region is not None:
                found = self._run_in(region, client, method, results, operands, keywords)
                if found is not None:
                    return found
        return method(*operands, **keywords)

    def _run_in(self, region: Region, client: Client, method: Callable[..., Any],
                results: Mapping[str, Any], operands: tuple[Any, ...],
                keywords: dict[str, Any]) -> Any:
        """As run(); returns None where the region is full, or ends meanwhile."""
        try:
            inside = [_copied(one, region) if isinstance(one, np.ndarray)
                      and not client.shares(one) else one for one in operands]
            out = {name: region.empty(result.shape(), result.dtype)
                   for name, result in results.items()}
        except ResourceExhausted:  # by calls of other threads
            return None
        try:
            found = method(*inside, **keywords, out=out)
        except BaseException as error:
            has_ended = not region.is_open
            if not region.is_whole:
                # A call that was given up leaves memory that can't be used again: the next
                # one gets a new region. What other threads have in this one is sent.
                region.close()
            if isinstance(error, NotFound) and has_ended:
                return None
            raise
        copies = {name: _fresh(array) for name, array in out.items()}
        # What was copied is the result if the region was there until then.
        return found._replace(**copies) if region.is_open else None

    def _region_of(self, client: Client, size: int) -> Region | None:
        """Returns a region that such a call fits in, None where the server offers none."""
        with self._lock:
            region = self._region
            if region is not None and region.nbytes > size and region.is_open:
                return region
            if size >= self._refused_bytes and time.monotonic() < self._refused_until:
                return None
            try:
                self._region = client.region(max(_LEAST_REGION_BYTES, 1 << size.bit_length()))
            except ConvgradError:
                self._refused_bytes = size
                self._refused_until = time.monotonic() + _REFUSED_SECONDS
                return None
            return self._region


def _copied(array: Array, region: Region) -> Array:
    """Returns a copy in the region, its axes in the same order in memory."""
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    copy = region.empty([array.shape[axis] for axis in order], array.dtype)
    copy = copy.transpose(np.argsort(order))
    _copy(copy, array)
    return copy


def _fresh(array: Array) -> Array:
    copy = np.empty_like(array)
    _copy(copy, array)
    return copy


def _copy(target: Array, source: Array) -> None:
    """Copies an array; torch does so with all its threads."""
    to_tensor(target, _CPU).copy_(to_tensor(source, _CPU))
