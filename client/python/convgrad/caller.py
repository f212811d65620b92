"""Sends a client's calls, repeats them if that may help, and waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from convgrad.client_base import ClientBase, is_unexplained
from convgrad.connections.retries import Attempts
from convgrad.errors import Cancelled
from convgrad.requests import Call

P = ParamSpec("P")
R = TypeVar("R")


class Caller(ClientBase):
    """Sends calls and blocks until they end. Thread-safe."""

    _executor: ThreadPoolExecutor | None = None

    def submit(self, method: Callable[P, R], /, *args: P.args,
               **kwargs: P.kwargs) -> Future[R]:
        """Runs one of the client's methods on another thread and returns its future.

            future = client.submit(client.conv_backward, grad_output, input, weight)
        """
        self.check_process()
        with self._lock:
            if self._closed.is_set():
                raise Cancelled("the client is closed")
            if self._executor is None:
                self._executor = ThreadPoolExecutor(thread_name_prefix=self._thread_names)
            return self._executor.submit(method, *args, **kwargs)

    def start(self, call: Call[Any], seconds: float | None) -> Any:
        """Starts one attempt of a call that has one message as its answer. Returns its
        grpc.Future.

        Errors: Cancelled after close(); what the user's function for the token raises.
        """
        self.check_process()
        return self._start(self._pool.pick(call.target), call, seconds)

    def run(self, call: Call[R]) -> R:
        """Sends a prepared call, and repeats it if that may help. Returns its result."""
        return self.run_somewhere(call)[1]

    def run_somewhere(self, call: Call[R]) -> tuple[str, R]:
        """Does the same as run(); also returns which target answered."""
        self.check_process()
        call = self.placed(call)
        attempts = Attempts(self.deadline_of(call))
        while True:
            attempts.begin()
            slot = self._pool.pick(call.target)
            with self._attempting(slot, call) as failed:
                seconds = attempts.seconds_left()
                if call.message is not None and call.on_start is None:  # needs no future
                    method = self._pool.method(slot, call.method)
                    return slot.target, call.decoded(
                        self._begin(method, call.message, call, seconds))
                rpc = self._start(slot, call, seconds)
                if call.on_start is not None:
                    call.on_start(rpc)
                return slot.target, (self._receive(call, rpc) if call.message is None
                                     else call.decoded(rpc.result()))
            (error,) = failed
            if is_unexplained(error, slot):
                self._explain(error, slot, attempts)
            call, delay = self._after(error, slot, call, attempts)
            if self._closed.wait(delay):
                raise Cancelled("the client was closed") from None

    def at_close(self, end: Callable[[], None]) -> None:
        """Makes close() call `end`."""
        with self._lock:
            self._at_close.append(end)

    def close_connections(self) -> None:
        """Cancels running calls, and closes the connections. Never blocks."""
        self._closed.set()
        for channel in self._pool.close():
            channel.close()

    def close(self) -> None:
        """Cancels running calls (Cancelled), then closes the connections.

        Does nothing in a process that was forked since: the connections are its parent's.
        """
        if not self.is_at_home:
            return
        self.close_connections()
        with self._lock:
            executor, self._executor = self._executor, None
            ends, self._at_close = self._at_close, []
        for end in ends:
            end()
        if executor is not None:
            # A future's callback runs on a thread that can't wait for its own end.
            is_own = threading.current_thread().name.startswith(self._thread_names)
            executor.shutdown(wait=not is_own, cancel_futures=True)

    @property
    def _thread_names(self) -> str:
        """The prefix of the names of submit()'s threads."""
        return f"convgrad-{self.handle}"
