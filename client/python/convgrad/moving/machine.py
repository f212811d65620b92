"""Tells whether two servers compute the same bits, as far as their capabilities say."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from convgrad.v1 import capabilities_pb2, session_pb2

_LOG = logging.getLogger("convgrad")
_LONGEST = 80  # of a text in a file that is shown


def facts_of(answer: capabilities_pb2.GetCapabilitiesResponse) -> dict[str, str]:
    """Returns what decides the bits of the server's results, by name."""
    facts = {"server": answer.server_version,
             "threads_per_worker": str(answer.threads_per_worker),
             "fast_convolutions": str(answer.fast_convolutions).lower()}
    if answer.cpu_model:
        facts["cpu"] = answer.cpu_model
    for backend in answer.backends:
        if backend.available and backend.name != "reference":
            facts[backend.name] = " ".join(
                (backend.version, backend.description, *sorted(backend.cpu_features)))
    return facts


def differences(there: Mapping[str, Any], here: Mapping[str, str]) -> tuple[str, ...]:
    """Returns a line for each fact in which the exporting server differs from this one."""
    names = sorted(name for name in {*there, *here} if there.get(name) != here.get(name))
    return tuple(f"{_shown(name)}: {_shown(there.get(name))} there, "
                 f"{_shown(here.get(name))} here" for name in names)


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


def _shown(fact: Any) -> str:
    text = ascii(fact).strip("'")
    return "none" if fact is None else text[:_LONGEST]
