"""Reads and writes files of the format safetensors.

A file has the length of its header (8 bytes, little-endian), the header (a JSON object with
dtype, shape and offsets of each tensor), and the tensors' bytes.
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import collections
import contextlib
import json
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from convgrad.errors import invalid
from convgrad.files import open_regular
from convgrad.layouts import KEPT_DTYPES, Array, text_of

_DTYPES = {"F32": "f32", "BF16": "bf16", "F16": "f16", "U8": "u8", "U16": "u16", "I64": "i64"}
_NAMES = {KEPT_DTYPES[ours]: theirs for theirs, ours in _DTYPES.items()}
_METADATA = "__metadata__"
_FIELDS = {"dtype", "shape", "data_offsets"}
_LENGTH_BYTES = 8
# The limit of the server's reader. 16,384 names of 255 characters take 6 MiB.
_MOST_HEADER_BYTES = 16 << 20
_ALIGNMENT = 64
_MOST_AXES = 32  # of a NumPy array
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Entry:
    """The place of a tensor in a file."""

    dtype: str
    """Its name in KEPT_DTYPES."""
    shape: tuple[int, ...]
    begin: int
    """Offset from the end of the header."""
    end: int


class TensorFile:
    """An open file, whose header was checked. Owned by one thread.

    Errors: InvalidArgument naming the file and the field for anything else than a file of
    safetensors with dtypes that sessions keep; OSError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._file, size = open_regular(self.path, "a file of safetensors")
        try:
            length = self._length(size)
            self._start = _LENGTH_BYTES + length
            self.entries, self.metadata = self._parsed(
                self._next_bytes(length).tobytes(), size - self._start)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def read(self, name: str) -> Array:
        """Returns a tensor of the file."""
        entry = self.entries[name]
        self._file.seek(self._start + entry.begin)
        found = self._next_bytes(entry.end - entry.begin)
        return found.view(KEPT_DTYPES[entry.dtype]).reshape(entry.shape)

    def refuse(self, field: str, found: object, expected: object) -> NoReturn:
        """Raises the error for a field of the file."""
        raise invalid("MALFORMED", f"{self.path}: {field}" if field else self.path,
                      found, expected)

    def _length(self, file_bytes: int) -> int:
        most = min(_MOST_HEADER_BYTES, file_bytes - _LENGTH_BYTES)
        if most < 0:
            self.refuse("header length", f"a file of {file_bytes} bytes", "at least 8")
        length = int.from_bytes(self._next_bytes(_LENGTH_BYTES).data, "little")
        if length > most:
            self.refuse("header length", length, f"at most {most}")
        return length

    def _next_bytes(self, count: int) -> Array:
        found = np.fromfile(self._file, np.uint8, count)
        if len(found) != count:
            self.refuse("", "a file that became shorter", "the bytes of its header")
        return found

    def _parsed(self, text: bytes, data_bytes: int) -> tuple[dict[str, Entry], dict[str, str]]:
        def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            found = dict(pairs)
            if len(found) < len(pairs):
                counts = collections.Counter(name for name, _ in pairs)
                twice = counts.most_common(1)[0][0]
                self.refuse(f"header.{_shown(twice)}", "the key twice", "once")
            return found

        try:
            header = json.loads(text.decode(), object_pairs_hook=once)
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            self.refuse("header", f"no JSON ({str(error)[:80]})", "a JSON object")
        except ValueError as error:
            if hasattr(error, "code"):  # one of ours
                raise
            self.refuse("header", "a number of thousands of digits", "a JSON object")
        if not isinstance(header, dict):
            self.refuse("header", f"a {type(header).__name__}", "a JSON object")
        metadata = header.pop(_METADATA, {})
        if not isinstance(metadata, dict) or not all(
                isinstance(value, str) for value in metadata.values()):
            self.refuse(f"header.{_METADATA}", "something else", "an object of strings")
        entries = {name: self._entry(name, fields) for name, fields in header.items()}
        self._check_covered(entries, data_bytes)
        return entries, metadata

    def _entry(self, name: str, fields: Any) -> Entry:
        where = f"header.{_shown(name)}"
        if not isinstance(fields, dict) or fields.keys() != _FIELDS:
            self.refuse(where, "other keys" if isinstance(fields, dict) else "no object",
                        "dtype, shape and data_offsets")
        dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            self.refuse(f"{where}.dtype", _shown(dtype), ", ".join(_DTYPES))
        if not _are_sizes(shape) or len(shape) > _MOST_AXES:
            self.refuse(f"{where}.shape", _shown(shape),
                        f"at most {_MOST_AXES} extents below 2^63")
        if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            self.refuse(f"{where}.data_offsets", _shown(offsets), "a begin and an end")
        item_bytes = KEPT_DTYPES[_DTYPES[dtype]].itemsize
        # An axis of 0 hides no others that NumPy couldn't take.
        if math.prod(max(extent, 1) for extent in shape) * item_bytes > _LARGEST:
            self.refuse(f"{where}.shape", text_of(shape), "a size below 2^63 bytes")
        size = math.prod(shape) * item_bytes
        if size != offsets[1] - offsets[0]:
            self.refuse(where, f"{offsets[1] - offsets[0]} bytes",
                        f"{size}, as dtype and shape have")
        return Entry(_DTYPES[dtype], tuple(shape), *offsets)

    def _check_covered(self, entries: Mapping[str, Entry], data_bytes: int) -> None:
        """Checks that each byte behind the header belongs to exactly one tensor."""
        end = 0
        in_order = sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end))
        for name, entry in in_order:
            if entry.begin != end:
                kind = "an overlap" if entry.begin < end else "a hole before"
                self.refuse(f"header.{_shown(name)}.data_offsets",
                            f"{entry.begin} ({kind})", end)
            end = entry.end
        if end != data_bytes:
            self.refuse("header", f"tensors of {end} bytes",
                        f"{data_bytes}, as the file has")


