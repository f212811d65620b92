"""Sends a network's changes without waiting for the server, and transfers its tensors."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np
import torch

from convgrad.errors import ConvgradError, EpochEnded, FailedPrecondition
from convgrad.requests import MAX_PAYLOADS
from convgrad.sessions.session import Session
from convgrad.torch.tensors import to_array, to_tensor

R = TypeVar("R")
S = TypeVar("S")

# Limit on the tensors in one message, unless a single tensor is larger.
_CHUNK_BYTES = 32 * 2**20


class Pipeline:
    """Sends changes in order. If one fails, the next call raises its error. Owned by one
    thread."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._sent: collections.deque[Future[Any]] = collections.deque()

    def submit(self, method: Callable[..., R], *args: Any, **kwargs: Any) -> Future[R]:
        self.check()
        return self.session.submit(method, *args, **kwargs)

    def send(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Submits a change. If it fails, a later call raises its error."""
        self._sent.append(self.submit(method, *args, **kwargs))

    def call(self, method: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Submits a call, waits and returns its result."""
        return self.result(self.submit(method, *args, **kwargs))

    def result(self, future: Future[R]) -> R:
        """Waits for the result. If the call failed only because an earlier change failed,
        raises the error of the earlier change."""
        try:
            return future.result()
        except ConvgradError as error:
            earlier = self._failure()
            if earlier is None or not isinstance(error, EpochEnded):
                raise
            raise earlier from None

    def check(self) -> None:
        """Raises the error of the first change that has failed since the last check."""
        failure = self._failure()
        if failure is not None:
            raise failure

    def fetch(self, names: Iterable[str]) -> dict[str, torch.Tensor]:
        """Returns kept tensors by name, as of all changes sent so far.

        Errors: FailedPrecondition for a tensor that the session lacks, as after the restore of
        a snapshot of an earlier model.
        """
        names, kept = list(names), self.call(self.session.tensors)
        lacking = [name for name in names if name not in kept]
        if lacking:
            raise FailedPrecondition.of(
                "session", f"no tensor '{lacking[0]}', which the model has",
                "a state of the model as it is now, or the modules of the snapshot that was "
                "restored")
        futures = [self.submit(self.session.get, chunk)
                   for chunk in _chunks({name: kept[name].kept_bytes for name in names})]
        return {name: to_tensor(array, torch.empty(0)) for future in futures
                for name, array in future.result().items()}

    def put(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Puts tensors under these names, and waits."""
        arrays = {name: np.asarray(to_array(
            tensor.float() if tensor.dtype == torch.bool else tensor), order="C")
                  for name, tensor in tensors.items()}
        futures = [self.submit(self.session.put, {name: arrays[name] for name in chunk})
                   for chunk in _chunks({name: a.nbytes for name, a in arrays.items()})]
        for future in futures:
            future.result()

    def _failure(self) -> BaseException | None:
        failure: BaseException | None = None
        while self._sent and self._sent[0].done():
            error = self._sent.popleft().exception()
            # An EpochEnded only says that an earlier change failed; keep another error.
            if failure is None or isinstance(failure, EpochEnded):
                failure = error or failure
        return failure


def mapped(future: Future[R], function: Callable[[R], S],
           explain: Callable[[BaseException], None]) -> Future[S]:
    """Returns a future of `function` applied to the result. `explain` may add to an error.
    Neither function may block."""
    found: Future[S] = Future()
    found.set_running_or_notify_cancel()

    def finish(done: Future[R]) -> None:
        try:
            found.set_result(function(done.result()))
        except BaseException as error:
            explain(error)
            found.set_exception(error)

    future.add_done_callback(finish)
    return found


def _chunks(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yields lists of names whose tensors together fit a message of moderate size."""
    chunk: list[str] = []
    total = 0
    for name, size in sizes.items():
        if chunk and total + size > _CHUNK_BYTES or len(chunk) == MAX_PAYLOADS:
            yield chunk
            chunk, total = [], 0
        chunk.append(name)
        total += size
    if chunk:
        yield chunk
