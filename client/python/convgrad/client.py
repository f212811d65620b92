"""The client."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from convgrad import operations
from convgrad.attached import Attached, attach
from convgrad.caller import Caller
from convgrad.errors import short_traceback
from convgrad.region import Region
from convgrad.requests import Call
from convgrad.sessions.leases import (
    OpenSession,
    close_listed,
    list_sessions,
    open_session,
    resume_session,
)
from convgrad.sessions.session import Session
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


class Client(Caller):
    """Runs operations on a server, and waits for them. Thread-safe.

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

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
