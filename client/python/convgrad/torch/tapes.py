"""Tapes of runs: what the server keeps for a backward, as long as torch's graph wants it."""

from __future__ import annotations

import collections
import contextlib
import itertools
import weakref

import torch

from convgrad.errors import ConvgradError
from convgrad.events import EventThread
from convgrad.sessions import Session


class Tapes:
    """Names tapes, and drops those whose graph is gone. Thread-safe."""

    def __init__(self, session: Session, prefix: str) -> None:
        self._session = session
        self._prefix = prefix
        self._numbers = itertools.count()
        self._dead: collections.deque[str] = collections.deque()
        self._thread = EventThread("convgrad-tapes")
        weakref.finalize(self, self._thread.stop)

    def new_name(self) -> str:
        return f"{self._prefix}{next(self._numbers)}"

    def token(self, name: str) -> torch.Tensor:
        """Returns a tensor for autograd to save. The tape is dropped when that frees it: after
        a backward without retain_graph, or with the graph."""
        token = torch.empty(0)
        weakref.finalize(token, self._release, name).atexit = False
        return token

    def _release(self, name: str) -> None:
        """May be called with any lock held, by whichever thread frees a graph."""
        self._dead.append(name)
        self._thread.later(0, self.drop_dead)

    def drop_dead(self) -> None:
        names = []
        with contextlib.suppress(IndexError):
            while True:
                names.append(self._dead.popleft())
        if names and not self._session.is_lost:
            with contextlib.suppress(ConvgradError):
                self._session.submit(self._session.drop_programs, tapes=names)
