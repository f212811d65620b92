"""Writes recordings of sessions while they are used."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from convgrad import operations
from convgrad.caller import Caller
from convgrad.errors import FailedPrecondition
from convgrad.files import private
from convgrad.moving.machine import facts_of
from convgrad.requests import Call
from convgrad.sessions.attempts import Change
from convgrad.sessions.recording import MAGIC, REPLIES, digests_of, part_of, whole
from convgrad.wire import Response, joined

_LOG = logging.getLogger("convgrad")
_VARIABLE = "CONVGRAD_RECORD"
_numbers = itertools.count(1)


class Recorder:
    """Writes the committed changes of one session to a new file. Thread-safe.

    A file that can't be written ends the recording with a warning, and not the session.
    """

    def __init__(self, path: str, server: Mapping[str, str]) -> None:
        """Makes the file, which only its user may read. `server`: see facts_of().

        Errors: FailedPrecondition.
        """
        self.path = path
        # Reentrant, because a garbage collector that ends the session calls close().
        self._lock = threading.RLock()
        try:
            self._file = open(path, "xb", buffering=0, opener=private)
            self._write(MAGIC + part_of({"server": dict(server)}))
        except OSError as error:
            raise FailedPrecondition.of(
                _VARIABLE, f"'{path}' ({error.strerror})", "a folder in which files can be "
                "made") from None

    def note(self, change: Change, response: Response | None) -> Response | None:
        """Writes a committed change, unless it was committed before, and returns its response;
        None: nobody has it."""
        if change.is_repeat or change.kept is None:
            return response
        if response is not None:
            response = whole(response)
        with self._lock:
            try:
                if not self._file.closed:
                    self._add(change.sequence, change.kept, response)
            except Exception as error:  # the caller waits for its answer
                _LOG.warning("%s: %s; the recording ends here", self.path, error)
                self._file.close()
        return response

    def _add(self, sequence: int, call: Call[Any], response: bytes | None) -> None:
        if call.method not in REPLIES:
            raise LookupError(f"change {sequence} is a {call.method}, which no other session "
                              "can repeat")
        digests = None
        if response is not None:
            with contextlib.suppress(ValueError, DecodeError):  # the caller gets an error
                digests = digests_of(call.method, response)
        messages = ([joined(call.message)] if call.message is not None
                    else [] if call.frames is None else list(call.frames()))
        head = {"sequence": sequence, "method": call.method,
                "sizes": [len(message) for message in messages], "reply": digests}
        self._write(part_of(head, messages))

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def discard(self) -> None:
        """Removes the file."""
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def _write(self, part: bytes) -> None:
        left = memoryview(part)
        while left:
            left = left[self._file.write(left) or 0:]


def new_recorder(client: Caller) -> Recorder | None:
    """Returns the recorder of a session to open; None if this process doesn't record."""
    folder = os.environ.get(_VARIABLE)
    if not folder:
        return None
    name = f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{next(_numbers)}.recording"
    return Recorder(os.path.join(folder, name), facts_of(client.run(operations.capabilities())))


def note_unrecorded() -> None:
    """Warns that a resumed session isn't recorded, if this process records sessions."""
    if os.environ.get(_VARIABLE):
        _LOG.warning("%s: the session was resumed and isn't recorded; expected a session that "
                     "this process opens", _VARIABLE)
