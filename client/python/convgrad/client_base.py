"""Defines the state and error handling that the blocking and the asyncio client share."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet, WeakValueDictionary

import grpc
import numpy.typing as npt

from convgrad.connections.channels import ChannelPool, Connections, Slot, Token
from convgrad.connections.retries import IS_GOING, Attempts, RetryPolicy
from convgrad.connections.tls import Tls
from convgrad.errors import (
    Cancelled,
    ConvgradError,
    from_rpc,
    is_silent,
    unreachable,
)
from convgrad.options import seconds_of
from convgrad.outages import Outages
from convgrad.region import Region
from convgrad.requests import Call

_LOG = logging.getLogger("convgrad")

R = TypeVar("R")
C = TypeVar("C", bound="ClientBase")

# Statuses of calls whose job may still be running on the server.
_UNDECIDED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED,
              grpc.StatusCode.CANCELLED)
# Equal to the server's --default_deadline.
_DEFAULT_TIMEOUT_SECONDS = 600.0


class ClientBase:
    """Settings and connections of a client."""

    _living: ClassVar[WeakValueDictionary[str, ClientBase]] = WeakValueDictionary()

    def __init__(
        self, target: str | Sequence[str], *, tls: Tls | bool = False,
        token: Token | None = None, connections: int = 1,
        keepalive_seconds: float = 20.0,
        timeout: float | None = _DEFAULT_TIMEOUT_SECONDS,
        retry: RetryPolicy = RetryPolicy(),
    ) -> None:
        """Makes a client, which connects on its first call.

        `target` is "HOST:PORT" or "unix:PATH"; several are used in turn. The client opens
        `connections` connections to each. It sends `token` as "Bearer"; a token is a string or
        a function that returns a fresh one. `timeout` (seconds) applies to calls that name
        none.

        If a call waits and nothing has arrived for `keepalive_seconds`, the client sends a
        ping. If no answer arrives within the same time (at most 20 s), it closes the
        connection. The server accepts a ping every 10 s.
        """
        self.targets = (target,) if isinstance(target, str) else tuple(target)
        self.handle = uuid.uuid4().hex
        """Identifies the client in this process where only text can be passed."""
        self._living[self.handle] = self
        self._timeout = seconds_of(timeout)
        self.retry = retry
        """When and how often the client repeats a call that failed."""
        self.outages = Outages()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._regions: WeakSet[Region] = WeakSet()
        self._at_close: list[Callable[[], None]] = []
        self._pool = ChannelPool(
            Connections(self.targets, Tls() if tls is True else tls or None, token,
                        connections, keepalive_seconds))

    @classmethod
    def of_handle(cls, handle: str) -> ClientBase | None:
        """Returns the client with this handle; None if it no longer exists."""
        return cls._living.get(handle)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the client without secrets; the copy opens its own connections."""
        return (_connect_again, (type(self), self._pool.connections.without_secrets(),
                                 self._timeout, self.retry))

    def __deepcopy__(self, memo: dict[int, Any]) -> ClientBase:
        """Returns the client itself, so that copies of a model share it."""
        return self

    def sibling(self, kind: type[C]) -> C:
        """Returns a client of another class with the same settings, connections and regions."""
        other = kind.__new__(kind)
        vars(other).update(vars(self), handle=uuid.uuid4().hex)
        self._living[other.handle] = other
        return other

    def replicas(self) -> list[str]:
        """Returns the targets, with the addresses of a name that has several instead of the
        name. Asks DNS."""
        return self._pool.replicas()

    @property
    def is_at_home(self) -> bool:
        """Whether this process may use the connections; processes forked later may not."""
        return self._pool.home.is_here

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def check_process(self) -> None:
        """Raises FailedPrecondition unless `is_at_home`. Call it before taking a lock, because
        a fork may copy a locked one."""
        self._pool.home.check()

    def deadline_of(self, call: Call[Any]) -> float | None:
        """Returns the call's deadline as a time.monotonic(); None if it has none."""
        timeout = seconds_of(call.options.get("timeout", self._timeout))
        return None if timeout is None else time.monotonic() + timeout

    def _share(self, region: Region) -> None:
        """Makes the client's calls use tensors in `region` without sending them."""
        with self._lock:
            self._regions.add(region)

    def shares(self, array: npt.NDArray[Any]) -> bool:
        """Returns whether the array lies in one of the client's regions."""
        with self._lock:
            return any(region.range_of(array) is not None for region in self._regions)

    def placed(self, call: Call[R]) -> Call[R]:
        """Returns the call with the tensors in the client's regions left there."""
        if call.place is None or not self._regions:
            return call
        with self._lock:
            regions = tuple(self._regions)
        return call.place(call, regions)

    def _metadata(self, call: Call[Any]) -> tuple[tuple[str, str | bytes], ...]:
        metadata = self._pool.connections.metadata() + call.metadata
        if call.message is not None:
            # With a known size, the server doesn't reserve memory for the largest message.
            metadata += (("convgrad-request-bytes", str(len(call.message))),)
        if "traceparent" in call.options:
            metadata += (("traceparent", call.options["traceparent"]),)
        if "priority" in call.options:
            metadata += (("convgrad-priority", call.options["priority"]),)
        return metadata

    def _start(self, slot: Slot, call: Call[Any], seconds: float | None) -> Any:
        """Starts an attempt. Returns its grpc.Future or, of a stream, an iterator over its
        responses."""
        if call.message is None and call.stream is not None:
            method = self._pool.method(slot, call.method + "Stream")
            return self._begin(method, call.stream.requests(), call, seconds)
        message: Any = call.message if call.frames is None else call.frames()
        return self._begin(self._pool.method(slot, call.method).future, message, call, seconds)

    def _begin(self, method: Callable[..., Any], message: Any, call: Call[Any],
               seconds: float | None) -> Any:
        try:
            return method(message, timeout=seconds, metadata=self._metadata(call))
        except ValueError as closed:
            if not self._closed.is_set() or isinstance(closed, ConvgradError):
                raise
            raise Cancelled("the client is closed") from None

    def _receive(self, call: Call[R], responses: Any) -> R:
        """Returns the result of a stream's responses."""
        assert call.stream is not None
        reply = call.stream.reply()
        try:
            for response in responses:
                reply.take(response)
        finally:
            responses.cancel()  # no effect after the end
        return reply.finish()

    @contextlib.contextmanager
    def _attempting(self, slot: Slot, call: Call[Any]) -> Iterator[list[ConvgradError]]:
        """Runs the block as an attempt. Adds the error of one that may be repeated to the list
        that it yields, and raises others."""
        failed = list[ConvgradError]()
        try:
            yield failed
            slot.has_answered = True
            self.outages.end(slot.target)
        except grpc.RpcError as rpc:
            failed.append(self._failed(rpc, slot, call))
            # another thread cancelled the stream
            if isinstance(rpc, grpc.Future) and rpc.cancelled():
                raise failed[0] from None
        except grpc.FutureCancelledError:
            call.loan.give_up()  # the server may still use it
            raise Cancelled("the call was cancelled") from None
        except ConvgradError:  # nothing was sent, or the answer is here
            raise
        except BaseException:  # Ctrl-C, or the task was cancelled
            call.loan.give_up()
            raise

    def _failed(self, rpc: Any, slot: Slot, call: Call[Any]) -> ConvgradError:
        """Returns the exception for a grpc.RpcError of an attempt."""
        error = from_rpc(rpc.code(), rpc.details(), rpc.trailing_metadata())
        error.request_id = call.request_id
        if error.reason:  # from the server itself
            slot.has_answered = True
            self.outages.reached(slot.target)
        if error.code in _UNDECIDED or not error.reason:
            call.loan.give_up()
        return error

    def _after(self, error: ConvgradError, slot: Slot, call: Call[R], attempts: Attempts,
               ) -> tuple[Call[R], float]:
        """Returns the call to send next and the delay in seconds, or raises `error`."""
        if needs_stream(error, call):
            return replace(call, message=None), 0.0
        attempts.end(error)
        if not error.reason and call.loan.is_written:
            # A repeat would end while the caller can't know when the lost attempt writes.
            error.message += "; the server may still write the call's results to a region"
            raise error
        is_ended_here = error.code == grpc.StatusCode.CANCELLED and self._closed.is_set()
        if error.code in IS_GOING:
            self._pool.mark_down(slot)
        delay = None if is_ended_here else self.retry.delay(error, attempts.count)
        late = attempts.deadline is not None and delay is not None and (
            time.monotonic() + delay >= attempts.deadline)
        attempts.last = unreachable(error, slot.target, slot.has_answered)
        if delay is None or late or self._is_silent_too_long(error, call, attempts):
            raise attempts.last
        self.note_repeat(call.method, slot.target, error, attempts.count, delay,
                         attempts.deadline, has_answered=slot.has_answered)
        return call, delay

    def _is_silent_too_long(self, error: ConvgradError, call: Call[Any],
                            attempts: Attempts) -> bool:
        """Returns whether the call waited for silent servers as long as it would have waited
        between attempts. A server that has ever answered isn't given up for its silence."""
        servers = self._pool.strangers(call.target)
        left = servers * self.retry.seconds_left(error, attempts.count)
        return is_silent(error) and servers > 0 and attempts.silent_seconds >= left

    def note_repeat(self, what: str, target: str, error: ConvgradError, attempts: int,
                    delay: float, deadline: float | None, *, has_answered: bool = True) -> None:
        """Logs that `what` is repeated in `delay` seconds. Warns once about an outage."""
        _LOG.info("%s at %s: %s: %s; attempt %d of %d, the next one in %.2f s", what, target,
                  error.code.name, error.message, attempts, self.retry.max_attempts, delay)
        left = self.retry.seconds_left(error, attempts)
        if deadline is not None:
            left = min(left, deadline - time.monotonic())
        self.outages.note(target, error, attempts, delay, left, has_answered=has_answered)

    def _explain(self, error: ConvgradError, slot: Slot, attempts: Attempts) -> None:
        """Raises Unavailable, without a repeat, if a key or certificate is the cause."""
        seconds = (float("inf") if attempts.deadline is None
                   else attempts.deadline - time.monotonic())
        cause = self._pool.probe.explain(slot.target, seconds) if seconds > 0 else None
        if cause is not None:
            cause.attempts, cause.request_id = attempts.count, error.request_id
            raise cause


def _connect_again(cls: type[C], connections: Connections,
                   timeout: float | None, retry: RetryPolicy) -> C:
    settings = dict(vars(connections))
    return cls(settings.pop("targets"), timeout=timeout, retry=retry, **settings)


def is_unexplained(error: ConvgradError, slot: Slot) -> bool:
    """Returns whether keys or certificates may be the reason that the server never answered."""
    return (error.code == grpc.StatusCode.UNAVAILABLE and not error.reason
            and not slot.has_answered)


def needs_stream(error: ConvgradError, call: Call[Any]) -> bool:
    """Returns whether the server refused because its messages are too small (error.proto).

    Returns False for a self-check, which streams don't support.
    """
    return (error.reason == "LIMIT_EXCEEDED" and error.field in ("request", "response")
            and call.message is not None and call.stream is not None
            and not call.options.get("self_check", False))
