"""Provides a server that belongs to this process and needs no setup."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from convgrad.client import Client
from convgrad.connections.retries import IS_GOING, RetryPolicy
from convgrad.errors import ConvgradError, FailedPrecondition, invalid, message_of
from convgrad.local.process import LocalProcess, Settings, listens

# Passes the server's address to processes that this one starts on the same machine.
_INHERITED = "CONVGRAD_LOCAL_SERVER"


class LocalServer:
    """A convgrad-server on this machine that ends together with this process.

        with convgrad.LocalServer() as server, server.client() as client:
            net = convgrad.torch.remote(model, client)

    A process has at most one such server. Each LocalServer is a handle of it; the server ends
    when the last handle is closed or garbage collected. Processes that this one starts by spawn
    or fork use the same server. Thread-safe.
    """

    def __init__(self, *, threads: int | None = None, memory_bytes: int | None = None,
                 log: str | os.PathLike[str] | None = None,
                 flags: Sequence[str] = ()) -> None:
        """Starts the server if there is none, and returns once it accepts calls.

        `threads` compute one operation (default: one for each core that this process may use,
        within its cgroup's quota). `memory_bytes` limits the server's memory (default: three
        quarters of the memory that the host and the cgroup have left). `log` is a file to
        append to; without it, `log_path` is readable while this process has the handle.
        `flags` are further flags of convgrad-server.

        Errors: FailedPrecondition if the program is missing or fails to start, or if the
        running server has other settings.
        """
        if threads is not None and threads < 1:
            raise invalid("OUT_OF_RANGE", "threads", threads, "at least 1")
        if isinstance(flags, str):
            raise invalid("OUT_OF_RANGE", "flags", f"'{flags}'", "a list of flags")
        if memory_bytes is not None and memory_bytes < 1:
            raise invalid("OUT_OF_RANGE", "memory_bytes", memory_bytes, "at least 1")
        wanted = Settings(threads, memory_bytes, None if log is None else os.path.abspath(log),
                          tuple(flags))
        self._found = _shared.take(wanted)
        self._release = weakref.finalize(self, _shared.give, self._found)
        self.address = self._found.address
        """The address for a Client: "unix:PATH"."""

    @property
    def pid(self) -> int | None:
        """The server's process id; None if it is another process's child."""
        return self._found.process.pid if self._found.process else None

    @property
    def log_path(self) -> str | None:
        return self._found.process.log_path if self._found.process else None

    @property
    def is_running(self) -> bool:
        return self._release.alive and self._found.is_there()

    def log(self) -> str:
        """Returns the server's log so far, also after close(); empty if the server is another
        process's child."""
        return self._found.process.log() if self._found.process else ""

    def client(self, **keywords: Any) -> Client:
        """Returns a client of this server, whose calls fail at once when the server has ended.

        Takes Client's keywords.
        """
        retry = keywords.get("retry", RetryPolicy())
        if type(retry) is RetryPolicy:
            keywords["retry"] = _UntilItsEnd(**vars(retry), address=self.address)
        client = Client(self.address, **keywords)
        client.at_close(self._outlast)  # keeps this handle
        return client

    def close(self) -> None:
        """Closes this handle; the last one ends the server. Close clients first."""
        self._release()

    def _outlast(self) -> None:
        """Does nothing; until its client's end, the reference to it keeps this handle."""

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def default_client() -> Client:
    """Returns the client of this process's server for calls that name no client.

    Errors: as LocalServer().
    """
    return _shared.default()


@dataclass(eq=False)
class _Found:
    """A running server. `process` is None if it is another process's child."""

    address: str
    process: LocalProcess | None
    handles: int = 0

    def end(self) -> str | None:
        return self.process.end if self.process is not None else None

    def is_there(self) -> bool:
        if self.process is not None and self.process.owner == os.getpid():
            return self.end() is None
        return listens(self.address.removeprefix("unix:"))


class _Shared:
    """State shared by the process's handles. Thread-safe."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._found: _Found | None = None
        self._default: tuple[LocalServer, Client, int] | None = None
        # How this process's servers have ended, by address.
        self._ends: dict[str, str] = {}

    def take(self, wanted: Settings) -> _Found:
        with self.lock:
            found = self._found
            if found is None or not found.is_there():
                if found is not None:
                    self._ends[found.address] = found.end() or "one that is gone"
                found = self._found = _inherited(wanted) or _started(wanted)
            elif wanted != Settings():
                _check_same(wanted, found)
            found.handles += 1
            return found

    def give(self, found: _Found) -> None:
        """Releases a handle."""
        with self.lock:
            found.handles -= 1
            process = found.process
            if found.handles > 0 or process is None or process.owner != os.getpid():
                return
            if self._found is found:
                self._found = None
                os.environ.pop(_INHERITED, None)
            self._ends.setdefault(found.address, found.end() or "one that was closed")
            process.stop()

    def default(self) -> Client:
        with self.lock:
            if self._default is not None:
                server, client, owner = self._default
                if owner == os.getpid() and server.is_running and not client.is_closed:
                    return client
            server = LocalServer()
            client = server.client()
            self._default = (server, client, os.getpid())
            return client

    def close_default(self) -> None:
        """Closes the default client if this process made it."""
        if self._default is not None and self._default[2] == os.getpid():
            self._default[1].close()

    def end_of(self, address: str) -> str | None:
        """Returns how this process's server at the address has ended; None if it hasn't, or is
        unknown."""
        found = self._found
        if found is not None and found.address == address:
            return found.end()
        return self._ends.get(address)

    def settle_after_fork(self) -> None:
        """Replaces the lock in a forked child; another thread of the parent may hold it."""
        self.lock = threading.RLock()


@dataclass(frozen=True)
class _UntilItsEnd(RetryPolicy):
    """Doesn't repeat calls to a server that has ended for good."""

    address: str = ""

    def names_end(self, error: ConvgradError) -> bool:
        end = _shared.end_of(self.address) if error.code in IS_GOING else None
        if end is None:
            return False
        error.field, error.found, error.expected = "local server", end, "one that runs"
        error.message = message_of(error.field, error.found, error.expected)
        return True


def _started(wanted: Settings) -> _Found:
    process = LocalProcess(wanted)
    os.environ[_INHERITED] = process.address
    return _Found(process.address, process)


def _inherited(wanted: Settings) -> _Found | None:
    """Returns the server of the process that started this one, if it fits `wanted`."""
    address = os.environ.get(_INHERITED, "")
    if wanted != Settings() or not address.startswith("unix:"):
        return None
    found = _Found(address, None)
    return found if found.is_there() else None


def _check_same(wanted: Settings, found: _Found) -> None:
    """Errors: FailedPrecondition naming the setting in which the server differs."""
    has = found.process.settings if found.process else Settings()
    for name in ("threads", "memory_bytes", "log", "flags"):
        one, other = getattr(wanted, name), getattr(has, name)
        if one not in (None, (), other):
            raise FailedPrecondition.of(
                f"local server: {name}", str(one), f"{other}, as the one that runs in this "
                "process has, or close() of that first")


_shared = _Shared()
# At exit, closes the connection before the server ends, because gRPC would log its end.
# weakref's own handler ends the server, so this makes weakref register it first.
weakref.finalize(_shared, int).atexit = False
atexit.register(_shared.close_default)
os.register_at_fork(after_in_child=_shared.settle_after_fork)
