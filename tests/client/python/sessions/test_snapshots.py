"""Snapshots with names: a real server keeps them, restores them and drops them."""

import asyncio
import contextlib
import itertools
import os
import pathlib
import threading

import grpc
import numpy as np
import pytest
from server_process import ServerProcess

import convgrad
import convgrad.aio
from convgrad.v1 import session_pb2

A, B, C = (np.full(3, value, np.float32) for value in (1, 2, 3))
FLAGS = "--max_client_kept_bytes=64KiB", "--snapshot_interval=1h"


@pytest.fixture
def server(tmp_path):
    process = ServerProcess(f"--state_dir={tmp_path}/state", "--snapshot_interval=1h")
    yield process
    process.kill()


@pytest.fixture
def client(server):
    with convgrad.Client(server.address) as client:
        yield client


@pytest.fixture
def session(client):
    with client.session(durable=True) as session:
        session.put({"w": A, "old": A}, trainer_state=b"at a")
        yield session


def files(tmp_path):
    """Returns the names of the session's files."""
    return sorted(path.name for path in (tmp_path / "state/sessions").glob("*/*"))


def names(client):
    return {name: number for one in client.sessions() for name, number in one.snapshots.items()}


def restart(server):
    server.kill()
    server.restart()


def test_a_session_goes_back_to_a_snapshot_in_one_change(client, session):
    assert session.save_state("best") == 1
    session.drop("old")
    session.put({"w": B, "new": B}, trainer_state=b"at b")
    session.save_state("second")
    assert names(client) == {"best": 1, "second": 3}
    assert session.restore_state("best") == b"at a"
    assert session.number == 4
    kept = session.tensors()
    assert {name: one.version for name, one in kept.items()} == {"w": 4, "old": 4}
    np.testing.assert_array_equal(session.get("w"), A)
    assert session.restore_state("second") == b"at b"
    np.testing.assert_array_equal(session.get("new"), B)
    assert session.tensors().keys() == {"w", "new"}


def test_a_snapshot_survives_a_kill_and_later_snapshots(server, client, session):
    session.save_state("best")
    for value in (B, C, B):
        session.put("w", value, trainer_state=b"later")
        session.save_state()
    restart(server)
    assert names(client) == {"best": 1}
    assert session.restore_state("best") == b"at a"
    np.testing.assert_array_equal(session.get("w"), A)


def test_a_client_that_resumes_gets_what_was_restored(server, client, session):
    session.save_state("best")
    session.put("w", B, trainer_state=b"at b")
    session.restore_state("best")
    session.save_state()
    restart(server)
    resumed = client.session(resume=session.id, keep_open=True)
    assert (resumed.number, resumed.trainer_state) == (3, b"at a")


@pytest.mark.parametrize("then", ["nothing", "drop", "replace"])
def test_a_restore_takes_effect_once_through_a_kill(server, client, session, then):
    session.save_state("best")
    session.put("w", B, trainer_state=b"at b")
    session.restore_state("best")
    session.put("new", C, trainer_state=b"at c")
    if then == "drop":
        session.drop_state("best")
    elif then == "replace":
        session.save_state("best")
    session.put("w", C, trainer_state=b"at d")
    restart(server)
    np.testing.assert_array_equal(session.get("w"), C)
    assert session.number == 5
    assert session.tensors().keys() == {"w", "old", "new"}
    assert names(client) == ({} if then == "drop" else
                             {"best": 1 if then == "nothing" else 4})


def test_without_a_trainer_state_in_the_snapshot_there_is_none(client):
    with client.session(durable=True) as session:
        session.put("w", A)
        session.save_state("best")
        session.put("w", B, trainer_state=b"at b")
        assert session.restore_state("best") == b""
        session.put("w", C)
        assert session.save_state() == 4
        assert client.session(resume=session.id).trainer_state == b""


def test_a_snapshot_keeps_what_its_newest_state_may_be_resumed_from(client, session):
    session.put("w", B)  # the middle of a step
    assert session.save_state("best") == 1
    session.restore_state("best")
    np.testing.assert_array_equal(session.get("w"), A)


