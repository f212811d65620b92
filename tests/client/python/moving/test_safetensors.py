"""Tests files of safetensors: what is written, and files that a stranger made."""

import json
import os
import random
import resource
import stat
import struct

import ml_dtypes
import numpy as np
import pytest

import convgrad
from convgrad.moving import safetensors
from convgrad.moving.safetensors import TensorFile, write_tensors

TENSORS = {
    "layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "half": np.arange(4).astype(ml_dtypes.bfloat16), "f16": np.ones((1, 2), np.float16),
    "step": np.array(7), "empty": np.zeros((0, 3), np.float32),
    "image": np.arange(5, dtype=np.uint8), "wide": np.arange(3, dtype=np.uint16),
    'quo"te': np.zeros(1, np.float32)}


def file_of(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(**changes):
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, mode):
    (tmp_path / "x").touch()
    (tmp_path / "x").chmod(mode)
    write_tensors(tmp_path / "x", TENSORS, {})
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == mode


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    write_tensors(tmp_path / "x", TENSORS, {})
    os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_what_is_written_is_read(tmp_path):
    write_tensors(tmp_path / "x", TENSORS, {"number": "3"})
    with TensorFile(tmp_path / "x") as file:
        assert file.metadata == {"number": "3"} and file.entries.keys() == TENSORS.keys()
        for name, array in TENSORS.items():
            np.testing.assert_array_equal(file.read(name), array, strict=True)


