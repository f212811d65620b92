"""Runs a convgrad-server as a child of this process, and cleans up after it.

The server's sockets are in a folder that it locks and removes when it ends. If the server was
killed, the next start removes the folder. The log is in kernel memory unless it has a path.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from convgrad.errors import FailedPrecondition
from convgrad.local.machine import memory_left, number_in, on_cores, usable_cores
from convgrad.local.programs import server_program

# Size of sockaddr_un.sun_path without the terminating 0.
_MOST_PATH_BYTES = 107
_PLAIN = re.compile(r"[A-Za-z0-9/._+-]+")
_START_SECONDS = 60.0
_STOP_SECONDS = 15.0
_ANSWER_SECONDS = 5.0
# The first bytes of a connection: HTTP/2's preface and settings without an entry (RFC 9113).
_HTTP2_START = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
_TAIL_LINES = 5
# Share of the available memory for the server; the rest is for this process.
_MEMORY_SHARE = 0.75


@dataclass(frozen=True)
class Settings:
    """Settings of a server; None selects the machine's default."""

    threads: int | None = None
    memory_bytes: int | None = None
    log: str | None = None
    flags: tuple[str, ...] = ()


class LocalProcess:
    """The child process. `address` accepts calls until this process ends."""

    def __init__(self, settings: Settings) -> None:
        """Starts the server and returns once it accepts calls.

        Errors: FailedPrecondition in one line, with the end of the server's log.
        """
        program = server_program()
        self.settings = settings
        self.owner = os.getpid()
        self._log, self.log_path = _open_log(settings.log)
        # Stays open after the server's end, so that no other file gets its number, and closes
        # with this object.
        weakref.finalize(self, os.close, self._log).atexit = False
        self._log_begin = os.fstat(self._log).st_size
        with _socket_folder() as (folder, lock):
            self._path = f"{folder}/calls"
            self.address = f"unix:{self._path}"
            # Exists before the child, so that Ctrl-C during its start finds it.
            self._process: subprocess.Popen[bytes] = subprocess.Popen.__new__(subprocess.Popen)
            try:
                self._start(program, folder, lock)
                self.pid = self._process.pid
                self._await()
            except BaseException:  # Ctrl-C, too
                if getattr(self._process, "pid", None) is not None:
                    self._process.kill()
                    self._process.wait()
                raise

    @property
    def end(self) -> str | None:
        """Returns how the server has ended; None while it runs, or in a process other than its
        owner."""
        if os.getpid() != self.owner:
            return None
        status = self._process.poll()
        if status is None:
            return None
        how = (f"killed by {signal.Signals(-status).name}" if status < 0
               else f"ended with status {status}")
        return f"process {self.pid}, {how}; its log, {self.log_path}, ends with: {self.tail()}"

    def log(self) -> str:
        # The user may have cut a file of theirs.
        size = max(os.fstat(self._log).st_size - self._log_begin, 0)
        text = os.pread(self._log, size, self._log_begin)
        return text.decode("utf-8", "replace")

    def tail(self) -> str:
        """Returns the last lines of the log as one line."""
        return " | ".join(self.log().splitlines()[-_TAIL_LINES:]) or "nothing"

    def stop(self) -> None:
        """Ends the server and waits for its end."""
        if os.getpid() != self.owner:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self, program: Path, folder: str, lock: int) -> None:
        try:
            with on_cores(usable_cores()):
                subprocess.Popen.__init__(
                    self._process, [program, *_arguments(self.settings, folder)],
                    stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
                    env=_environment(), cwd="/", pass_fds=[lock],
                    # Ctrl-C at a terminal must not reach the server.
                    start_new_session=True)
        except OSError as error:
            raise FailedPrecondition.of(
                "local server", f"'{program}': {error.strerror}",
                "a program that this machine runs") from None

    def _await(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not listens(self._path):
            end = self.end
            if end is None and time.monotonic() > deadline:
                end = f"no answer in {_START_SECONDS:.0f} s; its log ends with: {self.tail()}"
            if end is not None:
                raise FailedPrecondition.of("local server", end, "one that runs")
            time.sleep(0.003)


def listens(path: str) -> bool:
    """Returns whether a server of this user accepts calls at the path."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_ANSWER_SECONDS)
        try:
            probe.connect(path)
            probe.sendall(_HTTP2_START)
            # gRPC answers once it serves.
            return bool(probe.recv(1)) and os.stat(path).st_uid == os.getuid()
        except OSError:
            return False


def _arguments(settings: Settings, folder: str) -> list[str]:
    memory = settings.memory_bytes or int(memory_left() * _MEMORY_SHARE)
    arguments = [
        f"--listen=unix:{folder}/calls", "--metrics_listen=", "--drain_timeout=10s",
        f"--exit_with_parent={os.getpid()}", f"--remove_at_end={folder}",
        f"--memory_budget_bytes={memory}",
        # Its only client is this process.
        "--max_client_sessions=0", "--max_client_share=1"]
    if number_in(Path("/proc/sys/vm/overcommit_memory")) != 2:  # regions don't work there
        arguments.append(f"--regions_listen=unix:{folder}/regions")
    if settings.threads is not None:
        arguments += ["--workers=1", f"--threads_per_worker={settings.threads}"]
    return [*arguments, *settings.flags]


def _environment() -> dict[str, str]:
    """Returns this process's environment without its settings of OpenMP."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("OMP_", "GOMP_", "KMP_"))}


def _open_log(path: str | None) -> tuple[int, str]:
    if path is None:
        log = os.memfd_create("convgrad-server.log")
        return log, f"/proc/{os.getpid()}/fd/{log}"
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), path
    except OSError as error:
        raise FailedPrecondition.of(
            "local server: log", f"'{path}' ({error.strerror})",
            "a file that can be written") from None


