"""Exports the tensors of a session to a file, and imports them into another session."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from convgrad import operations
from convgrad.attached import Attached
from convgrad.errors import FailedPrecondition
from convgrad.kept import Kept, listed_tensors
from convgrad.layouts import (
    WEIGHT_LAYOUTS,
    Array,
    is_blocked,
    memory_order,
    text_of,
    wire_layout,
)
from convgrad.moving.machine import differences, facts_of
from convgrad.moving.safetensors import Entry, TensorFile, write_tensors
from convgrad.requests import Call, session_call
from convgrad.sessions.methods import plain
from convgrad.sessions.session import Session
from convgrad.sessions.transfers import get_call
from convgrad.v1 import session_pb2

Path = str | os.PathLike[str]

# How often an export tries to see the list and the tensors as of one change.
_MOST_TRIES = 100
_NUMBER, _STATE, _LAYOUTS, _SERVER = (
    f"convgrad.{key}" for key in ("number", "trainer_state", "layouts", "server"))


@dataclass(frozen=True)
class Imported:
    """What a file of export_session() says beside its tensors."""

    number: int | None
    """Number of the exported session's last change; None in a file of another program."""
    trainer_state: bytes
    """The exported trainer_state, also if it wasn't imported."""
    differences: tuple[str, ...]
    """What differs between both servers and may change bits. Empty if nothing is known to."""


def export_session(session: Session | Attached, path: Path, *,
                   trainer_state: bytes = b"") -> int:
    """Writes all tensors of the session, as of one change, to a file of safetensors.

    Returns the number of that change. The tensors have their names in the session: for a remote
    network, torch's names, and NAME#momentum_buffer, NAME#exp_avg, NAME#ema and so on for the
    optimizer's state. Their shapes are logical (N, C, ... or O, I, ...). The file replaces one
    of this name only when it is complete. `trainer_state` is what import_session() gives to the
    other session.

    Errors: FailedPrecondition if the session changes faster than it can be read; OSError.
    """
    facts = facts_of(capabilities(session))
    number, kept, arrays = _snapshot(session)
    layouts = {name: one.descriptor.layout for name, one in kept.items()
               if one.descriptor.layout != "NCX"}
    metadata = {_NUMBER: str(number), _SERVER: json.dumps(facts),
                _STATE: base64.b64encode(trainer_state).decode(), _LAYOUTS: json.dumps(layouts)}
    write_tensors(path, arrays, {key: value for key, value in metadata.items()
                                 if value not in ("", "{}")})
    return number


def import_session(session: Session, path: Path, *, optimizer: bool = True) -> Imported:
    """Puts the tensors of a file of safetensors into the session, in one change, with the
    trainer_state of the export.

    `optimizer=False` takes only parameters and buffers, and leaves the session's other tensors
    as they are. A session without tensors takes all of the file. Otherwise names, shapes and
    dtypes must be the session's.

    Errors: InvalidArgument for a file or a tensor that doesn't fit; nothing has changed then.
    """
    with TensorFile(path) as file:
        kept = session.tensors()
        wanted = check_import(file, kept, optimizer)
        layouts, state = _layouts_of(file), _trainer_state_of(file)
        arrays, order = {}, {}
        for name in wanted:
            known = kept[name].descriptor.layout if name in kept else layouts.get(name, "NCX")
            # No array has a blocked layout's shape in the file.
            order[name] = _logical(known) if is_blocked(known) else known
            arrays[name] = _transposed(file.read(name), order[name])
        found = _differences(file, session)
        session.put(arrays, layouts=order, trainer_state=state if optimizer else b"")
        return Imported(_number_of(file), state, found)


def check_import(file: TensorFile, kept: Mapping[str, Kept], optimizer: bool) -> list[str]:
    """Returns the names that import_session() puts into a session with these tensors.

    Errors: those of import_session().
    """
    wanted = {name: entry for name, entry in file.entries.items()
              if optimizer or "#" not in name}
    if not wanted:
        file.refuse("header", "no tensors to import", "at least one")
    _layouts_of(file), _trainer_state_of(file), _number_of(file)
    if kept:
        missing = next((name for name in kept if name not in wanted
                        and (optimizer or "#" not in name)), None)
        if missing is not None:
            file.refuse("header", f"no '{missing}'",
                        "each tensor of the session; a new session takes any file")
        for name, entry in wanted.items():
            _check_fits(file, name, entry, kept.get(name))
    return list(wanted)


