"""Calls after a failure that their caller knows: they go on as soon as the server does."""

import numpy as np
import pytest
from server_process import ServerProcess

import convgrad

A, B = np.ones(3, np.float32), np.full(3, 2, np.float32)
SHORT = convgrad.RetryPolicy(max_attempts=7)


@pytest.fixture
def server(tmp_path):
    process = ServerProcess(f"--state_dir={tmp_path}/state", "--snapshot_interval=1h")
    yield process
    process.kill()


def test_the_first_calls_after_an_outage_succeed(server):
    with convgrad.Client(server.address) as client, client.session() as session:
        session.put("w", A)
        with server.standing_still():
            with pytest.raises(convgrad.DeadlineExceeded):
                session.put("late", A, timeout=0.3)
            # The client still doesn't know what became of the change.
            early = session.submit(session.get, "w")
            changes = [session.submit(session.put, name, B) for name in ("w", "v")]
            read = session.submit(session.get, ["w", "v"])
        assert [change.result() for change in changes] == [None, None]
        assert early.result()[0] in (A[0], B[0])  # at least as new as the first change
        for array in read.result().values():
            np.testing.assert_array_equal(array, B)
        assert session.tensors().keys() - {"late"} == {"w", "v"}
        assert session.number == 3 + ("late" in session.tensors())
        session.put("u", A)


def test_a_call_behind_one_that_waits_fails_with_it(server):
    with convgrad.Client(server.address) as client, client.session() as session:
        session.put("w", A)
        with server.standing_still():
            late = session.submit(session.put, "late", A, timeout=0.3)
            behind = session.submit(session.put, "behind", B)
            assert isinstance(late.exception(), convgrad.DeadlineExceeded)
            # Its caller can't know that `behind` will fail.
            further = session.submit(session.put, "further", B)
        found = {type(one.exception()) for one in (behind, further)}
        assert found in ({convgrad.EpochEnded}, {type(None)})
        is_there = found == {type(None)}
        assert session.tensors().keys() == {"w"} | (
            {"late", "behind", "further"} if is_there else set())


def test_a_durable_session_goes_on_after_its_server_was_away_for_too_long(server):
    with convgrad.Client(server.address, retry=SHORT) as client:
        session = client.session(durable=True)
        session.put("w", A)
        session.save_state()
        server.kill()
        with pytest.raises(convgrad.Unavailable):
            session.put("lost", A)
        server.restart()
        session.put("w", B)
        np.testing.assert_array_equal(session.get("w"), B)
        assert session.tensors().keys() == {"w"} and session.number == 2
        session.close()