def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Array],
                  metadata: Mapping[str, str]) -> None:
    """Writes the file, and replaces one of this name. After an error or a crash, the file of
    this name is the one before, or there is none.

    Errors: InvalidArgument for a name that a file can't have, and for a path of something else
    than a file; OSError.
    """
    with _replacing(os.fspath(path)) as file:
        file.write(_header(tensors, metadata))
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _header(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    begin = 0
    for name, array in tensors.items():
        if name == _METADATA:
            raise invalid("OUT_OF_RANGE", "tensors", f"'{name}'", "another name")
        header[name] = dict(dtype=_NAMES[array.dtype], shape=list(array.shape),
                            data_offsets=[begin, begin + array.nbytes])
        begin += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    padding = -(_LENGTH_BYTES + len(text)) % _ALIGNMENT
    return (len(text) + padding).to_bytes(_LENGTH_BYTES, "little") + text + b" " * padding


def check_target(path: str) -> int | None:
    """Returns the mode of the file that write_tensors() would replace; None if there is none.

    Errors: those of write_tensors() for the path.
    """
    os.stat(_folder_of(path))
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise invalid("OUT_OF_RANGE", path, "a link, a folder or a device",
                      "a file, or a new name")
    return mode


def _folder_of(path: str) -> str:
    return os.path.dirname(path) or "."


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[Any]:
    """Yields a file that takes the place and permissions of `path` if the block succeeds."""
    mode = check_target(path)
    folder = _folder_of(path)
    beside = os.path.join(folder, f".convgrad-{secrets.token_hex(8)}")
    try:
        with open(beside, "xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _are_sizes(value: Any) -> bool:
    # A bool is an int for isinstance().
    return isinstance(value, list) and all(
        type(one) is int and 0 <= one <= _LARGEST for one in value)


def _shown(value: Any) -> str:
    """Returns a value of a file for an error: short, without control characters."""
    if isinstance(value, list) and len(value) > _MOST_AXES:
        return f"a list of {len(value)}"
    text = ascii(value)
    return text if len(text) <= 64 else text[:64] + "..."
