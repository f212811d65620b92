"""Makes unary calls with the native module, or with grpcio if the module is missing.

The classes here have grpcio's interface of channels and futures, as far as clients use it. The
native module sends a request from the arrays, and copies a response once, to its arrays.
"""

from __future__ import annotations

import atexit
import importlib
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import grpc

from convgrad.connections.processes import Home
from convgrad.wire import Message, Response, parts_of

_VARIABLE = "CONVGRAD_TRANSPORT"


def _import_native() -> Any:
    """Returns the native module; None if it is missing or disabled."""
    wanted = os.environ.get(_VARIABLE, "")
    if wanted not in ("", "native", "python"):
        raise ImportError(f"{_VARIABLE}: found {wanted!r}, expected native or python")
    if wanted == "python":
        return None
    try:
        return importlib.import_module("convgrad._native")
    except ImportError:
        if wanted:
            raise
        return None


_native = _import_native()
NATIVE = _native is not None
# Owner of gRPC's threads and epoll set, which all channels of the module share.
_home = Home()

_CODES = {code.value[0]: code for code in grpc.StatusCode}
Metadata = Sequence[tuple[str, "str | bytes"]]
Pems = tuple[bytes, bytes, bytes]


class NativeError(grpc.RpcError):  # type: ignore[misc]
    """The error with which a call of the native module ended, with grpcio's interface."""

    def __init__(self, call: Any) -> None:
        super().__init__(call.details)
        self._call = call

    def code(self) -> grpc.StatusCode:
        return _CODES.get(self._call.code, grpc.StatusCode.UNKNOWN)

    def details(self) -> str:
        return self._call.details

    def trailing_metadata(self) -> Metadata:
        return [(key, value if key.endswith("-bin") else value.decode("latin-1"))
                for key, value in self._call.trailing_metadata]


def _response_of(call: Any) -> Response:
    """Returns the response of a finished call, or raises NativeError."""
    if call.code != 0:
        raise NativeError(call)
    head, payloads = call.take_reply()
    return (head, payloads) if payloads else head


class NativeFuture:
    """A running call with the interface of grpc.Future. Thread-safe."""

    def __init__(self) -> None:
        self._call: Any = None
        self._begun = threading.Event()
        self._is_cancelled = False
        # Set at the end of the call; carries no result.
        self._over: Future[None] = Future()

    def begin(self, call: Any) -> None:
        self._call = call  # None if Ctrl-C came while it was started
        self._begun.set()
        if self._is_cancelled:
            call.cancel()

    def end(self) -> None:
        self._begun.wait()  # the call may end before begin()
        if call := self._call:
            call.wait()
        self._over.set_result(None)

    def cancel(self) -> bool:
        self._is_cancelled |= not self._over.done()
        if self._call is not None:
            self._call.cancel()
        return self._is_cancelled

    def result(self) -> Response:
        self._over.result()
        if self._is_cancelled and self._call.code == grpc.StatusCode.CANCELLED.value[0]:
            raise grpc.FutureCancelledError
        return _response_of(self._call)

    def code(self) -> grpc.StatusCode:
        self._over.result()
        return NativeError(self._call).code()

    def details(self) -> str:
        self._over.result()
        return self._call.details

    def trailing_metadata(self) -> Metadata:
        self._over.result()
        return NativeError(self._call).trailing_metadata()

    def add_done_callback(self, callback: Callable[[NativeFuture], None]) -> None:
        """Calls `callback` at the end, on the thread of all futures. It must not block."""
        self._over.add_done_callback(lambda _: callback(self))


class _Completions:
    """Runs the thread that completes futures. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._futures: dict[int, NativeFuture] = {}
        self._thread: threading.Thread | None = None

    def add(self, future: NativeFuture) -> int:
        """Returns the notice number that completes the future."""
        with self._lock:
            notice = next(self._numbers)
            self._futures[notice] = future
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="convgrad-calls",
                                                daemon=True)
                self._thread.start()
            return notice

    def drop(self, notice: int) -> None:
        with self._lock:
            self._futures.pop(notice, None)

    def _run(self) -> None:
        while notice := _native.next_over():
            self._end(notice)

    def _end(self, notice: int) -> None:
        # A separate function: _run()'s variables would keep the last call alive.
        with self._lock:
            future = self._futures.pop(notice, None)
        if future is not None:
            future.end()

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and _home.is_here:
            _native.wake()
            thread.join()


_completions = _Completions()
# Stops the thread: at exit the interpreter kills threads that request its lock, here inside the
# native module. Registered before the handlers of callers, which may wait for calls.
atexit.register(_completions.stop)


class NativeMethod:
    """A method of a native channel, with the interface of grpcio's multi-callables."""

    def __init__(self, channel: Any, path: str) -> None:
        self._channel = channel
        self._path = path

    def __call__(self, message: Message, timeout: float | None = None,
                 metadata: Metadata = ()) -> Response:
        """Returns the response. Requires: the message's arrays don't change until then.

        Raises ValueError if the channel is closed, as grpcio does.
        """
        call = self._start(message, timeout, metadata, 0)
        try:
            call.wait()
        except BaseException:  # Ctrl-C
            call.cancel()
            raise
        return _response_of(call)

    def future(self, message: Message, timeout: float | None = None,
               metadata: Metadata = ()) -> NativeFuture:
        """Returns a future. Requires: the message's arrays don't change until it is done."""
        future = NativeFuture()
        notice = _completions.add(future)
        try:
            future.begin(self._start(message, timeout, metadata, notice))
        except BaseException:
            _completions.drop(notice)
            future.begin(None)  # the thread of all futures may wait for it
            raise
        return future

    def _start(self, message: Message, timeout: float | None, metadata: Metadata,
               notice: int) -> Any:
        return self._channel.start(
            self._path, parts_of(message), _checked(metadata), timeout, notice)


class NativeChannel:
    """A connection whose unary calls use the native module."""

    def __init__(self, target: str, options: Sequence[tuple[str, int | str]],
                 pems: Pems | None) -> None:
        _home.settle()
        self._channel = _native.Channel(target, list(options), pems)

    def unary_unary(self, path: str, request_serializer: object = None) -> Any:
        """Ignores `request_serializer`, because the native module sends a message in parts."""
        return NativeMethod(self._channel, path)

    def close(self) -> None:
        self._channel.close()


def _checked(metadata: Metadata) -> list[tuple[str, bytes]]:
    """Returns the pairs as bytes. Raises ValueError where gRPC's C++ library would abort."""
    pairs = []
    for key, value in metadata:
        text = value if isinstance(value, bytes) else value.encode()
        if not key.endswith("-bin") and not (
                text.isascii() and text.decode().isprintable()):
            raise ValueError(f"metadata was invalid: {key}")
        pairs.append((key, text))
    return pairs