def test_restored_programs_run_and_newer_ones_stay(session):
    program = convgrad.Program()
    x, m = program.input("x"), program.parameter("m", (3, 3))
    program.output(program.step("linear", x, m, None, name="a"))
    session.put("m", 2 * np.eye(3, dtype=np.float32))
    session.load_program("net", program)
    session.put({}, trainer_state=b"at a")
    session.save_state("best")
    session.drop_programs("net")
    session.load_program("newer", program)
    session.restore_state("best")
    for name in ("net", "newer"):
        found = session.run(name, {"x": np.stack([B, C])}).values["a"]
        np.testing.assert_array_equal(found, 2 * np.stack([B, C]))


def test_a_dropped_snapshot_is_gone(tmp_path, client, session):
    session.save_state("best")
    session.put("w", B, trainer_state=b"at b")
    session.save_state()
    session.put("w", C, trainer_state=b"at c")
    session.save_state()
    before = files(tmp_path)
    session.drop_state("best")
    session.drop_state("best")  # a repeat
    gone = {*before} - {*files(tmp_path)}
    assert len(gone) == 2 and "named-best" in gone  # and a part
    with pytest.raises(convgrad.NotFound, match="found 'best', expected a snapshot"):
        session.restore_state("best")
    np.testing.assert_array_equal(session.get("w"), C)
    assert not session.is_lost


def test_a_closed_session_leaves_nothing(tmp_path, session):
    session.save_state("best")
    session.close()
    assert files(tmp_path) == []


OTHER_NAMES = {"path": "a/b", "parents": "../../x", "back": "a\\b", "nul": "a\0b", "line": "\n",
               "long": "n" * 129, "accent": "\u00e9", "huge": "n" * (1 << 20)}


@pytest.mark.parametrize("name", OTHER_NAMES.values(), ids=OTHER_NAMES.keys())
def test_other_names_are_refused(tmp_path, client, session, name):
    session.save_state()
    before = files(tmp_path)
    for method in (session.save_state, session.restore_state, session.drop_state):
        with pytest.raises((convgrad.InvalidArgument, convgrad.ResourceExhausted)):
            method(name)
    assert files(tmp_path) == before
    np.testing.assert_array_equal(session.get("w"), A)


def test_an_empty_name_names_nothing(session):
    for method in (session.restore_state, session.drop_state):
        with pytest.raises(convgrad.InvalidArgument, match="name: found a name of 0 bytes"):
            method("")


@pytest.mark.parametrize("name", ["..", ".", "x.tmp", "manifest-1", "a b:*?", "n" * 128])
def test_these_names_are_names(tmp_path, client, session, name):
    session.save_state(name)
    assert f"named-{name}" in files(tmp_path)
    session.put("w", B, trainer_state=b"at b")
    session.restore_state(name)
    np.testing.assert_array_equal(session.get("w"), A)
    session.drop_state(name)
    assert names(client) == {}


def test_a_session_has_16_names(client, session):
    for number in range(16):
        session.save_state(f"{number}")
    with pytest.raises(convgrad.ResourceExhausted, match="found 17 snapshots with names"):
        session.save_state("one more")
    session.save_state("3")  # replaces
    session.drop_state("4")
    session.save_state("one more")
    assert len(names(client)) == 16


def test_snapshots_count_in_the_quota_of_the_client(server, client, session):
    server.flags = (server.flags[0], *FLAGS)
    restart(server)
    w = np.ones(2500, np.float32)
    session.put("w", w, trainer_state=b"at a")  # about 11 KiB of 64
    kept = []
    with pytest.raises(convgrad.ResourceExhausted, match="kept"):
        for number in itertools.count():
            session.save_state(f"{number}")
            kept.append(f"{number}")
    assert 2 <= len(kept) <= 5
    restart(server)
    assert names(client).keys() == {*kept}
    with pytest.raises(convgrad.ResourceExhausted, match="kept"):
        for number in range(2):  # the bytes of files are less than those of memory
            session.save_state(f"again {number}")
    kept = [*names(client)]
    session.drop_state(kept[0])
    session.drop_state(kept[1])
    session.save_state("at last")
    session.drop_state(kept[2])
    session.restore_state("at last")
    assert names(client).keys() == {*kept[3:], "at last"}


