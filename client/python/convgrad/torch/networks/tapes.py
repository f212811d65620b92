"""Names tapes and drops them together with torch's graph.

A tape contains the values of a run that the server keeps for its backward.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import secrets
import threading
import weakref

import numpy as np
import torch

from convgrad.errors import ConvgradError, unimplemented
from convgrad.sessions.events import EventThread
from convgrad.sessions.session import Session
from convgrad.torch.networks.importing import Variant


class Tapes:
    """Names tapes, and drops a tape when torch frees its graph. Thread-safe.

    Autograd saves a token for each tape, a tensor of 63 random bits that identify the tape. If
    torch.utils.checkpoint computes the forward again, the new token names the new run's tape.
    The server keeps the tape as long as the token's memory exists.
    """

    def __init__(self, session: Session, prefix: str, thread: EventThread) -> None:
        self._session = session
        self._prefix = prefix
        self._numbers = itertools.count()
        # By the token's number, the tape's name and the program that ran.
        self._tapes: dict[int, tuple[str, Variant]] = {}
        self._dead: collections.deque[str] = collections.deque()
        self._thread = thread
        # Held while tapes are dropped, so that a caller of drop_dead() sends changes behind
        # those drops that another thread has begun.
        self._dropping = threading.Lock()

    def new_name(self) -> str:
        return f"{self._prefix}{next(self._numbers)}"

    def token(self, name: str, variant: Variant) -> torch.Tensor:
        """Returns a token for autograd to save. The tape is dropped when autograd frees the
        token: after a backward without retain_graph, or with the graph."""
        memory = np.array([secrets.randbits(63)])
        key = int(memory[0])
        self._tapes[key] = name, variant
        weakref.finalize(memory, self._release, key).atexit = False
        return torch.from_numpy(memory)

    def find(self, token: torch.Tensor, variant: Variant) -> str:
        """Returns the name of a token's tape.

        Errors: Unimplemented for a copy of a token whose own memory is freed, or a token of
        another program than `variant`.
        """
        tape = self._tapes.get(token.item() if token.numel() == 1 else None)  # type: ignore[arg-type]
        if tape is None:
            raise unimplemented(
                "saved_tensors_hooks", "a copy of what a remote network saves for its backward",
                "hooks that keep the tensor itself, or torch.utils.checkpoint")
        name, ran = tape
        if ran is not variant:
            raise unimplemented(
                "checkpoint", "modules that have changed since the forward",
                "the modes, requires_grad and attributes that the forward has seen")
        return name

    def _release(self, key: int) -> None:
        """Runs on the thread that frees the graph, which may hold any lock; so never blocks."""
        self._dead.append(self._tapes.pop(key)[0])
        self._thread.later(0, self.drop_dead)

    def drop_dead(self) -> None:
        if not self._session.is_at_home:  # in a fork, the lock may be held forever
            return
        with self._dropping:
            names = [self._dead.popleft() for _ in range(len(self._dead))]
            if names and not self._session.is_lost:
                with contextlib.suppress(ConvgradError):
                    self._session.submit(self._session.drop_programs, tapes=names)
