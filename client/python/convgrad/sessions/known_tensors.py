"""Caches the descriptors of tensors that a session keeps."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from convgrad.layouts import Descriptor
from convgrad.sessions.changes import Changes


class KnownTensors:
    """Descriptors by name, as submitted or listed. Thread-safe.

    A failed change clears the cache, because submitted tensors may not exist.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._failures = 0
        self._lock = threading.Lock()
        self._descriptors: dict[str, Descriptor] = {}

    def remember(self, tensors: Mapping[str, Descriptor]) -> None:
        with self._lock:
            self._forget_if_failed()
            self._descriptors.update(tensors)

    def forget(self, names: Iterable[str]) -> None:
        """Removes these names, or all names if there are none."""
        with self._lock:
            for name in list(names) or list(self._descriptors):
                self._descriptors.pop(name, None)

    def find(self, name: str) -> Descriptor | None:
        with self._lock:
            self._forget_if_failed()
            return self._descriptors.get(name)

    def _forget_if_failed(self) -> None:
        if self._failures != self._changes.failures:
            self._failures = self._changes.failures
            self._descriptors.clear()
