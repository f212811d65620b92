"""The client, and what it shares with the asyncio one."""

from __future__ import annotations

import functools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet, WeakValueDictionary

import grpc

from convgrad import operations
from convgrad.channels import ChannelPool, Connections, Slot, Token
from convgrad.errors import Cancelled, ConvgradError, DeadlineExceeded, from_rpc
from convgrad.leases import open_session, resume_session
from convgrad.region import Region
from convgrad.requests import Call
from convgrad.retries import RetryPolicy
from convgrad.sessions import Session
from convgrad.sharing import address_of_regions, check_region
from convgrad.streams import Streamed
from convgrad.tls import Tls

_LOG = logging.getLogger("convgrad")

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="ClientBase")

# What a call ends with whose job may still run at the server.
_UNDECIDED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED,
              grpc.StatusCode.CANCELLED)
# As the server's --default_deadline.
_DEFAULT_TIMEOUT_SECONDS = 600.0


class ClientBase:
    """Settings and connections."""

    _library: Any = grpc
    _living: ClassVar[WeakValueDictionary[str, ClientBase]] = WeakValueDictionary()

    def __init__(
        self, target: str | Sequence[str], *, tls: Tls | bool = False,
        token: Token | None = None, connections: int = 1,
        keepalive_seconds: float = 20.0,
        timeout: float | None = _DEFAULT_TIMEOUT_SECONDS,
        retry: RetryPolicy = RetryPolicy(),
    ) -> None:
        """Connects when first used.

        `target` is "HOST:PORT" or "unix:PATH"; several are used in turn. Each
        gets `connections` connections. `token` goes along as "Bearer": a string,
        or what returns a fresh one. `timeout` is that of calls which name none.
        A connection on which a call waits and nothing has come for `keepalive_seconds`
        is asked by a ping, and given up if the answer takes as long again (20 s at most).
        The server takes pings from every 10 s on.
        """
        if isinstance(tls, bool):
            tls_options = Tls() if tls else None
        else:
            tls_options = tls
        targets = (target,) if isinstance(target, str) else tuple(target)
        self.handle = uuid.uuid4().hex
        """Names the client, in this process, where text alone can be passed."""
        self._living[self.handle] = self
        self._timeout = timeout
        self._retry = retry
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._regions: WeakSet[Region] = WeakSet()
        self._pool = ChannelPool(
            Connections(targets, tls_options, token, connections, keepalive_seconds),
            self._library)

    @classmethod
    def of_handle(cls, handle: str) -> ClientBase | None:
        """Returns the client that has it, None if it is gone."""
        return cls._living.get(handle)

    def __reduce__(self) -> tuple[Any, ...]:
        """A client in another process has connections of its own, and no secrets."""
        return (_connect_again, (type(self), self._pool.connections.without_secrets(),
                                 self._timeout, self._retry))

    def __deepcopy__(self, memo: dict[int, Any]) -> ClientBase:
        """Copies of a model share its client."""
        return self

    def sibling(self, kind: type[C]) -> C:
        """Returns another client of the same servers and settings."""
        return _connect_again(kind, self._pool.connections, self._timeout, self._retry)

    @property
    def retry(self) -> RetryPolicy:
        return self._retry

    @property
    def targets(self) -> tuple[str, ...]:
        return self._pool.connections.targets

    def deadline_of(self, call: Call[Any]) -> float | None:
        """Returns the time.monotonic() at which the call is too late."""
        timeout = call.options.get("timeout", self._timeout)
        return None if timeout is None else time.monotonic() + timeout

    def _share(self, region: Region) -> None:
        """Has the client's calls leave in the region what lies there."""
        with self._lock:
            self._regions.add(region)

    def _placed(self, call: Call[R]) -> Call[R]:
        """Returns the call with what lies in the client's regions left there."""
        if call.place is None or not self._regions:
            return call
        with self._lock:
            regions = tuple(self._regions)
        return call.place(call, regions)

    def _metadata(self, call: Call[Any]) -> tuple[tuple[str, str | bytes], ...]:
        metadata = self._pool.connections.metadata() + call.metadata
        if call.message is not None:
            # With its size told a call is admitted by that, and not as the largest.
            metadata += (("convgrad-request-bytes", str(len(call.message))),)
        if "traceparent" in call.options:
            metadata += (("traceparent", call.options["traceparent"]),)
        if "priority" in call.options:
            metadata += (("convgrad-priority", call.options["priority"]),)
        return metadata

    def _send(self, slot: Slot, call: Call[Any], deadline: float | None) -> Any:
        """Starts an attempt. Returns the response, or a stream's iterator of them."""
        message: Any = call.message
        method = call.method
        if call.frames is not None:
            message = call.frames()
        elif message is None:
            message, method = stream_of(call)[0].requests(), method + "Stream"
        return self._pool.method(slot, method)(
            message, timeout=remaining(deadline), metadata=self._metadata(call))

    def _after(self, error: ConvgradError, slot: Slot, call: Call[R], attempts: int,
               deadline: float | None) -> tuple[Call[R], float]:
        """Returns what to send next and in how many seconds, or raises `error`."""
        if needs_stream(error, call):
            return replace(call, message=None), 0.0
        if call.loan is not None and error.code in _UNDECIDED:
            call.loan.give_up()
        error.attempts = attempts
        if error.code == grpc.StatusCode.UNAVAILABLE:
            self._pool.mark_down(slot)
        delay = self._retry.delay(error, attempts)
        late = deadline is not None and delay is not None and (
            time.monotonic() + delay >= deadline)
        if delay is None or late:
            raise error from None
        # A server that is full is no surprise; one that isn't there may be.
        _LOG.log(logging.WARNING if error.code == grpc.StatusCode.UNAVAILABLE else logging.INFO,
                 "%s at %s: %s: %s; attempt %d of %d, the next one in %.2f s", call.method,
                 slot.target, error.code.name, error.message, attempts,
                 self._retry.max_attempts, delay)
        return call, delay

    def _explain(self, error: ConvgradError, slot: Slot, attempts: int,
                 deadline: float | None) -> None:
        """Raises Unavailable, for good, where a key or certificate is to blame."""
        seconds = float("inf") if deadline is None else deadline - time.monotonic()
        cause = self._pool.explain(slot, seconds) if seconds > 0 else None
        if cause is not None:
            cause.attempts, cause.request_id = attempts, error.request_id
            raise cause from None


