"""A network's changes that nobody waits for."""

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
    """Sends changes in order; what one failed with, the next call raises. One thread's."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._sent: collections.deque[Future[Any]] = collections.deque()

    def submit(self, method: Callable[..., R], *args: Any, **kwargs: Any) -> Future[R]:
        self.check()
        return self.session.submit(method, *args, **kwargs)

    def send(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Submits, and has a later call find out what became of it."""
        self._sent.append(self.submit(method, *args, **kwargs))

    def call(self, method: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Submits and waits."""
        return self.result(self.submit(method, *args, **kwargs))

    def result(self, future: Future[R]) -> R:
        """Waits for it; where it came behind one that failed, raises what that failed with."""
        try:
            return future.result()
        except ConvgradError as error:
            earlier = self._failure()
            if earlier is None or not isinstance(error, EpochEnded):
                raise
            raise earlier from None

    def check(self) -> None:
        """Raises what the first change failed with that has failed since the last check."""
        failure = self._failure()
        if failure is not None:
            raise failure

    def _failure(self) -> BaseException | None:
        failure: BaseException | None = None
        while self._sent and self._sent[0].done():
            error = self._sent.popleft().exception()
            # What came behind one that failed says no more than that.
            if failure is None or isinstance(failure, EpochEnded):
                failure = error or failure
        return failure


def mapped(future: Future[R], function: Callable[[R], S],
           explain: Callable[[BaseException], None]) -> Future[S]:
    """Returns the future of what `function` makes of its result, or of its error once
    `explain` has added to it. Neither may wait."""
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
