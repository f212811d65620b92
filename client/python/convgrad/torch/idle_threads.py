"""PyTorch's idle threads, kept off the cores that a server on this machine computes on.

After each loop of PyTorch's the threads of GNU's OpenMP turn for some 3 ms, waiting for
the next one, and Intel's for 200 ms: an OMP_WAIT_POLICY that is set too late has no effect.
GNU's turn for some us only where there are more of them than cores; so a thread that
sleeps for ever has a team of its own here, which makes them that many. Intel's can be told.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading

from convgrad.client_base import ClientBase

_LOG = logging.getLogger("convgrad")
_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def quieten_for(client: ClientBase) -> None:
    """Has the OpenMP threads of this process sleep soon after each loop from now on, if the
    client's server is on this host, unless the environment says how they wait. Warns where
    it can't."""
    if client.stays_here and not any(name in os.environ for name in _SETTINGS):
        _quieten(os.getpid())


@functools.lru_cache(maxsize=1)
def _quieten(_pid: int) -> None:
    for path in _loaded():
        try:
            library = ctypes.CDLL(path)
            if hasattr(library, "kmp_set_blocktime"):
                library.kmp_set_blocktime(0)
            else:
                _crowd(library)
        except (OSError, AttributeError) as error:
            _LOG.warning(
                "%s: its idle threads take the local server's cores (%s); set "
                "OMP_WAIT_POLICY=passive before PyTorch is imported", path, error)


def _loaded() -> list[str]:
    """Returns the paths of the OpenMP libraries that the process has."""
    names = ("libgomp", "libiomp", "libomp")
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.rstrip("\n").partition("/")[2] for line in maps}
    return sorted(f"/{path}" for path in paths if path.rpartition("/")[2].startswith(names))


def _crowd(library: ctypes.CDLL) -> None:
    """Gives GNU's OpenMP one thread more than there are cores; they never run again."""
    run, cores = library.GOMP_parallel, library.omp_get_num_procs()
    run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    run.restype = None
    # What each of them does once: a function that takes and changes nothing.
    nothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
    is_done = threading.Event()

    def stay() -> None:
        run(nothing, None, cores + 1, 0)
        is_done.set()
        threading.Event().wait()

    threading.Thread(target=stay, name="convgrad-idle", daemon=True).start()
    is_done.wait()
