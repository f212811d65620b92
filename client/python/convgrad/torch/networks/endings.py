"""Closes the sessions of networks that were garbage collected."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import threading
import time
import weakref

from convgrad.errors import ConvgradError
from convgrad.sessions.events import EventThread
from convgrad.sessions.session import Session

# At exit, the interpreter waits this long for all sessions together.
_EXIT_SECONDS = 5.0

_numbers = itertools.count()
_finalizers: dict[int, weakref.finalize[..., object]] = {}
_under_way: dict[threading.Event, Session] = {}


def end_with(owner: object, session: Session, thread: EventThread, *, closes: bool) -> None:
    """Makes `thread` end, after closing the session if it `closes` it, when `owner` is garbage
    collected or the interpreter exits. Does nothing in a process that was forked since.

    The collecting thread may hold any lock, so it only notifies `thread`. Requires: neither
    `session` nor `thread` refers to the owner.
    """
    number = next(_numbers)
    finalizer = weakref.finalize(owner, _begin, number, session, thread, closes)
    finalizer.atexit = False  # _end_all calls it and waits
    _finalizers[number] = finalizer


def _begin(number: int, session: Session, thread: EventThread, closes: bool) -> None:
    _finalizers.pop(number, None)
    if not session.is_at_home:
        return
    over = threading.Event()

    def end() -> None:
        try:
            if closes:
                with contextlib.suppress(ConvgradError):
                    session.close()
        finally:
            thread.stop()
            over.set()
            _under_way.pop(over)

    _under_way[over] = session
    thread.later(0, end)


def _end_all() -> None:
    for finalizer in _finalizers.copy().values():
        finalizer()
    until = time.monotonic() + _EXIT_SECONDS
    for over, session in _under_way.copy().items():
        if not over.wait(max(until - time.monotonic(), 0)):
            # The interpreter must not exit while a thread is inside the native module, because
            # that would crash the process. So cancel the calls.
            session.client.close()
            over.wait(_EXIT_SECONDS)


# Python runs exit handlers in reverse order of registration. weakref's own handler stops
# sessions, so this makes weakref register it first.
weakref.finalize(end_with, int).atexit = False
atexit.register(_end_all)
