"""Tapes of runs: what the server keeps for a backward, as long as torch's graph wants it."""

from __future__ import annotations

import collections
import contextlib
import itertools
import secrets
import weakref
from dataclasses import dataclass

import numpy as np
import torch

from convgrad.errors import ConvgradError, unimplemented
from convgrad.sessions.events import EventThread
from convgrad.sessions.session import Session
from convgrad.torch.networks.variants import Variant


@dataclass(frozen=True)
class Tape:
    """What a run has kept on the server."""

    name: str
    variant: Variant
    """The program that ran."""


class Tapes:
    """Names tapes, and drops those whose graph is gone. Thread-safe.

    Autograd saves a token for each tape. It has 63 random bits, by which the tape is found,
    so that a token which is computed again (torch.utils.checkpoint) stands for the tape of
    the run that has made it. The tape stays as long as the token's memory does.
    """

    def __init__(self, session: Session, prefix: str, thread: EventThread) -> None:
        self._session = session
        self._prefix = prefix
        self._numbers = itertools.count()
        self._tapes: dict[int, Tape] = {}
        self._dead: collections.deque[str] = collections.deque()
        self._thread = thread

    def new_name(self) -> str:
        return f"{self._prefix}{next(self._numbers)}"

    def token(self, name: str, variant: Variant) -> torch.Tensor:
        """Returns a tensor for autograd to save. The tape is dropped when that frees it: after
        a backward without retain_graph, or with the graph."""
        memory = np.array([secrets.randbits(63)])
        key = int(memory[0])
        self._tapes[key] = Tape(name, variant)
        weakref.finalize(memory, self._release, key).atexit = False
        return torch.from_numpy(memory)

    def find(self, token: torch.Tensor, variant: Variant) -> str:
        """Returns the name of the tape of a token that autograd has saved.

        Errors: Unimplemented for a copy of a token whose own memory is freed, and for one
        of another program than `variant`.
        """
        tape = self._tapes.get(token.item() if token.numel() == 1 else None)  # type: ignore[arg-type]
        if tape is None:
            raise unimplemented(
                "saved_tensors_hooks", "a copy of what a remote network saves for its backward",
                "hooks that keep the tensor itself, or torch.utils.checkpoint")
        if tape.variant is not variant:
            raise unimplemented(
                "checkpoint", "modules that have changed since the forward",
                "the modes, requires_grad and attributes that the forward has seen")
        return tape.name

    def _release(self, key: int) -> None:
        """May be called with any lock held, by whichever thread frees a graph."""
        self._dead.append(self._tapes.pop(key).name)
        self._thread.later(0, self.drop_dead)

    def drop_dead(self) -> None:
        names = []
        with contextlib.suppress(IndexError):
            while True:
                names.append(self._dead.popleft())
        if names and not self._session.is_lost:
            with contextlib.suppress(ConvgradError):
                self._session.submit(self._session.drop_programs, tapes=names)