def _connect_again(cls: type[C], connections: Connections,
                   timeout: float | None, retry: RetryPolicy) -> C:
    return cls(connections.targets, tls=connections.tls or False,
               token=connections.token, connections=connections.connections,
               keepalive_seconds=connections.keepalive_seconds, timeout=timeout,
               retry=retry)


def remaining(deadline: float | None) -> float | None:
    """Returns seconds for an attempt. Raises DeadlineExceeded if none are left."""
    if deadline is None:
        return None
    seconds = deadline - time.monotonic()
    if seconds > 0:
        return seconds
    # gRPC may let a call win against a deadline that is now.
    raise DeadlineExceeded("the deadline was over before the call was sent")


def error_of(rpc: Any, call: Call[Any]) -> ConvgradError:
    """Returns the exception for a grpc.RpcError or grpc.aio.AioRpcError."""
    error = from_rpc(rpc.code(), rpc.details(), rpc.trailing_metadata())
    error.request_id = call.request_id
    return error


def is_unexplained(error: ConvgradError, slot: Slot) -> bool:
    """Returns whether keys and certificates may be why there never was an answer."""
    return (error.code == grpc.StatusCode.UNAVAILABLE and not error.reason
            and not slot.has_answered)


def needs_stream(error: ConvgradError, call: Call[Any]) -> bool:
    """Returns whether a server says that its messages are too small (error.proto).

    A stream can't check itself.
    """
    return (error.reason == "LIMIT_EXCEEDED" and error.field in ("request", "response")
            and call.message is not None and call.stream is not None
            and not call.options.get("self_check", False))


def stream_of(call: Call[R]) -> tuple[Streamed, Callable[..., R]]:
    assert call.stream is not None and call.result is not None
    return call.stream, call.result


def _runs(prepare: Callable[P, Call[R]]) -> Callable[Concatenate[Client, P], R]:
    """Makes a method of an operation: prepared, checked, sent, awaited."""

    @functools.wraps(prepare)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(prepare(*args, **kwargs))

    return method


