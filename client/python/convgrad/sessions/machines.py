"""Tells when a session goes on on a server that may compute other bits."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable

from convgrad.moving.machine import differences
from convgrad.v1 import session_pb2

_LOG = logging.getLogger("convgrad")


def tell_differences(answer: Iterable[session_pb2.ServerDifference]) -> None:
    """Logs and warns if the server differs from the one that computed the session's state."""
    found = list(answer)
    if not found:
        return
    lines = differences({one.fact: one.there for one in found if one.there},
                        {one.fact: one.here for one in found if one.here})
    text = ("this server may compute other bits than the one that computed the session so far, "
            "within the bounds of proto/correctness.md: " + "; ".join(lines))
    _LOG.warning("%s", text)
    warnings.warn(text, stacklevel=3)
