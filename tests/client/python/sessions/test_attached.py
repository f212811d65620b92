"""Tests sessions that are attached for reading: their tensors, refusals and ends."""

import socket
import threading
import time

import numpy as np
import pytest
from server_process import ServerProcess

import convgrad

X = np.arange(2 * 4 * 6 * 6, dtype=np.float32).reshape(2, 4, 6, 6) % 7 - 3
W = np.arange(6 * 4 * 3 * 3, dtype=np.float32).reshape(6, 4, 3, 3) % 5 - 2
B = np.arange(6, dtype=np.float32)


@pytest.fixture
def session(client):
    with client.session() as session:
        session.put({"w": W, "b": B}, layouts={"w": "OIX"})
        yield session


@pytest.fixture
def attached(server, session):
    with convgrad.Client(server.address, timeout=60) as other, \
            other.attach(session.id) as attached:
        yield attached


def sum_program():
    """Returns x @ u.T + x @ v.T."""
    program = convgrad.Program()
    x = program.input("x")
    rows = [program.step("linear", x, program.parameter(name, (1, 4)), None) for name in "uv"]
    program.output(program.step("add", *rows))
    return program


def test_what_is_read_is_what_the_session_keeps(client, session, attached):
    np.testing.assert_array_equal(attached.get("w"), W)
    assert attached.get(["w", "b"]).keys() == {"w", "b"}
    assert attached.tensors() == session.tensors()
    assert attached.id == session.id
    np.testing.assert_array_equal(attached.conv_forward(X, "w", "b", padding=1).output,
                                  client.conv_forward(X, W, B, padding=1).output)
    flat = W.swapaxes(0, 1)
    session.put({"t": flat, "rows": X.reshape(2, -1), "flat": W.reshape(6, -1)[:, :18]},
                layouts={"t": "OIX", "flat": "OIX"})
    np.testing.assert_array_equal(attached.conv_transpose_forward(X, "t").output,
                                  client.conv_transpose_forward(X, flat).output)
    np.testing.assert_array_equal(
        attached.linear_forward(X.reshape(-1, 18), weight="flat").output,
        client.linear_forward(X.reshape(-1, 18), W.reshape(6, -1)[:, :18]).output)


def test_a_tensor_may_change_its_shape_between_two_calls(client, session, attached):
    assert attached.conv_forward(X, "w").output.shape[1] == 6
    session.put("w", W[:2], layout="OIX")
    assert attached.conv_forward(X, "w").output.shape[1] == 2
    with pytest.raises(convgrad.NotFound, match="'v', which the session doesn't keep"):
        attached.conv_forward(X, "v")


@pytest.mark.parametrize("name, use", [
    ("put", lambda a: a.put("w", W)),
    ("drop", lambda a: a.drop()),
    ("load_program", lambda a: a.load_program("p", sum_program())),
    ("drop_programs", lambda a: a.drop_programs("p")),
    ("backward", lambda a: a.backward("t", {})),
    ("update", lambda a: a.update(None)),
    ("conv_backward", lambda a: a.conv_backward(X, X, "w")),
    ("conv_transpose_backward", lambda a: a.conv_transpose_backward(X, X, "w")),
    ("linear_backward", lambda a: a.linear_backward(X, X, "w")),
    ("keep", lambda a: a.conv_forward(X, "w", keep={"output": "y"})),
    ("add", lambda a: a.conv_forward(X, "w", add={"output": "y"})),
    ("tape", lambda a: a.run("p", {"x": X}, tape="t")),
    ("backward", lambda a: a.run("p", {"x": X}, backward=convgrad.Backward())),
    ("update", lambda a: a.run("p", {"x": X}, update=convgrad.Update("sgd", []))),
    ("change", lambda a: a.run("p", {"x": X}, change=True)),
])
def test_changes_are_refused_by_name(session, attached, name, use):
    number = session.number
    refusal = f"^FAILED_PRECONDITION: {name}: found a session that is attached to be read"
    with pytest.raises(convgrad.FailedPrecondition, match=refusal):
        use(attached)
    assert session.number == number and session.tensors().keys() == {"w", "b"}


def test_a_program_that_trains_is_the_servers_to_refuse(session, attached):
    program = convgrad.Program()
    program.output(program.step("dropout", program.input("x"),
                                attributes={"p": 0.5, "training": True}))
    session.load_program("p", program)
    with pytest.raises(convgrad.InvalidArgument):
        attached.run("p", {"x": X})
    with pytest.raises(convgrad.NotFound, match="program: found 'q'"):
        attached.run("q", {"x": X})


