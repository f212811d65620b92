"""Opens files that come from somebody else, or that nobody else may read."""

from __future__ import annotations

import io
import os
import stat

from convgrad.errors import invalid


def private(path: str, flags: int) -> int:
    """Opens a file, or makes one that only its user may read: an opener of open()."""
    return os.open(path, flags, 0o600)


def open_regular(path: str | os.PathLike[str], expected: str) -> tuple[io.FileIO, int]:
    """Opens a file for reading, without a buffer. Returns it with its size in bytes.

    `expected` names what the caller needs, for the error.
    Errors: InvalidArgument for a folder, a device or a pipe; OSError.
    """
    # Without O_NONBLOCK, open() would wait for the other end of a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise invalid("MALFORMED", os.fspath(path), "something else than a file", expected)
    return os.fdopen(descriptor, "rb", buffering=0), status.st_size
