"""Sessions that another process resumes: who had them before changes and closes nothing."""

import numpy as np
import pytest
from durable_stand_in import DurableStandIn, served
from server_process import ServerProcess
from shared_steps import sessions_of, wait_until

import convgrad
from convgrad.sessions import leases

X = np.arange(8, dtype=np.int64)
FAST = convgrad.RetryPolicy(initial_seconds=0.01, max_seconds=0.1)


@pytest.fixture
def restored():
    """A stand-in that was started again, and its client's session."""
    server = DurableStandIn()
    with served(server) as address, \
            convgrad.Client(address, timeout=20, retry=FAST) as client, \
            client.session(durable=True) as session:
        server.restart()
        yield server, session


def test_another_client_is_faster_after_a_restart(restored):
    server, session = restored
    server.has_rival = True
    with pytest.raises(convgrad.SessionTakenOver):
        session.put("x", X)
    assert not server.history


def test_a_client_repeats_its_resuming(restored):
    server, session = restored
    server.lost_resumes = 2
    session.put("x", X)
    assert len(server.history) == 1


def test_closing_leaves_a_session_that_was_taken_over_unseen(restored):
    server, session = restored
    server.first_epoch = server.epoch  # another client has resumed it
    session.close()
    assert not server.is_closed


@pytest.mark.parametrize("restarts", [False, True])
def test_a_session_that_was_taken_over_outlasts_who_had_it(tmp_path, restarts):
    server = ServerProcess(f"--state_dir={tmp_path}/state")
    with convgrad.Client(server.address) as one, convgrad.Client(server.address) as two:
        with one.session(durable=True) as first:
            second = two.session(resume=first.id)
            if restarts:
                server.kill()
                server.restart()
        second.put("x", X)
        with one.session(durable=True) as first:
            third = two.session(resume=first.id)
            if restarts:
                server.kill()
                server.restart()
            with pytest.raises(convgrad.SessionTakenOver):
                first.put("x", X)
        for session in (second, third):
            session.put("y", X)
            session.close()
        assert not sessions_of(two)
    server.kill()


def test_a_renewal_finds_that_the_session_was_taken_over(server, monkeypatch):
    monkeypatch.setattr(leases, "_LONGEST_SILENCE_SECONDS", 0.1)
    with convgrad.Client(server.address) as client, client.session() as first:
        with client.session(resume=first.id) as second:
            wait_until(lambda: first.is_lost)
            assert not second.is_lost