class Client(ClientBase):
    """Runs operations on a server, and waits for them. Thread-safe.

        with convgrad.Client("localhost:7070") as client:
            gradients = client.conv_backward(grad_output, input, weight, padding=1)
    """

    _executor: ThreadPoolExecutor | None = None

    conv_forward = _runs(operations.conv_forward)
    conv_backward = _runs(operations.conv_backward)
    conv_transpose_forward = _runs(operations.conv_transpose_forward)
    conv_transpose_backward = _runs(operations.conv_transpose_backward)
    linear_forward = _runs(operations.linear_forward)
    linear_backward = _runs(operations.linear_backward)
    capabilities = _runs(operations.capabilities)

    def submit(self, method: Callable[P, R], /, *args: P.args,
               **kwargs: P.kwargs) -> Future[R]:
        """Runs one of the client's methods beside others, for several layers at once.

            future = client.submit(client.conv_backward, grad_output, input, weight)
        """
        with self._lock:
            if self._closed.is_set():
                raise Cancelled("the client is closed")
            if self._executor is None:
                self._executor = ThreadPoolExecutor(thread_name_prefix="convgrad")
            return self._executor.submit(method, *args, **kwargs)

    def session(
        self, name: str = "", *, lease: float = 600.0, quota: int = 0,
        readers: Sequence[str] = (), resume: bool | bytes = False,
        keep_open: bool = False,
    ) -> Session:
        """Opens a session: tensors that stay on the server, see Session.

        It lives for `lease` seconds without a call; while it is open here it is renewed.
        It may keep `quota` bytes; 0: as much as the server lets it. Clients named in
        `readers` may compute forwards with its tensors. At the end of a `with` it is
        closed and all is dropped, unless `keep_open`: then it stays for its lease.

        `resume=True` goes on with the open session of this name, which asks for a client
        with a token or certificate; `resume=session.id` with that one. Whoever had it is
        told by SessionTakenOver. SessionExpired is raised if it isn't there.
        """
        if resume:
            opened = resume_session(self, name, resume if isinstance(resume, bytes) else b"")
        else:
            opened = open_session(self, name, lease, quota, readers)
        return Session(self, opened, keep_open)

    def region(self, nbytes: int) -> Region:
        """Gets memory that is shared with the server, see Region.

        Errors: InvalidArgument for a client of several servers; Unimplemented if the server
        offers none (--regions_listen); Unavailable where it is on another host;
        ResourceExhausted if it hasn't so much left (--max_region_bytes).
        """
        address = address_of_regions(self)
        region = Region(address, nbytes)
        self._share(region)
        try:
            check_region(self, region, address)
        except BaseException:
            region.close()
            raise
        return region

    def start(self, call: Call[Any], seconds: float | None) -> Any:
        """Returns the grpc.Future of one attempt of a call with one message as its answer.

        Raises Cancelled after close().
        """
        try:
            return self._start(self._pool.pick(call.target), call, seconds)
        except ValueError:  # of a channel that is closed meanwhile
            raise Cancelled("the client is closed") from None

    def _start(self, slot: Slot, call: Call[Any], seconds: float | None) -> Any:
        message: Any = call.message if call.frames is None else call.frames()
        return self._pool.method(slot, call.method).future(
            message, timeout=seconds, metadata=self._metadata(call))

    def run(self, call: Call[R]) -> R:
        """Sends a prepared call, again where that may help."""
        return self.run_somewhere(call)[1]

    def run_somewhere(self, call: Call[R]) -> tuple[str, R]:
        """As run(); returns also which target has answered."""
        call = self._placed(call)
        deadline = self.deadline_of(call)
        attempts = 0
        while True:
            attempts += 1
            slot = self._pool.pick(call.target)
            try:
                if call.on_start is not None and call.message is not None:
                    rpc = self._start(slot, call, remaining(deadline))
                    call.on_start(rpc)
                    return slot.target, call.decode(rpc.result())
                answer = self._send(slot, call, deadline)
                if call.on_start is not None:
                    call.on_start(answer)
                result = (self._receive(call, answer) if call.message is None
                          else call.decode(answer))
                slot.has_answered = True
                return slot.target, result
            except grpc.RpcError as rpc:
                error = error_of(rpc, call)
            except grpc.FutureCancelledError:
                raise Cancelled("the call was cancelled") from None
            except ValueError as closed:
                if not self._closed.is_set() or isinstance(closed, ConvgradError):
                    raise
                raise Cancelled("the client is closed") from None
            except BaseException:  # Ctrl-C
                if call.loan is not None:
                    call.loan.give_up()
                raise
            if is_unexplained(error, slot):
                self._explain(error, slot, attempts, deadline)
            call, delay = self._after(error, slot, call, attempts, deadline)
            if self._closed.wait(delay):
                raise Cancelled("the client was closed") from None

    def _receive(self, call: Call[R], responses: Any) -> R:
        stream, result = stream_of(call)
        reply = stream.reply()
        try:
            for response in responses:
                reply.take(response)
        finally:
            responses.cancel()  # does nothing to one that is over
        return result(*reply.finish())

    def close(self) -> None:
        """Ends calls that are under way (Cancelled), then the connections."""
        self._closed.set()
        for channel in self._pool.close():
            channel.close()
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