def test_a_file_has_the_bytes_that_the_format_says(tmp_path):
    write_tensors(tmp_path / "x", {"a": np.array([1.0, 2.0], np.float32)}, {"k": "v"})
    found = (tmp_path / "x").read_bytes()
    length, = struct.unpack("<Q", found[:8])
    assert json.loads(found[8:8 + length]) == {
        "__metadata__": {"k": "v"},
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    assert (8 + length) % 64 == 0 and found[8:9] == b"{"
    assert found[8 + length:] == struct.pack("<2f", 1, 2)


HEADERS = {
    "repeated": b'{"a":%s,"a":%s}' % ((json.dumps(entry()).encode(),) * 2),
    # Looking for the key takes no quadratic time.
    "repeated_last": b"{%s}" % b",".join(b'"%d":0' % min(i, 199999) for i in range(200001)),
    "repeated_field": b'{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
    "no_json": b"{", "a_list": b"[]", "deep": b"[" * 100000, "text": b"\xff\xff",
    "digits": b'{"a":{"dtype":"F32","shape":[' + b"9" * 9999 + b'],"data_offsets":[0,8]}}',
    "huge": {"a": entry(shape=[2**63])},
    "product": {"a": entry(shape=[2**32, 2**32])},
    "hidden_by_zero": {"a": entry(shape=[0, 2**62, 2**62], data_offsets=[0, 0])},
    "negative": {"a": entry(shape=[-2])}, "bool": {"a": entry(shape=[True, 2])},
    "float": {"a": entry(shape=[2.0])}, "no_shape": {"a": entry(shape=None)},
    "axes": {"a": entry(shape=[1] * 33 + [2])},
    "dtype": {"a": entry(dtype="F64", shape=[1])}, "no_dtype": {"a": entry(dtype=["F32"])},
    "fewer_bytes": {"a": entry(data_offsets=[0, 4])},
    "backwards": {"a": entry(data_offsets=[8, 0])},
    "past_the_end": {"a": entry(data_offsets=[8, 16])},
    "one_offset": {"a": entry(data_offsets=[8])},
    "overlap": {"a": entry(), "b": entry(shape=[1], data_offsets=[4, 8])},
    "hole": {"b": entry(shape=[1], data_offsets=[4, 8])},
    "uncovered": {"a": entry(shape=[1], data_offsets=[0, 4])},
    "unknown_key": {"a": entry(more=1)}, "no_object": {"a": 1},
    "metadata": {"__metadata__": {"k": 1}, "a": entry()},
    "metadata_list": {"__metadata__": [], "a": entry()},
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_wrong_header_is_refused(tmp_path, header):
    file_of(tmp_path / "x", {"a": entry()}, bytes(8))
    TensorFile(tmp_path / "x").__exit__()
    file_of(tmp_path / "x", header, bytes(8))
    with pytest.raises(convgrad.InvalidArgument, match=f"{tmp_path}/x: header") as error:
        TensorFile(tmp_path / "x")
    assert len(str(error.value)) < 400


def test_a_file_whose_name_is_no_utf8_is_named(tmp_path):
    path = file_of(tmp_path / os.fsdecode(b"\xff"), b"{")
    with pytest.raises(convgrad.InvalidArgument) as error:
        TensorFile(path)
    assert error.value.field == f"{path}: header"


@pytest.mark.parametrize("content", [
    b"", b"1234567", struct.pack("<Q", 2**64 - 1) + b"{}", struct.pack("<Q", 2**63) + b"{}",
    struct.pack("<Q", 3) + b"{}"])
def test_a_length_beyond_the_file_is_refused(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(convgrad.InvalidArgument, match="header length"):
        TensorFile(tmp_path / "x")


def test_each_truncation_is_refused(tmp_path):
    write_tensors(tmp_path / "x", TENSORS, {})
    whole = (tmp_path / "x").read_bytes()
    for size in range(len(whole)):
        (tmp_path / "x").write_bytes(whole[:size])
        with pytest.raises(convgrad.InvalidArgument):
            TensorFile(tmp_path / "x")


def test_a_large_file_with_a_wrong_length_takes_no_memory(tmp_path):
    with open(tmp_path / "x", "wb") as file:
        file.write(struct.pack("<Q", 2**40))
        file.truncate(2**41)  # sparse
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(convgrad.InvalidArgument, match="at most 16777216"):
        TensorFile(tmp_path / "x")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096


def test_flipped_bytes_are_refused_or_read_within_the_file(tmp_path):
    write_tensors(tmp_path / "x", TENSORS, {"k": "v"})
    whole = (tmp_path / "x").read_bytes()
    pick = random.Random(3)
    for _ in range(1000):
        flipped = bytearray(whole)
        for _ in range(pick.randint(1, 3)):
            flipped[pick.randrange(len(whole))] = pick.choice(b'{}[]",:0129-\x00\xff')
        (tmp_path / "x").write_bytes(flipped)
        try:
            with TensorFile(tmp_path / "x") as file:
                assert sum(file.read(name).nbytes for name in file.entries) <= len(whole)
        except convgrad.InvalidArgument:
            pass


def test_a_file_that_becomes_shorter_is_refused(tmp_path):
    write_tensors(tmp_path / "x", TENSORS, {})
    with TensorFile(tmp_path / "x") as file:
        os.truncate(tmp_path / "x", 64)
        with pytest.raises(convgrad.InvalidArgument, match="became shorter"):
            file.read("layer.weight")


def test_only_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises((convgrad.InvalidArgument, OSError)):
            TensorFile(path)
    with pytest.raises(FileNotFoundError):
        TensorFile(tmp_path / "none")


def test_a_failed_write_leaves_the_file_before(tmp_path, monkeypatch):
    write_tensors(tmp_path / "x", {"a": np.ones(2, np.float32)}, {})
    before = (tmp_path / "x").read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    for call in ("fsync", "replace"):
        with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
            patched.setattr(safetensors.os, call, fail)
            write_tensors(tmp_path / "x", TENSORS, {})
        assert os.listdir(tmp_path) == ["x"] and (tmp_path / "x").read_bytes() == before
    with pytest.raises(convgrad.InvalidArgument, match="__metadata__"):
        write_tensors(tmp_path / "x", {"__metadata__": np.ones(1, np.float32)}, {})
    assert (tmp_path / "x").read_bytes() == before


def test_a_write_follows_no_link_and_replaces_no_device(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder", "/dev/null"):
        with pytest.raises(convgrad.InvalidArgument, match="a link, a folder or a device"):
            write_tensors(tmp_path / name, TENSORS, {})
    assert (tmp_path / "precious").read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "precious"]
