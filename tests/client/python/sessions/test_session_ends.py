"""Sessions against a real server: leases, ends, owners and readers."""

import contextlib
import re
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
from cutting_proxy import CuttingProxy
from server_process import ServerProcess
from shared_steps import sessions_of, wait_until
from stand_in import grpc_server

import convgrad
from convgrad import operations
from convgrad.kept import Kept
from convgrad.layouts import Descriptor
from convgrad.sessions import leases
from convgrad.v1 import session_pb2

X = np.arange(2 * 4 * 6 * 6, dtype=np.float32).reshape(2, 4, 6, 6) % 7 - 3
W = np.arange(6 * 4 * 3 * 3, dtype=np.float32).reshape(6, 4, 3, 3) % 5 - 2


def test_a_lease_that_no_server_gives():
    answer = session_pb2.SessionResponse(session_id=b"i" * 16, epoch=1, window=64)
    with grpc_server(lambda *_: answer.SerializeToString()) as address, \
            convgrad.Client(address, timeout=20) as client, \
            pytest.raises(convgrad.Internal, match="reply.lease_seconds: found 0.0"):
        client.session()


def test_a_session_that_another_client_has_resumed(server):
    with convgrad.Client(server.address) as one, convgrad.Client(server.address) as two:
        with one.session() as first:
            first.put("x", X)
            with two.session(resume=first.id, keep_open=True) as second:
                np.testing.assert_array_equal(second.get("x"), X)
                assert second.number == 1
                with pytest.raises(convgrad.SessionTakenOver):
                    first.put("x", X + 1)
                with pytest.raises(convgrad.SessionTakenOver):
                    first.put("x", X + 1)
                second.put("y", X)
        # The first client's end isn't the session's.
        with two.session(resume=first.id) as third:
            assert third.tensors().keys() == {"x", "y"}
        with pytest.raises(convgrad.SessionExpired):
            two.session(resume=first.id)


@pytest.mark.parametrize("resume, found", [
    (b"", "0 bytes"), (b"i" * 15, "15 bytes"), ("name", "a str"), (None, "a NoneType")])
def test_what_is_no_id_resumes_and_opens_nothing(client, resume, found):
    before = [one.handle for one in client.sessions()]
    with pytest.raises(convgrad.InvalidArgument, match=f"resume: found {found}, expected"):
        client.session(resume=resume)
    assert [one.handle for one in client.sessions()] == before


def test_what_names_no_session(client):
    with pytest.raises(convgrad.InvalidArgument, match="name: found nothing, expected"):
        client.session(resume=True)
    with pytest.raises(convgrad.InvalidArgument, match="'mine', from a client without an id"):
        client.session("mine", resume=True)
    with pytest.raises(convgrad.InvalidArgument, match="handle: found a bytes, expected"):
        client.close_session(b"i" * 16)


def test_readers_are_no_text(client):
    with pytest.raises(convgrad.InvalidArgument, match="readers: found 'bob', expected a list"):
        client.session(readers="bob")


def test_a_session_that_is_not_durable_is_not_taken_over_as_one(client, server):
    with client.session() as session, convgrad.Client(server.address) as other:
        with pytest.raises(convgrad.FailedPrecondition, match="durable: found a session that"):
            other.session(resume=session.id, durable=True)
        session.put("x", X)
        with pytest.raises(convgrad.SessionExpired):
            other.session(resume=bytes(16), durable=True)


def test_closing_leaves_a_session_that_was_taken_over_unseen(server):
    with convgrad.Client(server.address) as one, convgrad.Client(server.address) as two:
        with one.session() as first:
            second = two.session(resume=first.id)
        second.put("x", X)
        second.close()


def test_a_session_that_was_given_up_is_closed(client):
    """A call that gave up ends the session at the client alone: it has to be closed, too."""
    with client.session("given up") as session:
        session.put("x", X)
        session._changes.stop(convgrad.Unavailable("given up"))
        assert session.is_lost and "given up" in {one.name for one in client.sessions()}
    assert "given up" not in {one.name for one in client.sessions()}


