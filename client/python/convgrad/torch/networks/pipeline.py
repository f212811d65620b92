"""Sends a network's changes without waiting for the server."""

from __future__ import annotations

import collections
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from convgrad.errors import ConvgradError, EpochEnded
from convgrad.sessions.session import Session

R = TypeVar("R")
S = TypeVar("S")


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
