"""Defines the client with blocking calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from convgrad import operations
from convgrad.attached import Attached, attach, check_id
from convgrad.caller import Caller
from convgrad.errors import NotFound, invalid, unavailable, unimplemented
from convgrad.moving.machine import tell_differences
from convgrad.region import Region
from convgrad.requests import Call
from convgrad.sessions.leases import (
    OpenSession,
    check_durable,
    close_listed,
    list_sessions,
    not_durable,
    open_session,
    resume_session,
)
from convgrad.sessions.recorder import new_recorder, note_unrecorded
from convgrad.sessions.replay import DEFAULT_REPLAY_BYTES
from convgrad.sessions.session import Session
from convgrad.tracebacks import short_traceback

P = ParamSpec("P")
R = TypeVar("R")


def _runs(prepare: Callable[P, Call[R]]) -> Callable[Concatenate[Client, P], R]:
    """Makes a method of an operation, which prepares, sends and awaits its call."""

    @short_traceback
    @functools.wraps(prepare)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(prepare(*args, **kwargs))

    return method


class Client(Caller):
    """Runs operations on a server and blocks until they end. Thread-safe.

        with convgrad.Client("localhost:7070") as client:
            gradients = client.conv_backward(grad_output, input, weight, padding=1)
    """

    conv_forward = _runs(operations.conv_forward)
    conv_backward = _runs(operations.conv_backward)
    conv_transpose_forward = _runs(operations.conv_transpose_forward)
    conv_transpose_backward = _runs(operations.conv_transpose_backward)
    linear_forward = _runs(operations.linear_forward)
    linear_backward = _runs(operations.linear_backward)
    capabilities = _runs(operations.capabilities)

    def session(
        self, name: str = "", *, lease: float = 600.0, quota: int = 0,
        readers: Sequence[str] = (), resume: bool | bytes = False,
        keep_open: bool = False, durable: bool = False,
        replay_bytes: int = DEFAULT_REPLAY_BYTES,
    ) -> Session:
        """Opens a session, which keeps tensors on the server; see Session.

        The session ends after `lease` seconds without a call; the client renews the lease while
        the session is open here. It may keep `quota` bytes; 0: as much as the server allows.
        Clients named in `readers` may compute forwards with its tensors. The end of a `with`
        closes the session and drops its tensors; with `keep_open` the session stays open for
        its lease.

        `resume=True` resumes the open session of this name, which requires a client with a
        token or certificate. `resume=session.id` resumes the session with this id. The previous
        user's calls raise SessionTakenOver. Warns if another CPU model, version or
        configuration of the server has computed the session so far, because bits may differ
        from now on.

        A `durable` session survives a restart of the server, which needs a --state_dir. The
        session then keeps up to `replay_bytes` of its newest changes here, and repeats those
        that the server has lost. If more are kept, it waits until the server has written them.

        Errors: SessionExpired if the session to resume doesn't exist; FailedPrecondition if it,
        or the server, isn't durable; AlreadyExists if the client has a session of this name;
        ResourceExhausted if it has as many as the server allows; InvalidArgument.

        With CONVGRAD_RECORD=FOLDER in the environment, each session that is opened, and not
        resumed, is recorded in a new file there; see convgrad.replay().
        """
        if replay_bytes < 0:
            raise invalid("OUT_OF_RANGE", "replay_bytes", replay_bytes, "at least 0")
        if isinstance(readers, str):
            raise invalid("OUT_OF_RANGE", "readers", f"'{readers}'", "a list of names")
        if not isinstance(resume, bool):
            check_id("resume", resume)
        elif resume and not name:
            raise invalid("MISSING", "name", "nothing", "the name of the session to resume")
        if resume and durable:
            check_durable(self, name, resume)
        recorder = None
        if resume:
            note_unrecorded()
            opened = resume_session(self, name, resume if isinstance(resume, bytes) else b"")
            tell_differences(opened.answer.differences)
        else:
            recorder = new_recorder(self)
            try:
                opened = open_session(self, name, lease, quota, readers, durable)
            except BaseException:
                if recorder is not None:
                    recorder.discard()
                raise
        if durable and not opened.answer.durable:
            raise not_durable()
        return Session(self, opened, keep_open, replay_bytes, recorder)

    def attach(self, session: bytes | str) -> Attached:
        """Attaches to a session that another process or thread has open, to read it during
        training; see Attached. `session` is the session's id, which permits this.

        This client must be the session's own (same token or certificate, or a server that
        asks for neither) or one of its `readers`. Readers may list tensors and run forwards,
        but not get() tensors.

        Errors: SessionExpired if the session doesn't exist; Unimplemented for a name.
        """
        return attach(self, session)

    def sessions(self, *, everybody: bool = False) -> list[OpenSession]:
        """Returns this client's open sessions: those of its token or certificate or, if the
        server knows no names, of its host. With `everybody`, which requires the role admin,
        returns all."""
        return list_sessions(self, everybody)

    def close_session(self, handle: str) -> None:
        """Ends a session in the list of sessions() and drops everything that it keeps.

        Errors: SessionExpired if it doesn't exist, or belongs to another client and this one
        isn't an admin; InvalidArgument for an id.
        """
        if not isinstance(handle, str):
            raise invalid("OUT_OF_RANGE", "handle", f"a {type(handle).__name__}",
                          "a handle from sessions()")
        close_listed(self, handle)

    def region(self, nbytes: int) -> Region:
        """Returns memory that is shared with the server; see Region.

        Errors: InvalidArgument for a client of several servers; Unimplemented if the server
        offers no regions (--regions_listen); Unavailable if it is on another host;
        ResourceExhausted if it has less memory left (--max_region_bytes).
        """
        if len(self.targets) != 1:
            raise invalid("OUT_OF_RANGE", "region", f"a client of {len(self.targets)} servers",
                          "one, with which memory is shared")
        offered = self.capabilities()
        if not offered.HasField("shared_memory"):
            raise unimplemented("region", f"the server at {self.targets[0]}, which offers none",
                                "one with --regions_listen")
        region = Region(offered.shared_memory.address, nbytes)
        self._share(region)
        try:
            # Has the server write there: side sockets on two hosts may have the same name.
            ones = np.ones((1, 1), np.float32)
            self.linear_forward(ones, ones, out={"output": region.empty((1, 1))})
        except BaseException as error:
            region.close()
            if not isinstance(error, NotFound):
                raise
            raise unavailable(
                "NOT_FOUND", "region", f"'{offered.shared_memory.address}', the side socket of "
                "another server here", f"that of {self.targets[0]}, a server on this host",
            ) from None
        return region

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
