"""Keeps PyTorch's idle threads off the cores on which a server on this machine computes.

After each loop of PyTorch, GNU's OpenMP threads spin for about 3 ms until the next one, Intel's
for 200 ms. Setting OMP_WAIT_POLICY after the library's start has no effect. GNU's threads spin
for only some us if there are more threads than cores; therefore a thread that sleeps forever
gets its own team here. Intel's library has a function to set the time.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading

from convgrad.client_base import ClientBase
from convgrad.connections.addresses import is_of_this_host

_LOG = logging.getLogger("convgrad")
_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def quieten_for(client: ClientBase) -> None:
    """Makes this process's OpenMP threads sleep soon after each loop, if the client's server is
    on this host. Does nothing if environment variables define how they wait. Warns on failure.
    """
    is_here = all(map(is_of_this_host, client.targets))
    if is_here and not any(name in os.environ for name in _SETTINGS):
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
    """Returns the paths of the process's OpenMP libraries."""
    names = ("libgomp", "libiomp", "libomp")
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.rstrip("\n").partition("/")[2] for line in maps}
    return sorted(f"/{path}" for path in paths if path.rpartition("/")[2].startswith(names))


def _crowd(library: ctypes.CDLL) -> None:
    """Gives GNU's OpenMP one thread more than there are cores, in a team that runs once."""
    run, cores = library.GOMP_parallel, library.omp_get_num_procs()
    run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    run.restype = None
    # The function that each thread calls once; it has no arguments and changes nothing.
    nothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
    is_done = threading.Event()

    def stay() -> None:
        run(nothing, None, cores + 1, 0)
        is_done.set()
        threading.Event().wait()

    threading.Thread(target=stay, name="convgrad-idle", daemon=True).start()
    is_done.wait()
