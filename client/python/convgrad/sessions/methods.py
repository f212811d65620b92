"""Makes a session's methods from functions that prepare calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from convgrad.layouts import Descriptor
from convgrad.problem import OPERANDS
from convgrad.requests import Call
from convgrad.streams import Stream
from convgrad.tracebacks import short_traceback
from convgrad.wire import LentMessage, joined

R = TypeVar("R")


class Owner(Protocol):
    """The session that a method belongs to."""

    def check_process(self) -> None: ...

    def _perform(self, call: Call[R]) -> R: ...

    def _operand(self, tensor: Any) -> Any: ...

    def _remember(self, descriptors: Mapping[str, Descriptor]) -> None: ...


def method(prepare: Callable[..., Call[R]]) -> Callable[..., R]:
    """Makes a method that performs the call that `prepare` returns."""

    @short_traceback
    @functools.wraps(prepare)
    def performed(self: Owner, /, *args: Any, **kwargs: Any) -> R:
        self.check_process()
        return self._perform(prepare(self, *args, **kwargs))

    performed.prepare = prepare  # type: ignore[attr-defined]
    return performed


def operation(prepare: Callable[..., Call[R]]) -> Callable[..., R]:
    """Makes a method of an operation that accepts names of kept tensors for arrays."""

    @functools.wraps(prepare)
    def named(self: Owner, /, *args: Any, **kwargs: Any) -> Call[R]:
        operands = {name: self._operand(kwargs.pop(name))
                    for name in OPERANDS if name in kwargs}
        call = prepare(*map(self._operand, args), **operands, **kwargs)
        self._remember(call.kept_results)
        return call

    return method(named)


def plain(prepare: Callable[..., Call[R]]) -> Callable[..., R]:
    """Makes a method of a call that doesn't depend on the session."""

    @functools.wraps(prepare)
    def alone(self: Owner, /, *args: Any, **kwargs: Any) -> Call[R]:
        return prepare(*args, **kwargs)

    return method(alone)


def with_own_bytes(call: Call[R]) -> Call[R]:
    """Returns the call with copies of its arrays, so that the caller may change them."""
    if call.whole is not None:
        call = replace(call, whole=with_own_bytes(call.whole))
    if call.frames is not None:
        frames = list(call.frames())
        return replace(call, frames=lambda: iter(frames), place=None)
    message = call.message
    if isinstance(call.stream, Stream) and isinstance(message, LentMessage) and (
            message.payloads):
        # Message and stream have the same payloads in the same order, and share the copies.
        payloads = {name: memoryview(bytes(payload))
                    for name, payload in call.stream.payloads.items()}
        return replace(call, message=replace(message, payloads=list(payloads.values())),
                       stream=replace(call.stream, payloads=payloads), place=None)
    if call.message is not None:
        return replace(call, message=joined(call.message), place=None)
    return call
