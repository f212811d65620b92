"""Tests exports of sessions to files, and imports into sessions of another server."""

import base64
import json
import threading

import ml_dtypes
import numpy as np
import pytest
from server_process import ServerProcess

import convgrad
from convgrad.moving import transfer
from convgrad.moving.machine import differences
from convgrad.moving.safetensors import TensorFile, write_tensors

W = np.arange(36, dtype=np.float32).reshape(2, 2, 3, 3)
TENSORS = {"w": W, "b": np.zeros(2, ml_dtypes.bfloat16), "steps": np.array(3),
           "w#momentum_buffer": -W, "w#step": np.array(4), "#randomness": np.array([5, 6])}


@pytest.fixture
def session(client):
    with client.session() as session:
        session.put(TENSORS)
        yield session


@pytest.fixture(scope="module")
def elsewhere():
    process = ServerProcess()
    with convgrad.Client(process.address, timeout=60) as client:
        yield client
    process.kill()


def held(session):
    return {name: (session.get(name).tobytes(), kept.descriptor)
            for name, kept in session.tensors().items()}


def test_another_server_has_the_same_tensors(session, elsewhere, tmp_path):
    session.put("x", np.ones((1, 3), np.float32))
    number = convgrad.export_session(session, tmp_path / "x", trainer_state=b"\0state")
    assert number == session.number == 2
    with elsewhere.session() as moved:
        found = convgrad.import_session(moved, tmp_path / "x")
        assert held(moved) == held(session) and moved.number == 1
        assert found == convgrad.Imported(2, b"\0state", ())
        with elsewhere.session(resume=moved.id) as resumed:
            assert resumed.trainer_state == b"\0state"


def test_layouts_are_those_of_the_session(session, elsewhere, tmp_path):
    rows, x = W.transpose(0, 2, 3, 1), np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    session.put({"oxi": rows, "xio": W.transpose(2, 3, 1, 0), "nxc": x},
                layouts={"oxi": "OXI", "xio": "XIO", "nxc": "NXC"})
    convgrad.export_session(session, tmp_path / "x")
    with TensorFile(tmp_path / "x") as file:
        np.testing.assert_array_equal(file.read("oxi"), W)
        np.testing.assert_array_equal(file.read("xio"), W)
        np.testing.assert_array_equal(file.read("nxc"), x.transpose(0, 3, 1, 2))
    with elsewhere.session() as moved:
        convgrad.import_session(moved, tmp_path / "x")
        assert held(moved) == held(session)


def test_an_attached_session_is_exported_while_it_is_trained(client, session, tmp_path):
    done = threading.Event()

    def train(step):
        """Makes the changes 3 * step - 1 to 3 * step + 1."""
        session.put({"w": np.full_like(W, step), "w#momentum_buffer": np.full_like(W, step)})
        session.put(f"{step}#gradient", W)
        session.drop(f"{step}#gradient")

    def train_on():
        step = 1
        while not done.wait(0.002):
            step += 1
            train(step)

    train(1)
    thread = threading.Thread(target=train_on)
    thread.start()
    try:
        with client.attach(session.id) as attached:
            for _ in range(20):
                number = convgrad.export_session(attached, tmp_path / "x")
                with TensorFile(tmp_path / "x") as file:
                    weights = file.read("w")
                    np.testing.assert_array_equal(weights, file.read("w#momentum_buffer"))
                    step = int(weights.flat[0])
                    assert abs(number - 3 * step) <= 1 and (weights == step).all()
                    assert (f"{step}#gradient" in file.entries) == (number == 3 * step)
    finally:
        done.set()
        thread.join()


def test_a_change_between_list_and_tensors_is_noticed(session, tmp_path, monkeypatch):
    got, changes = transfer._got, []

    def change_first(*arguments):
        if len(changes) < most:
            changes.append(f"{len(changes)}#gradient")
            session.put(changes[-1], W)
        return got(*arguments)

    monkeypatch.setattr(transfer, "_got", change_first)
    most = 3
    assert convgrad.export_session(session, tmp_path / "x") == session.number == 4
    with TensorFile(tmp_path / "x") as file:
        assert file.entries.keys() == TENSORS.keys() | set(changes)
    most = 1000
    with pytest.raises(convgrad.FailedPrecondition, match="a change between any two of 100"):
        convgrad.export_session(session, tmp_path / "y")
    assert not (tmp_path / "y").exists()


