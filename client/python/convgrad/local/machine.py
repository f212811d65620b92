"""Measures the memory and cores that this process may use on its host."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")


def memory_left(root: Path = _ROOT) -> int:
    """Returns the available bytes: the minimum of the host's and of each cgroup of this
    process, with file caches counted as free."""
    left = [_host_left(root)]
    for folder, used, limit, cache in _cgroups(root):
        most = number_in(folder / limit)
        if most is not None:
            spare = _field(folder / "memory.stat", cache) or 0
            left.append(most - (number_in(folder / used) or 0) + spare)
    return max(min(left), 0)


def number_in(path: Path) -> int | None:
    """Returns the number in the file; None if the file is missing or contains none ("max")."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def usable_cores() -> set[int]:
    """Returns the cores of all threads of this process together, because OpenMP may have bound
    the calling thread to a single core."""
    cores: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # one that has just ended
            cores |= os.sched_getaffinity(int(thread))
    return cores or os.sched_getaffinity(0)


@contextlib.contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Runs the calling thread, and processes that it starts meanwhile, on the cores."""
    before = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, before)


def _host_left(root: Path) -> int:
    kibibytes = _field(root / "proc/meminfo", "MemAvailable:")
    if kibibytes is not None:
        return kibibytes * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroups(root: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Yields this process's cgroups and their parents, each with the names of its files for
    used and allowed bytes, and of the reclaimable field in memory.stat."""
    version1 = ("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file")
    version2 = ("memory.current", "memory.max", "inactive_file")
    mounted = root / "sys/fs/cgroup"
    yield mounted, *version2
    yield mounted / "memory", *version1
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, names = ((mounted / "memory", version1) if controllers
                         else (mounted, version2))
        for part in filter(None, path.split("/")):
            folder = folder / part
            yield folder, *names


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""


def _field(path: Path, name: str) -> int | None:
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None
