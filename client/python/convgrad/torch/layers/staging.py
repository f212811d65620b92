"""Passes layers' tensors through memory shared with a server on this host.

Copying a call's operands to a region of the client and its results out of it takes less time
than sending them: torch copies with all its threads. Without shared memory everything is sent.
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
from convgrad.errors import ConvgradError, NotFound, ResourceExhausted, Unavailable
from convgrad.region import Region
from convgrad.torch.tensors import to_array, to_tensor

Array = npt.NDArray[Any]

# Smaller calls gain less than it costs to compute their results' shapes first.
_LEAST_BYTES = 2**20
_LEAST_REGION_BYTES = 2**26
# Time after which to ask a server again that had no memory to share.
_REFUSED_SECONDS = 60.0

_CPU = torch.empty(0)
_stages: weakref.WeakKeyDictionary[Client, _Stage] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def method_of(client: Any, name: str) -> Callable[..., Any]:
    """Returns a function that does the same as the client's method `name`, with the call's
    tensors in shared memory if the client's server offers it."""
    method: Callable[..., Any] = getattr(client, name)
    if not isinstance(client, Client) or len(client.targets) != 1:
        return method
    client.check_process()
    with _lock:
        stage = _stages.get(client)
        if stage is None:
            stage = _stages[client] = _Stage()
            client.at_close(stage.close)
    return functools.partial(stage.run, client, method, getattr(operations, name))


class _Stage:
    """The region through which one client's calls pass. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._region: Region | None = None
        self._refused_bytes = math.inf
        self._refused_until = 0.0

    def close(self) -> None:
        """Frees the memory."""
        with self._lock:
            if self._region is not None:
                self._region.close()

    def run(self, client: Client, method: Callable[..., Any], prepare: Callable[..., Any],
            *operands: Any, **keywords: Any) -> Any:
        """Returns the method's result for the operands."""
        size = sum(one.nbytes for one in operands if isinstance(one, np.ndarray))
        if size >= _LEAST_BYTES:
            results = prepare(*operands, **keywords).results
            size += sum(result.byte_size() for result in results.values())
            region = self._region_of(client, size)
            if region is not None:
                found = self._run_in(region, client, method, results, operands, keywords)
                if found is not None:
                    return found
        return method(*operands, **keywords)

    def _run_in(self, region: Region, client: Client, method: Callable[..., Any],
                results: Mapping[str, Any], operands: tuple[Any, ...],
                keywords: dict[str, Any]) -> Any:
        """Does the same as run(); returns None if the region is full or ends meanwhile, or the
        connection to its server was lost."""
        try:
            inside = [_copied(one, region) if isinstance(one, np.ndarray)
                      and not client.shares(one) else one for one in operands]
            out = {name: region.empty(result.shape(), result.dtype)
                   for name, result in results.items()}
        except ResourceExhausted:  # filled by calls of other threads
            return None
        try:
            found = method(*inside, **keywords, out=out)
        except BaseException as error:
            has_ended = not region.is_open
            if not region.is_whole:
                # The memory of a call that was given up can't be used again, so the next call
                # gets a new region. Other threads' tensors in this one are sent.
                region.close()
            # Otherwise the connection was lost, and the server may still write to the region.
            if isinstance(error, NotFound if has_ended else Unavailable):
                return None
            raise
        copies = {name: to_array(to_tensor(array, _CPU).clone()) for name, array in out.items()}
        # The copies are valid only if the region still exists now.
        return found._replace(**copies) if region.is_open else None

    def _region_of(self, client: Client, size: int) -> Region | None:
        """Returns a region that has room for the call; None if the server offers none."""
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
    """Returns a copy in the region with the same order of axes in memory."""
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    copy = region.empty([array.shape[axis] for axis in order], array.dtype)
    copy = copy.transpose(np.argsort(order))
    to_tensor(copy, _CPU).copy_(to_tensor(array, _CPU))
    return copy
