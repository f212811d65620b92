"""Records sessions on a real server, and repeats them."""

import logging
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
from server_process import ServerProcess
from test_moving_command import run

import convgrad
from convgrad.requests import Call
from convgrad.sessions.attempts import Change
from convgrad.sessions.recorder import Recorder
from convgrad.sessions.recording import MAGIC, Recording, part_of

SHAPE = (2, 3, 8, 8)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "recordings").mkdir()
    monkeypatch.setenv("CONVGRAD_RECORD", f"{tmp_path}/recordings")
    return tmp_path / "recordings"


def network():
    program = convgrad.Program()
    x, target = program.input("x"), program.input("target", is_index=True)
    w = program.parameter("w", (4, 3, 3, 3))
    x = program.step("dropout", program.step("conv", x, w, None), attributes={"p": 0.5})
    x = program.step("adaptive_avg_pool", x, attributes={"output_size": [1, 1]})
    x = program.step("reshape", x, name="y", attributes={"shape": [-1, 4]})
    program.output(program.step("cross_entropy", x, target, name="loss"))
    return program


def train(session, rng, steps=3):
    """Makes changes of every kind, and returns the last weights."""
    loss = convgrad.Backward()
    update = convgrad.Update("adam", [convgrad.ParameterGroup(["w"], learning_rate=0.1)])
    images = rng.normal(size=SHAPE).astype(np.float32)
    session.put({"w": rng.normal(size=(4, 3, 3, 3)).astype(np.float32), "old": images},
                layouts={"w": "OIX"})
    session.put({"old": images}, dedupe=True)
    session.load_program("net", network())
    for step in range(steps):
        session.run("net", {"x": images, "target": np.array([0, 3])}, backward=loss,
                    update=update if step % 2 else None, fetched=["loss", "y"],
                    trainer_state=b"%d" % step)
        if step % 2 == 0:
            session.update(update)
    session.conv_backward(np.ones((2, 4, 6, 6), np.float32), images, "w",
                          keep={"grad_weight": "kept"})
    with pytest.raises(convgrad.InvalidArgument):
        session.run("net", {"x": images[:, :2], "target": np.array([0, 3])}, backward=loss)
    session.drop("old", "kept")
    return session.get("w")


def recorded(target, rng, **keywords):
    with convgrad.Client(target, timeout=60) as client, client.session(**keywords) as session:
        train(session, rng)


def only(folder):
    """Returns the path of the only recording."""
    path, = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return path


def test_a_replay_has_the_same_results(server, sharing, folder, rng, monkeypatch):
    """The recorded session has shared memory and regions; the other server has none."""
    recorded(sharing.address, rng)
    path = only(folder)
    monkeypatch.delenv("CONVGRAD_RECORD")
    text = run("replay", path, f"--server={server.address}")
    assert text.splitlines()[0] == "10 changes have the same results"
    assert "difference" not in text
    assert len(list(folder.iterdir())) == 1


def test_a_replay_names_the_first_difference(server, folder, rng, client):
    recorded(server.address, rng)
    path = only(folder)
    content = path.read_bytes()
    with Recording(path) as recording:
        change = recording.changes[3]
        assert change.method == "ConvGradNetworks/RunProgram"
        message, = recording.messages(change)
    at = change.offset + len(message) // 2  # one of the images
    path.write_bytes(content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1:])
    found = convgrad.replay(client, path)
    assert (found.changes, found.is_cut, found.unknown) == (3, False, 0)
    assert found.difference.startswith("change 4, ConvGradNetworks/RunProgram: ")
    done = subprocess.run([sys.executable, "-m", "convgrad", "replay", path,
                           f"--server={server.address}"], text=True, capture_output=True,
                          timeout=120)
    assert (done.returncode, done.stderr) == (1, "")
    assert "3 changes have the same results\nthe first difference is change 4, " in done.stdout


def test_a_replay_tells_a_refusal(folder, rng, server, client):
    """A server that refuses a change that the recorded one took."""
    recorded(server.address, rng)
    path = only(folder)
    small = ServerProcess("--max_kept_bytes=64")
    with convgrad.Client(small.address, timeout=60) as other:
        found = convgrad.replay(other, path)
    small.kill()
    assert found.changes == 0
    assert found.difference.startswith("change 1, ConvGradSessions/PutTensors: RESOURCE_EX")


def test_what_comes_after_a_kill_is_recorded_once(tmp_path, folder, rng, client):
    server = ServerProcess(f"--state_dir={tmp_path}/state", "--snapshot_interval=1h")
    with convgrad.Client(server.address, timeout=60) as durable, \
            durable.session(durable=True) as session:
        session.put("w", np.ones(3, np.float32))
        server.kill()
        server.restart()
        session.put("w", np.zeros(3, np.float32))
    server.kill()
    path = only(folder)
    assert convgrad.replay(client, path).changes == 2
    with Recording(path) as recording:
        assert [change.sequence for change in recording.changes] == [1, 2]


def test_a_stream_is_recorded(monkeypatch, folder, rng, client):
    server = ServerProcess("--max_message_bytes=4MiB")
    with convgrad.Client(server.address, timeout=60) as small, small.session() as session:
        session.put("w", rng.normal(size=(3 << 20,)).astype(np.float32))
    server.kill()
    path = only(folder)
    with Recording(path) as recording:
        assert recording.changes[0].is_stream
    assert convgrad.replay(client, path).changes == 1