def test_each_run_sees_one_change_as_a_whole(session, attached):
    """Each change keeps u + v at 0. A run that reads u and v from two changes would differ."""
    session.put({"u": np.zeros((1, 4), np.float32), "v": np.zeros((1, 4), np.float32)},
                layouts={"u": "OIX", "v": "OIX"})
    session.load_program("sum", sum_program())
    over = threading.Event()

    def train():
        number = 0
        while not over.is_set():
            number += 1
            u = np.full((1, 4), number % 1000, np.float32)
            session.put({"u": u, "v": -u}, layouts={"u": "OIX", "v": "OIX"})

    trainer = threading.Thread(target=train)
    trainer.start()
    seen = set()
    try:
        while len(seen) < 50:  # shows that runs read new values, not only the first ones
            ones = np.ones((1, 4), np.float32)
            assert not attached.run("sum", {"x": ones}).values["add"].any()
            found = attached.get(["u", "v"])
            assert (found["u"] == -found["v"]).all()
            seen.add(float(found["u"][0, 0]))
    finally:
        over.set()
        trainer.join()


def test_several_threads_read(session, attached):
    found = []

    def read():
        for _ in range(20):
            found.append(float(attached.get("b")[1]))
            attached.conv_forward(X, "w")

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1.0] * 80


def test_the_trainers_end_is_the_readers(server, client):
    with client.session() as session:
        session.put("b", B)
        attached = client.attach(session.id)
        with attached:
            pass
        with pytest.raises(convgrad.Cancelled, match="the attachment is closed"):
            attached.get("b")
        attached = client.attach(session.id)
        np.testing.assert_array_equal(attached.get("b"), B)
        resumed = client.session(resume=session.id)
        np.testing.assert_array_equal(attached.get("b"), B)  # also with another trainer
        resumed.close()
    for use in (lambda: attached.get("b"), attached.tensors,
                lambda: attached.conv_forward(X, W), lambda: client.attach(session.id)):
        with pytest.raises(convgrad.SessionExpired):
            use()


def test_a_reader_does_not_keep_a_session_whose_trainer_is_gone(client):
    session = client.session(lease=1)
    session.put("b", B)
    attached = client.attach(session.id)
    session._stop()  # as if its process were killed: no more renewals, and no close
    began = time.monotonic()
    with pytest.raises(convgrad.SessionExpired):
        while time.monotonic() - began < 30:
            attached.get("b")
            attached.conv_forward(X, W)
            time.sleep(0.05)


@pytest.mark.parametrize("handle, error, message", [
    ("train", convgrad.Unimplemented, "found 'train', a name or handle, expected session.id"),
    (b"short", convgrad.InvalidArgument, "found 5 bytes, expected session.id, 16 bytes"),
    (7, convgrad.InvalidArgument, "found a int, expected session.id"),
    (bytes(16), convgrad.SessionExpired, "session"),
])
def test_what_is_no_id(client, handle, error, message):
    with pytest.raises(error, match=message):
        client.attach(handle)


def test_the_server_that_has_the_session_is_asked(server, session):
    empty = ServerProcess()
    with convgrad.Client([empty.address, server.address], timeout=60) as both:
        attached = both.attach(session.id)
        for _ in range(4):
            np.testing.assert_array_equal(attached.get("b"), B)
    empty.kill()


def test_a_server_that_is_away_hides_no_session(server, session):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # a port on which nobody listens
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
        policy = convgrad.RetryPolicy(max_attempts=2)
        with convgrad.Client([dead, server.address], retry=policy) as client:
            assert client.attach(session.id).tensors() == session.tensors()
            with pytest.raises(convgrad.Unavailable):
                client.attach(bytes(16))


def test_with_tokens_the_owner_and_its_readers_attach(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{name} {role} {16 * key}\n" for name, role, key in (
        ("ada", "train", "1"), ("bob", "infer", "2"), ("eve", "train", "3"))))
    server = ServerProcess(f"--token_file={tokens}")
    ada, bob, eve = (convgrad.Client(server.address, timeout=60, token=16 * key)
                     for key in "123")
    with ada, bob, eve, ada.session("train", readers=["bob"]) as session:
        session.put("w", W, layout="OIX")
        np.testing.assert_array_equal(ada.attach(session.id).get("w"), W)
        reader = bob.attach(session.id)
        assert reader.tensors().keys() == {"w"}
        np.testing.assert_array_equal(reader.conv_forward(X, "w").output,
                                      session.conv_forward(X, "w").output)
        with pytest.raises(convgrad.PermissionDenied, match="infer"):
            reader.get("w")
        with eve.session("train", readers=["ada"]) as other:
            other.put("w", W, layout="OIX")
            # The error isn't SessionExpired, because the session exists.
            with pytest.raises(convgrad.PermissionDenied, match="readers list tensors"):
                ada.attach(other.id).get("w")
        with pytest.raises(convgrad.SessionExpired):
            eve.attach(session.id)
        with pytest.raises(convgrad.Unimplemented, match="session.id"):
            ada.attach("train")
    server.kill()
