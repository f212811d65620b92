"""The client."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

import grpc

from convgrad import operations
from convgrad.attached import Attached, attach
from convgrad.channels import Slot
from convgrad.client_base import (
    ClientBase,
    error_of,
    is_unexplained,
    remaining,
    stream_of,
)
from convgrad.errors import Cancelled, ConvgradError, short_traceback
from convgrad.leases import (
    OpenSession,
    close_listed,
    list_sessions,
    open_session,
    resume_session,
)
from convgrad.region import Region
from convgrad.requests import Call
from convgrad.sessions import Session
from convgrad.sharing import address_of_regions, check_region

P = ParamSpec("P")
R = TypeVar("R")


def _runs(prepare: Callable[P, Call[R]]) -> Callable[Concatenate[Client, P], R]:
    """Makes a method of an operation: prepared, checked, sent, awaited."""

    @short_traceback
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
        self.check_process()
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

    def attach(self, session: bytes | str) -> Attached:
        """Attaches to a session that another process or thread has open, to read it while
        that one trains, see Attached. `session` is its id, which is the right to do so.

        The server wants this client to be the session's own (same token, or no tokens), or one
        of its `readers`, who may list tensors and run forwards but not get() tensors.
        Errors: SessionExpired if the session isn't there; Unimplemented for a name.
        """
        return attach(self, session)

    def sessions(self, *, everybody: bool = False) -> list[OpenSession]:
        """Lists the sessions that this client has open: of its token or certificate, or, where
        servers know no names, of its host. An admin may ask for everybody's."""
        return list_sessions(self, everybody)

    def close_session(self, handle: str) -> None:
        """Ends a session of sessions(); all that it keeps is dropped.

        Errors: SessionExpired if there is none, or it is another client's and this one is no
        admin.
        """
        close_listed(self, handle)

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
        self.check_process()
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
        self.check_process()
        call = self.placed(call)
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
                self.outages.end(slot.target)
                return slot.target, result
            except grpc.RpcError as rpc:
                error = error_of(rpc, call)
                if isinstance(rpc, grpc.Future) and rpc.cancelled():  # a stream, by who has it
                    raise error from None
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
        """Ends calls that are under way (Cancelled), then the connections.

        Does nothing in a process that was forked since: they are its parent's.
        """
        if not self.is_at_home:
            return
        self._closed.set()
        for channel in self._pool.close():
            channel.close()
        with self._lock:
            executor, self._executor = self._executor, None
        self._end_others()
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