@contextlib.contextmanager
def _socket_folder() -> Iterator[tuple[str, int]]:
    """Makes a folder for sockets that only this user can access. Locks it while the block, or a
    process with the descriptor, runs. Removes it if the block fails."""
    tried = []
    for parent in _parents():
        try:
            folder, lock = _make_folder(parent)
        except OSError as error:
            tried.append(f"'{parent}' ({error.strerror or error})")
            continue
        try:
            yield folder, lock
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(lock)
        return
    raise FailedPrecondition.of(
        "local server: folder for sockets", ", ".join(tried),
        "one that can be written, whose path is short and plain")


def _parents() -> Iterator[str]:
    """Yields the folders in which to make it, the best first."""
    with contextlib.suppress(OSError):  # no writable folder
        yield tempfile.gettempdir()
    yield from ("/tmp", "/dev/shm")
    yield os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")


def _make_folder(parent: str) -> tuple[str, int]:
    prefix = f"convgrad-{os.getuid()}-"
    # Length with mkdtemp's suffix and the longer socket's name.
    longest = len(f"{parent}/{prefix}12345678/regions")
    if not _PLAIN.fullmatch(parent):
        raise OSError("special characters")
    if longest > _MOST_PATH_BYTES:
        raise OSError(f"{longest} bytes with a socket's name, at most {_MOST_PATH_BYTES}")
    _remove_abandoned(parent, prefix)
    while True:
        folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
        lock = _locked(folder)
        if lock is not None:
            return folder, lock


def _locked(folder: str) -> int | None:
    """Locks the folder and returns its descriptor; None if it is locked or removed."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_nlink > 0 and os.path.samestat(os.fstat(lock), os.stat(folder)):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _remove_abandoned(parent: str, prefix: str) -> None:
    for entry in os.scandir(parent):
        if (not entry.name.startswith(prefix) or not entry.is_dir(follow_symlinks=False)
                or entry.stat(follow_symlinks=False).st_uid != os.getuid()):
            continue
        lock = _locked(entry.path)
        if lock is not None:
            shutil.rmtree(entry.path, ignore_errors=True)
            os.close(lock)