def _check_fits(file: TensorFile, name: str, entry: Entry, kept: Kept | None) -> None:
    if kept is None:
        if "#" not in name:
            file.refuse(f"header.'{name}'", "a tensor", "a name that the session has")
        return
    expected = kept.descriptor
    if (entry.dtype, entry.shape) != (expected.dtype, expected.dims):
        file.refuse(f"header.'{name}'", f"{entry.dtype}{text_of(entry.shape)}",
                    f"{expected.dtype}{text_of(expected.dims)}, as in the session")


def _snapshot(session: Session | Attached) -> tuple[int, dict[str, Kept], dict[str, Array]]:
    """Returns the session's tensors as of one change, and its number."""
    number, kept = _listed(session)
    for _ in range(_MOST_TRIES):
        try:
            got, arrays = _got(session, kept)
        except LookupError:  # dropped since
            got, arrays = -1, {}
        if got == number:
            return number, kept, arrays
        number, after = _listed(session)
        if got == number and after.keys() == kept.keys():
            return number, after, arrays
        kept = after
    raise FailedPrecondition.of(
        "session", f"a change between any two of {_MOST_TRIES} reads",
        "a pause of its trainer, or an export that takes the session over")


def _list_call() -> Call[tuple[int, dict[str, Kept]]]:
    return session_call("ListTensors", session_pb2.ListTensorsRequest(), lambda response: (
        session_pb2.ListTensorsResponse.FromString(response).number, listed_tensors(response)))


def _get_all_call(kept: Mapping[str, Kept]) -> Call[tuple[int, dict[str, Array]]]:
    request = session_pb2.GetTensorsRequest()
    for name, one in kept.items():
        wanted = request.tensors.add(name=name)
        layout = one.descriptor.layout
        if layout != _logical(layout):
            wanted.layout = wire_layout(_logical(layout), "layout")
    return get_call(request, lambda arrays, number: (number, arrays))


# Ask the session's server.
_listed: Any = plain(_list_call)
_got: Any = plain(_get_all_call)
capabilities: Any = plain(operations.capabilities)


def _differences(file: TensorFile, session: Session) -> tuple[str, ...]:
    if _SERVER not in file.metadata:
        return ()
    there = _json_of(file, _SERVER)
    return differences(there, facts_of(capabilities(session)))


def _json_of(file: TensorFile, key: str) -> dict[str, Any]:
    try:
        found = json.loads(file.metadata.get(key, "{}"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        file.refuse(f"header.__metadata__.{key}", "something else", "a JSON object")
    return found


def _layouts_of(file: TensorFile) -> dict[str, str]:
    found = _json_of(file, _LAYOUTS)
    for layout in found.values():
        if not isinstance(layout, str):
            file.refuse(f"header.__metadata__.{_LAYOUTS}", "no names", "names of layouts")
        wire_layout(layout, f"{file.path}: header.__metadata__.{_LAYOUTS}")
    return found


def _trainer_state_of(file: TensorFile) -> bytes:
    try:
        return base64.b64decode(file.metadata.get(_STATE, ""), validate=True)
    except (binascii.Error, ValueError):
        file.refuse(f"header.__metadata__.{_STATE}", "something else", "base64")


def _number_of(file: TensorFile) -> int | None:
    text = file.metadata.get(_NUMBER)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        file.refuse(f"header.__metadata__.{_NUMBER}", "something else", "a number")
    return int(text)


def _logical(layout: str) -> str:
    """Returns the layout of the same role whose shapes are the logical dims."""
    return "OIX" if layout in WEIGHT_LAYOUTS else "NCX"


def _transposed(array: Array, layout: str) -> Array:
    """Returns a logical array as one of the layout."""
    if array.ndim < 2:
        return array
    return np.ascontiguousarray(array.transpose(memory_order(layout, array.ndim)))
