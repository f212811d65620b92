"""Makes a session's methods from functions that prepare calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from convgrad.caller import Caller
from convgrad.problem import OPERANDS
from convgrad.requests import Call
from convgrad.sessions.durable import DurableChanges
from convgrad.sessions.known_tensors import KnownTensors
from convgrad.tracebacks import short_traceback

R = TypeVar("R")


class Owner(Protocol):
    """The session that a method belongs to."""

    client: Caller
    _durable: DurableChanges | None
    _known: KnownTensors

    def _perform(self, call: Call[R]) -> R: ...

    def _operand(self, tensor: Any) -> Any: ...


def method(prepare: Callable[..., Call[R]]) -> Callable[..., R]:
    """Makes a method that performs the call that `prepare` returns."""

    @short_traceback
    @functools.wraps(prepare)
    def performed(self: Owner, /, *args: Any, **kwargs: Any) -> R:
        self.client.check_process()
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
        self._known.remember(call.kept_results)
        return call

    return method(named)


def plain(prepare: Callable[..., Call[R]]) -> Callable[..., R]:
    """Makes a method of a call that doesn't depend on the session."""

    @functools.wraps(prepare)
    def alone(self: Owner, /, *args: Any, **kwargs: Any) -> Call[R]:
        return prepare(*args, **kwargs)

    return method(alone)