@pytest.mark.parametrize("kind", ["named-best", "part", "gone"])
def test_a_damaged_snapshot_is_named_and_the_session_goes_on(tmp_path, client, session, kind):
    session.save_state("best")
    session.put({"w": B, "old": B}, trainer_state=b"at b")
    session.save_state()
    session.put({"w": C, "old": C}, trainer_state=b"at c")
    folder, = (tmp_path / "state/sessions").iterdir()
    manifests = {name: (folder / name).read_bytes() for name in ("named-best", "manifest-3")}
    part = next(path for path in folder.glob("*.safetensors")
                if bytes.fromhex(path.stem) in manifests["named-best"]
                and bytes.fromhex(path.stem) not in manifests["manifest-3"])
    path = folder / "named-best" if kind == "named-best" else part
    if kind == "gone":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    with pytest.raises(convgrad.SnapshotDamaged) as raised:
        session.restore_state("best")
    assert str(folder / "named-best") in str(raised.value)
    if kind == "part":
        assert part.name in str(raised.value)
    assert not session.is_lost
    assert session.number == 3
    np.testing.assert_array_equal(session.get("w"), C)
    session.put("w", B, trainer_state=b"at d")
    session.save_state("best")  # replaces the damaged one
    session.restore_state("best")
    np.testing.assert_array_equal(session.get("w"), B)


def test_a_restore_beside_drops_is_whole_or_refused(session):
    """Other threads drop and replace the snapshot meanwhile."""
    big = {f"w{i}": np.full(200_000, i, np.float32) for i in range(8)}
    ended = threading.Event()

    def disturb():
        while not ended.is_set():
            with contextlib.suppress(convgrad.EpochEnded):  # a restore has failed
                session.save_state("best")
                session.drop_state("best")

    other = threading.Thread(target=disturb)
    session.put(big, trainer_state=b"big")
    session.save_state("best")
    other.start()
    outcomes = set()
    try:
        for _ in range(30):
            session.put({name: -array for name, array in big.items()})  # not resumable
            try:
                session.restore_state("best")
                outcomes.add("restored")
            except (convgrad.NotFound, convgrad.EpochEnded):
                outcomes.add("refused")
                continue
            found = session.get(list(big))
            signs = {bool((found[name] == array).all()) for name, array in big.items()}
            assert signs == {True}
    finally:
        ended.set()
        other.join()
    assert outcomes <= {"restored", "refused"} and outcomes


def test_sessions_that_are_not_durable_have_none(client):
    with client.session() as session:
        session.put("w", A)
        for method in (session.save_state, session.restore_state, session.drop_state):
            with pytest.raises(convgrad.FailedPrecondition):
                method("best")
        np.testing.assert_array_equal(session.get("w"), A)


def test_attached_clients_save_and_drop_but_do_not_restore(client, session):
    with client.attach(session.id) as attached:
        assert attached.save_state("best") == 1
        assert names(client) == {"best": 1}
        with pytest.raises(convgrad.FailedPrecondition):
            attached.restore_state("best")
        attached.drop_state("best")
    assert names(client) == {}


def test_a_restore_without_a_number_is_refused(server, session):
    session.save_state("best")
    with grpc.insecure_channel(server.address) as channel, \
            pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary("/convgrad.v1.ConvGradSessions/RestoreState")(
            session_pb2.RestoreStateRequest(name="best").SerializeToString(),
            metadata=[("convgrad-session-bin", session.id)], timeout=10)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_coroutines(server):
    async def work():
        async with convgrad.aio.Client(server.address) as aio, \
                aio.session(durable=True) as session:
            await session.put("w", A, trainer_state=b"at a")
            await session.save_state("best")
            await session.put("w", B, trainer_state=b"at b")
            state = await session.restore_state("best")
            await session.drop_state("best")
            return state, await session.get("w")

    state, found = asyncio.run(work())
    assert state == b"at a"
    np.testing.assert_array_equal(found, A)


def test_a_recording_ends_at_a_restore(server, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("CONVGRAD_RECORD", os.fspath(tmp_path))
    with convgrad.Client(server.address) as client:
        with client.session(durable=True) as session:
            session.put("w", A, trainer_state=b"at a")
            session.save_state("best")
            session.restore_state("best")
            session.put("w", B)
        monkeypatch.delenv("CONVGRAD_RECORD")
        path, = pathlib.Path(tmp_path).glob("*.recording")
        assert "which no other session can repeat; the recording ends here" in caplog.text
        assert convgrad.replay(client, path).changes == 1