def test_a_session_is_closed_behind_a_change_that_was_given_up():
    """The server ends the epoch of the change, which must not look like a resume."""
    server = ServerProcess()
    policy = convgrad.RetryPolicy(max_attempts=1)
    with convgrad.Client(server.address, retry=policy) as client:
        with client.session() as session:
            server.stand_still()
            with pytest.raises(convgrad.DeadlineExceeded):
                session.put("x", X, timeout=0.2)
            server.process.send_signal(signal.SIGCONT)
        assert not sessions_of(client)
    server.kill()


def test_a_session_is_closed_behind_an_error_that_leaves_it(client):
    for _ in range(20):
        with contextlib.suppress(convgrad.DeadlineExceeded), client.session("left") as session:
            session.put("x", np.ones((64, 1 << 14), np.float32), timeout=0.005)
    assert "left" not in {one.name for one in client.sessions()}


def test_sessions_are_renewed_and_end():
    server = ServerProcess()
    with convgrad.Client(server.address) as client, client.session(lease=1) as session:
        session.put("x", X)
        for _ in range(2):
            with client.session(lease=1, keep_open=True) as other:
                other.put("x", X)
            assert len(sessions_of(client)) == 2
            wait_until(lambda: len(sessions_of(client)) == 1)
        np.testing.assert_array_equal(session.get("x"), X)
        with pytest.raises(convgrad.SessionExpired):
            client.session(resume=other.id)
        server.kill()
        server.restart()
        with pytest.raises(convgrad.SessionExpired):
            session.put("x", X)
        with pytest.raises(convgrad.SessionExpired):
            session.get("x")
    server.kill()


def test_a_server_that_is_gone_for_longer_than_the_lease():
    server = ServerProcess()
    with convgrad.Client(server.address) as client, client.session(lease=1) as session:
        session.put("x", X)
        server.kill()
        with pytest.raises(convgrad.DeadlineExceeded):
            session.put("x", X, timeout=0.1)
        with pytest.raises(convgrad.SessionExpired, match="couldn't be reached"):
            session.put("x", X)


def test_a_durable_session_outlasts_its_lease(tmp_path):
    server = ServerProcess(f"--state_dir={tmp_path}/state")
    with convgrad.Client(server.address) as client, \
            client.session(lease=1, durable=True) as session:
        session.put("x", X)
        session.save_state()
        server.kill()
        with pytest.raises(convgrad.DeadlineExceeded):
            session.put("x", X + 1, timeout=0.1)
        time.sleep(4)
        assert not session.is_lost
        server.restart()
        session.put("y", X)
        np.testing.assert_array_equal(session.get("x"), X)
    server.kill()


def test_sessions_are_listed_and_closed(client):
    before = {one.handle for one in client.sessions()}
    with client.session("of mine") as session:
        session.put("x", X)
        found, = (one for one in client.sessions() if one.handle not in before)
        assert (found.name, found.number, found.tensors) == ("of mine", 1, 1)
        assert found.kept_bytes >= X.nbytes and 0 <= found.remaining_seconds <= 600
        assert found.target == client.targets[0]
        client.close_session(found.handle)
        assert found.handle not in {one.handle for one in client.sessions()}
        with pytest.raises(convgrad.SessionExpired):
            client.close_session(found.handle)
        with pytest.raises(convgrad.SessionExpired):
            session.put("y", X)
    with client.session("another") as session:  # without tokens everybody is an admin
        assert "another" in {one.name for one in client.sessions(everybody=True)}


def test_a_refusal_names_the_sessions_that_are_open():
    server = ServerProcess("--max_client_sessions=6")
    with convgrad.Client(server.address) as client, contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(client.session(f"number {i}")) for i in range(6)]
        sessions[4].put("x", X)
        handles = {one.name: one.handle for one in client.sessions()}
        with pytest.raises(convgrad.ResourceExhausted, match=re.escape(
                f"; open: {handles['number 4']} 'number 4' with ")) as refusal:
            client.session()
        assert "; and 1 more; CloseSession ends one" in str(refusal.value)
    server.kill()


def test_connections_of_sessions_are_never_silent_for_long(server, monkeypatch):
    monkeypatch.setattr(leases, "_LONGEST_SILENCE_SECONDS", 0.2)
    of_session, of_calls = (CuttingProxy(server.address, silence=2) for _ in range(2))
    with convgrad.Client(of_session.address) as client, client.session() as session, \
            convgrad.Client(of_calls.address) as other:
        session.put("x", X)
        sessions_of(other)
        wait_until(lambda: of_calls.silent >= 2)  # gRPC connects again
        assert not of_session.silent
    of_session.close()
    of_calls.close()