def test_without_the_optimizer(session, elsewhere, tmp_path):
    convgrad.export_session(session, tmp_path / "x", trainer_state=b"state")
    with elsewhere.session() as moved:
        moved.put({"w": W + 1, "b": TENSORS["b"], "steps": np.array(1), "w#step": np.array(9)})
        convgrad.import_session(moved, tmp_path / "x", optimizer=False)
        assert moved.number == 2
        np.testing.assert_array_equal(moved.get("w"), W)
        assert moved.get("w#step") == 9 and "w#momentum_buffer" not in moved.tensors()
        with elsewhere.session(resume=moved.id) as resumed:
            assert resumed.trainer_state == b""


def without(name):
    return {key: value for key, value in TENSORS.items() if key != name}


@pytest.mark.parametrize("change, message", [
    (lambda: without("b"), "header: found no 'b', expected each tensor of the session"),
    (lambda: without("w#step"), "found no 'w#step'"),
    (lambda: TENSORS | {"other": W}, "header.'other': found a tensor, expected a name"),
    (lambda: TENSORS | {"w": W[:1]},
     r"header.'w': found f32\[1,2,3,3\], expected f32\[2,2,3,3\], as in the session"),
    (lambda: TENSORS | {"w": W.reshape(-1)}, r"header.'w': found f32\[36\]"),
    (lambda: TENSORS | {"b": np.zeros(2, np.float32)},
     r"header.'b': found f32\[2\], expected bf16\[2\]"),
    (lambda: TENSORS | {"w#step": np.array([4, 4])}, r"header.'w#step': found i64\[2\]"),
    (dict, "header: found no tensors")])
def test_what_does_not_fit_changes_nothing(session, tmp_path, change, message):
    write_tensors(tmp_path / "x", change(), {})
    before, number = held(session), session.number
    with pytest.raises(convgrad.InvalidArgument, match=message):
        convgrad.import_session(session, tmp_path / "x")
    assert held(session) == before and session.number == number


@pytest.mark.parametrize("key, value", [
    ("number", "-1"), ("number", "9" * 30), ("trainer_state", "?"), ("layouts", "[]"),
    ("layouts", '{"w": 1}'), ("layouts", '{"w": "ABC"}'), ("layouts", "[" * 99999),
    ("server", "x")])
def test_metadata_of_a_stranger_changes_nothing(client, tmp_path, key, value):
    write_tensors(tmp_path / "x", TENSORS, {f"convgrad.{key}": value})
    with client.session() as session, \
            pytest.raises(convgrad.InvalidArgument, match=f"__metadata__.convgrad.{key}"):
        convgrad.import_session(session, tmp_path / "x")
    assert session.number == 0


def test_names_and_states_that_sessions_refuse_change_nothing(client, tmp_path):
    for names, metadata in (
            ("a/b", {}), ("n" * 256, {}), ("w", {"convgrad.trainer_state": base64.b64encode(
                bytes(65537)).decode()})):
        write_tensors(tmp_path / "x", {"first": W, names: W}, metadata)
        with client.session() as session:
            with pytest.raises(convgrad.InvalidArgument):
                convgrad.import_session(session, tmp_path / "x")
            assert session.tensors() == {} and session.number == 0


def test_files_of_other_programs_and_other_servers(client, session, tmp_path):
    write_tensors(tmp_path / "x", {"w": W}, {"format": "pt"})
    with client.session() as other:
        found = convgrad.import_session(other, tmp_path / "x")
        assert found == convgrad.Imported(None, b"", ())
    write_tensors(tmp_path / "x", {"w": W}, {"convgrad.server": json.dumps(
        {"onednn": "3.1.0 another CPU", "server": "0.0.1"})})
    with client.session() as other:
        found = convgrad.import_session(other, tmp_path / "x").differences
    assert [line.partition(":")[0] for line in found] == [
        "cpu", "fast_convolutions", "onednn", "server", "threads_per_worker"]
    assert found[2].startswith("onednn: 3.1.0 another CPU there, ")


def test_differences_show_no_text_of_a_stranger_as_it_is():
    line, = differences({"a\n": "b\x1b" + "c" * 999}, {})
    assert line.isprintable() and len(line) < 200


def test_a_tensor_larger_than_a_message(tmp_path):
    process = ServerProcess("--max_message_bytes=1MiB")
    large = np.arange(1 << 19, dtype=np.float32).reshape(2, -1)
    with convgrad.Client(process.address, timeout=60) as client, client.session() as session:
        session.put({"a": large, "b": -large})
        assert convgrad.export_session(session, tmp_path / "x") == 1
        with client.session() as moved:
            convgrad.import_session(moved, tmp_path / "x")
            np.testing.assert_array_equal(moved.get("b"), -large)
            assert moved.number == 1
    process.kill()
