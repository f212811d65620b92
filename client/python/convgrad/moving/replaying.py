"""Repeats the changes of a recording on a server, and compares the results."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from convgrad.client import Client
from convgrad.errors import ConvgradError
from convgrad.moving.machine import differences, facts_of
from convgrad.moving.transfer import capabilities
from convgrad.requests import Call
from convgrad.sessions.methods import plain
from convgrad.sessions.recording import Recorded, Recording, digests_of, whole
from convgrad.sessions.session import Session

_LONGEST = 255  # of a name that is shown


@dataclass(frozen=True)
class Replayed:
    """What a replay has found."""

    changes: int
    """Number of changes with equal results, from the first on."""
    difference: str
    """The first difference: number of the change, method, and the result or the error. Empty if
    there is none."""
    unknown: int
    """How many of the changes could not be compared, because the recorded reply was lost."""
    is_cut: bool
    """Whether the recording lacks its end, as if its program was killed."""
    differences: tuple[str, ...]
    """What differs between both servers and may change bits. Empty if nothing is known to."""


def replay(client: Client, path: str | os.PathLike[str]) -> Replayed:
    """Repeats the changes of a recording in a new session, up to the first difference, and
    closes the session.

    Errors: InvalidArgument for a file that isn't a recording; those of Client.session().
    """
    with Recording(path) as recording, client.session() as session:
        unlike = differences(recording.server, facts_of(capabilities(session)))
        done = unknown = 0
        difference = ""
        for change in recording.changes:
            difference = _repeated(session, change, recording.messages(change))
            if difference:
                break
            done += 1
            unknown += change.reply is None
        return Replayed(done, difference, unknown, recording.is_cut, unlike)


def _repeated(session: Session, change: Recorded, messages: list[bytes]) -> str:
    """Sends the change, and returns the first difference; empty if there is none."""
    where = f"change {change.sequence}, {change.method}: "
    call = Call(change.method, None if change.is_stream else messages[0],
                lambda response: digests_of(change.method, whole(response)),
                frames=(lambda: iter(messages)) if change.is_stream else None, is_change=True)
    try:
        found: dict[str, str] = _sent(session, call)
    except ConvgradError as error:
        return f"{where}{error.code.name}: {error.message}"
    if change.reply is None:
        return ""
    names = sorted({*found, *change.reply}, key=lambda name: (name != "reply", name))
    other = next((name for name in names if found.get(name) != change.reply.get(name)), None)
    return "" if other is None else f"{where}{ascii(other[:_LONGEST])} has other bits"


_sent: Any = plain(lambda call: call)