@pytest.mark.parametrize("timeout", [0, -1])
def test_what_is_too_late_from_the_start_is_not_sent(client, timeout):
    with client.session() as session:
        session.put("x", X)
        for call in (lambda: session.put("y", X, timeout=timeout),
                     lambda: session.get("x", timeout=timeout)):
            for _ in range(20):
                with pytest.raises(convgrad.DeadlineExceeded, match="before the"):
                    call()
        assert session.number == 1 and session.failures == 0


def test_a_forgotten_session_isnt_renewed():
    server = ServerProcess()
    with convgrad.Client(server.address) as client:
        client.session(lease=1).put("x", X)
        wait_until(lambda: not sessions_of(client))
    server.kill()


def test_a_closed_session_and_a_closed_client(server):
    with convgrad.Client(server.address) as client:
        with client.session() as session:
            pending = session.submit(session.put, "x", X)
        assert pending.result() is None
        for attempt in (lambda: session.put("x", X), lambda: session.get("x")):
            with pytest.raises(convgrad.Cancelled, match="session is closed"):
                attempt()
        left = client.session()
    with pytest.raises(convgrad.Cancelled, match="client is closed"):
        left.put("x", X)
    left.close()


def forward_in(client, session_id):
    """As somebody may who was told the session's id."""
    kept = [Kept(name, Descriptor("f32", layout, array.shape))
            for name, layout, array in (("x", "NCX", X), ("w", "OIX", W))]
    call = operations.conv_forward(*kept, padding=1)
    return client.run(replace(call, metadata=(("convgrad-session-bin", session_id),)))


def test_readers_compute_with_what_is_kept(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{name} {role} {16 * key}\n" for name, role, key in (
        ("ann", "train", "1"), ("bob", "infer", "2"), ("eve", "infer", "3"))))
    server = ServerProcess(f"--token_file={tokens}")
    ann, bob, eve = (convgrad.Client(server.address, token=16 * key) for key in "123")
    with ann, bob, eve, ann.session(readers=["bob"]) as session:
        session.put({"x": X, "w": W}, layouts={"w": "OIX"})
        np.testing.assert_array_equal(forward_in(bob, session.id).output,
                                      ann.conv_forward(X, W, padding=1).output)
        with pytest.raises(convgrad.SessionExpired):
            forward_in(eve, session.id)
        with pytest.raises(convgrad.PermissionDenied):
            bob.session()
    server.kill()


def test_sessions_by_name(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann train {16 * '1'}\nbob train {16 * '2'}\n")
    server = ServerProcess(f"--token_file={tokens}")
    with convgrad.Client(server.address, token=16 * "1") as ann, \
            convgrad.Client(server.address, token=16 * "2") as bob:
        with ann.session("mine", keep_open=True) as session:
            session.put("x", X)
            with pytest.raises(convgrad.AlreadyExists):
                ann.session("mine")
        for client, name in ((bob, "mine"), (ann, "other")):
            with pytest.raises(convgrad.SessionExpired):
                client.session(name, resume=True)
        with pytest.raises(convgrad.SessionExpired):
            bob.session(resume=session.id)
        with ann.session("mine", resume=True, keep_open=True) as session:
            with pytest.raises(convgrad.FailedPrecondition, match="durable: found"):
                ann.session("mine", resume=True, durable=True)
            session.put("y", X)
        with ann.session("mine", resume=True) as session:
            np.testing.assert_array_equal(session.get("x"), X)
    server.kill()


@pytest.mark.parametrize("is_sent", [True, False])
def test_an_interrupt_of_the_opening_leaves_no_session(client, monkeypatch, is_sent):
    send, sent = client.run_somewhere, []

    def interrupt(call):
        sent.append(call.method)
        if len(sent) > 1:
            return send(call)
        if is_sent:
            send(call)
        raise KeyboardInterrupt

    before = len(sessions_of(client))
    monkeypatch.setattr(client, "run_somewhere", interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.session()
    assert len(sessions_of(client)) == before