def test_what_is_not_recorded(folder, client, caplog, monkeypatch, tmp_path):
    with client.session(keep_open=True) as session:
        session.put("w", np.ones(3, np.float32))
    path = only(folder)
    with caplog.at_level(logging.WARNING), client.session(resume=session.id) as again:
        again.put("w", np.ones(3, np.float32))
    assert "the session was resumed and isn't recorded" in caplog.text
    assert only(folder) == path
    assert session.id not in path.read_bytes()
    monkeypatch.setenv("CONVGRAD_RECORD", f"{tmp_path}/absent")
    before = len(client.sessions())
    with pytest.raises(convgrad.FailedPrecondition, match="CONVGRAD_RECORD: found '.*absent"):
        client.session()
    assert len(client.sessions()) == before


def test_a_session_that_cannot_be_opened_leaves_no_recording(folder, client):
    with pytest.raises(convgrad.InvalidArgument):
        client.session(lease=-1)
    assert not list(folder.iterdir())


def test_a_change_that_was_given_up_may_be_committed(tmp_path):
    """The recording then has it, and not its reply."""
    recorder = Recorder(f"{tmp_path}/x", {})
    call = Call("ConvGradSessions/DropTensors", b"", lambda _: None)
    for sequence in (1, 2):
        change = Change(call, sequence, None, call)
        change.is_void = sequence == 1
        recorder.note(change, None if change.is_void else b"")
    recorder.close()
    recorder.note(change, b"")  # after the end
    with Recording(f"{tmp_path}/x") as recording:
        assert [(one.sequence, one.reply is None) for one in recording.changes] == [
            (1, True), (2, False)]
        assert not recording.is_cut


def test_a_full_disk_ends_the_recording_only(monkeypatch, client, caplog, tmp_path):
    (tmp_path / "r").mkdir()
    monkeypatch.setenv("CONVGRAD_RECORD", f"{tmp_path}/r")
    with client.session() as session, caplog.at_level(logging.WARNING):
        recorder = session._changes._recorder
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, recorder._file.fileno())
        os.close(full)
        session.put("w", np.ones(3, np.float32))
        session.put("w", np.ones(3, np.float32))
        assert session.number == 2
    assert caplog.text.count("No space left on device; the recording ends here") == 1


def test_a_cut_recording_is_good_up_to_its_last_change(folder, client, rng, server):
    recorded(server.address, rng)
    path = only(folder)
    content = path.read_bytes()
    with Recording(path) as recording:
        ends = [change.offset + sum(change.sizes) for change in recording.changes]
    for cut in [*rng.integers(ends[0], len(content), 40), *ends[:-1], ends[0] + 1]:
        path.write_bytes(content[:cut])
        with Recording(path) as recording:
            assert len(recording.changes) == sum(end <= cut for end in ends)
            assert recording.is_cut == (cut not in ends)
    found = convgrad.replay(client, path)
    assert (found.changes, found.is_cut) == (1, True)


def change(sequence=1, method="ConvGradSessions/DropTensors", **others):
    return {"sequence": sequence, "method": method, "sizes": [0], "reply": None, **others}


@pytest.mark.parametrize(("content", "words"), [
    (b"", "first line: found another"),
    (MAGIC, "server: found nothing"),
    (MAGIC + part_of({}), "server: found nothing"),
    (MAGIC + part_of({"server": 1}), "server: found nothing or something else"),
    (MAGIC + b"\2\0\0\0[]", "part at byte 25: found something else, expected a JSON object"),
    (MAGIC + b"\1\0\0\0{", "part at byte 25: found something else, expected a JSON object"),
    (change(method="ConvGradSessions/CloseSession"), "method: found 'ConvGradSessions/Close"),
    (change(method=3), "method: found nothing or something else"),
    (change(sizes=[0, 0]), "sizes: found 2 messages, expected 1"),
    (change(sizes=[-1]), "sizes: found something else"),
    (change(sizes=[True]), "sizes: found something else"),
    (change(sequence="1"), "sequence: found nothing or something else"),
    (change(sequence=0), "change 0: found two of them"),
    (change(reply=[1]), "reply: found nothing or something else"),
])
def test_malformed_recordings(tmp_path, content, words):
    path = tmp_path / "x"
    path.write_bytes(content if isinstance(content, bytes) else
                     MAGIC + part_of({"server": {}}) + part_of(content))
    with pytest.raises(convgrad.InvalidArgument, match=words):
        Recording(path)


def test_no_bytes_crash_a_replay(tmp_path, rng, folder, server, client):
    """A changed byte is refused, or the server answers it."""
    with client.session() as session:
        train(session, rng, steps=1)
    content = only(folder).read_bytes()
    os.environ.pop("CONVGRAD_RECORD")
    heads = content.index(b'"server"'), content.index(b'"sizes"') + 200
    for i in range(150):
        at = int(rng.integers(*heads) if i % 2 else rng.integers(len(content)))
        path = tmp_path / "x"
        path.write_bytes(content[:at] + bytes([rng.integers(256)]) + content[at + 1:])
        try:
            convgrad.replay(client, path)
        except convgrad.InvalidArgument as error:
            assert str(path) in error.message
    assert client.capabilities()


def test_other_kinds_of_files(tmp_path):
    with pytest.raises(convgrad.InvalidArgument, match="something else than a file"):
        Recording("/dev/zero")
    with pytest.raises(FileNotFoundError):
        Recording(tmp_path / "absent")
