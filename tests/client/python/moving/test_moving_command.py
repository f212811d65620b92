"""Tests the commands export, import, snapshot and restore of `python -m convgrad`."""

import os
import stat
import subprocess
import sys

import numpy as np
import pytest
from server_process import ServerProcess

import convgrad
from convgrad.moving.safetensors import TensorFile, write_tensors

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def run(*arguments, code=0):
    """Returns what the command printed: on stdout, or on stderr if it fails."""
    done = subprocess.run([sys.executable, "-m", "convgrad", *map(str, arguments)], text=True,
                          capture_output=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    assert (done.stderr == "") == (code == 0)
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def at(server):
    return f"--server={server.address}"


@pytest.fixture
def session(client, tmp_path):
    with client.session() as session:
        session.put({"w": W, "w#exp_avg": -W}, trainer_state=b"at 1")
        (tmp_path / "id").write_bytes(session.id)
        yield session


@pytest.fixture
def durable(tmp_path):
    process = ServerProcess(f"--state_dir={tmp_path}/state", "--snapshot_interval=1h")
    yield process
    process.kill()


@pytest.fixture
def of_alice(tmp_path):
    """A client with a token, its session "mine" with W, and the commands' options."""
    (tmp_path / "tokens").write_text("alice train secret-of-alice-16\n")
    (tmp_path / "token").write_text("secret-of-alice-16\n")
    process = ServerProcess(f"--token_file={tmp_path}/tokens")
    options = f"--server={process.address}", f"--token={tmp_path}/token"
    with convgrad.Client(process.address, token="secret-of-alice-16", timeout=60) as client, \
            client.session("mine") as session:
        session.put("w", W)
        yield client, session, options
    process.kill()


def test_a_training_moves_to_another_server(at, session, durable, tmp_path):
    """Commands take it away and put it on a durable server, which may then be killed."""
    file, new = tmp_path / "x", tmp_path / "new"
    assert run("export", tmp_path / "id", file, at, "--take_over") == (
        f"wrote {file}, the session as of change 1\n")
    with pytest.raises(convgrad.SessionTakenOver):
        session.put("w", W)
    there = f"--server={durable.address}"
    assert "change 1 of the session has the tensors, exported as of change 1" in run(
        "import", new, file, there, "--new", "--durable", "--lease=3600")
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert run("snapshot", new, there) == "durable number 1\n"
    durable.kill()
    durable.restart()
    with convgrad.Client(durable.address, timeout=60) as client, \
            client.session(resume=new.read_bytes()) as moved:
        assert (moved.number, moved.trainer_state) == (1, b"at 1")
        np.testing.assert_array_equal(moved.get("w#exp_avg"), -W)


def test_an_export_without_taking_over_leaves_the_trainer_alone(at, session, tmp_path):
    run("export", tmp_path / "id", tmp_path / "x", at)
    session.put("w", W + 1)
    with TensorFile(tmp_path / "x") as file:
        np.testing.assert_array_equal(file.read("w"), W)
        assert "convgrad.trainer_state" not in file.metadata


def test_an_import_into_an_open_session(client, at, session, tmp_path):
    write_tensors(tmp_path / "x", {"w": W + 1, "w#exp_avg": W}, {})
    run("import", tmp_path / "id", tmp_path / "x", at, "--without_optimizer")
    with client.attach(session.id) as attached:
        np.testing.assert_array_equal(attached.get("w"), W + 1)
        np.testing.assert_array_equal(attached.get("w#exp_avg"), -W)


def test_what_does_not_fit_leaves_the_trainer_alone(at, session, tmp_path):
    write_tensors(tmp_path / "x", {"w": W[:1]}, {})
    assert "found f32[1,3], expected f32[2,3]" in run(
        "import", tmp_path / "id", tmp_path / "x", at, "--without_optimizer", code=2)
    session.put("w", W + 1)
    assert session.number == 2


def test_a_new_session_that_fails_leaves_nothing(client, at, tmp_path):
    before = [one.handle for one in client.sessions()]
    write_tensors(tmp_path / "x", {"a/b": W}, {})
    assert "a/b" in run("import", tmp_path / "new", tmp_path / "x", at, "--new", code=2)
    (tmp_path / "x").write_bytes(b"")
    assert "header length" in run("import", tmp_path / "new", tmp_path / "x", at, "--new",
                                  code=2)
    write_tensors(tmp_path / "x", {"a": W}, {})
    assert "--state_dir" in run("import", tmp_path / "new", tmp_path / "x", at, "--new",
                                "--durable", code=1)
    assert os.listdir(tmp_path) == ["x"]
    (tmp_path / "new").write_text("somebody's")
    assert "File exists" in run("import", tmp_path / "new", tmp_path / "x", at, "--new", code=1)
    assert (tmp_path / "new").read_text() == "somebody's"
    assert [one.handle for one in client.sessions()] == before


def test_sessions_by_name(of_alice, tmp_path):
    client, session, options = of_alice
    assert "expected a file with the session's id or --take_over" in run(
        "export", "mine", tmp_path / "x", *options, code=2)
    run("export", "mine", tmp_path / "x", *options, "--take_over")
    write_tensors(tmp_path / "x", {"w": W + 1}, {})
    run("import", "mine", tmp_path / "x", *options)
    with client.attach(session.id) as attached:
        np.testing.assert_array_equal(attached.get("w"), W + 1)
    assert "UNAUTHENTICATED" in run("export", "mine", tmp_path / "x", options[0],
                                    "--take_over", code=1)


def test_a_wrong_name_leaves_the_trainer_alone(durable, tmp_path):
    there = f"--server={durable.address}"
    with convgrad.Client(durable.address) as client, client.session(durable=True) as session:
        (tmp_path / "id").write_bytes(session.id)
        session.put("w", W)
        session.save_state("best")
        assert "name: found 'bets', expected a snapshot that SaveState has kept: 'best'" in (
            run("restore", tmp_path / "id", "bets", there, code=1))
        assert "found 'bets'" in run("snapshot", tmp_path / "id", "--drop=bets", there, code=1)
        assert "No such file" in run("export", tmp_path / "id", tmp_path / "none/x", there,
                                     "--take_over", code=1)
        assert "a link, a folder or a device" in run("export", tmp_path / "id", tmp_path,
                                                     there, "--take_over", code=2)
        session.put("w", W + 1)


def test_a_failure_after_a_session_was_taken_over_says_so(of_alice, tmp_path):
    _, session, options = of_alice
    (tmp_path / "x").write_text("no tensors")
    assert "header length" in run("import", "mine", tmp_path / "x", *options, code=2)
    session.put("w", W)
    write_tensors(tmp_path / "x", {"w": W[:1]}, {})
    found = run("import", "mine", tmp_path / "x", *options, code=2)
    assert "was taken over; its trainer can't go on" in found and "f32[1,3]" in found
    (tmp_path / "token").write_text("\n")
    assert "token: found nothing, expected a token" in run(
        "export", "mine", tmp_path / "x", *options, code=2)


def test_a_snapshot_is_kept_restored_and_dropped(durable, tmp_path):
    there = f"--server={durable.address}"
    with convgrad.Client(durable.address) as client, client.session(durable=True) as session:
        (tmp_path / "id").write_bytes(session.id)
        session.put("w", W)
        assert run("snapshot", tmp_path / "id", there, "--name=best") == "durable number 1\n"
        session.put("w", -W)
        assert run("restore", tmp_path / "id", "best", there) == (
            "change 3 of the session has the snapshot 'best'\n")
        with client.attach(session.id) as attached:
            np.testing.assert_array_equal(attached.get("w"), W)
        assert client.sessions()[0].snapshots == {"best": 1}
        assert client.sessions()[0].durable_number == 3
        assert run("snapshot", tmp_path / "id", there, "--drop=best") == "dropped 'best'\n"
        assert "found 'best', expected a snapshot that SaveState has kept" in run(
            "restore", tmp_path / "id", "best", there, code=1)


@pytest.mark.parametrize("arguments, message", [
    (("snapshot", "id"), "FAILED_PRECONDITION"),
    (("snapshot", "id", "--name=a/b"), "FAILED_PRECONDITION"),
    (("restore", "id", "best"), "FAILED_PRECONDITION"),
    (("snapshot", "none"), "found 'none', which is no file"),
    (("export", "short", "x"), "found 3 bytes or more, expected a session's id, 16 bytes"),
    (("export", "other", "x"), "NOT_FOUND"),
    (("export", "id", "none/x"), "No such file"),
    (("import", "id", "none"), "No such file"),
    (("import", "id", "short"), "header length"),
    (("import", "id", "short", "--durable"), "no --new"),
    (("export", "id", "x", "--key=none"), "tls.certificate: found nothing"),
    (("export", "id", "x", "--token=none"), "No such file")])
def test_what_commands_refuse(at, session, tmp_path, arguments, message):
    (tmp_path / "short").write_bytes(b"abc")
    (tmp_path / "other").write_bytes(bytes(16))
    done = subprocess.run([sys.executable, "-m", "convgrad", *arguments, at], text=True,
                          capture_output=True, cwd=tmp_path, timeout=120)
    assert done.returncode in (1, 2) and message in done.stderr, done
    assert done.stderr.count("\n") == 1 and session.id.hex() not in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("arguments", [("export", "none", "x"), ("snapshot", "none")])
def test_a_session_that_is_no_file_is_an_invalid_request(tmp_path, arguments):
    assert "found 'none', which is no file" in run(*arguments, code=2)


def test_a_server_that_is_away(session, tmp_path):
    assert "UNAVAILABLE" in run("export", tmp_path / "id", tmp_path / "x",
                                "--server=127.0.0.1:1", code=1)


def test_help():
    assert "usage: convgrad export" in run("export", "--help")
