"""Sessions that go on on a server that may compute other bits: their users are told."""

import logging
import warnings

import numpy as np
import pytest
from server_process import ServerProcess

import convgrad

A = np.ones(3, np.float32)
EXPECTED = "threads_per_worker: 1 there, 2 here"


@pytest.fixture
def server(tmp_path):
    process = ServerProcess(f"--state_dir={tmp_path}/state", "--snapshot_interval=1h")
    yield process
    process.kill()


def moved(server):
    """Starts the server again, as another machine with the same disk."""
    server.kill()
    server.flags = (*server.flags, "--threads_per_worker=2", "--fast_convolutions=false")
    server.restart()


def saved(client):
    with client.session(durable=True, keep_open=True) as session:
        session.put("w", A)
        session.save_state()
        return session.id


def test_capabilities_name_the_cpu(server):
    with convgrad.Client(server.address) as client:
        answer = client.capabilities()
    with open("/proc/cpuinfo") as file:
        name = next((line.partition(":")[2].strip() for line in file
                     if line.startswith("model name")), "")
    assert answer.cpu_model.startswith(name)
    assert answer.fast_convolutions


def test_resuming_on_another_machine_warns_once(server):
    with convgrad.Client(server.address) as client:
        of_session = saved(client)
        moved(server)
        with pytest.warns(UserWarning, match=EXPECTED) as caught:
            session = client.session(resume=of_session, keep_open=True)
        assert len(caught) == 1
        assert "fast_convolutions: true there, false here" in str(caught[0].message)
        assert caught[0].filename == __file__
        with session:
            session.put("w", A)
        with warnings.catch_warnings():  # this machine has computed the newest change
            warnings.simplefilter("error")
            client.session(resume=of_session).close()


def test_the_machine_that_computed_is_known_until_another_one_changes_the_session(server):
    with convgrad.Client(server.address) as client:
        of_session = saved(client)
        moved(server)
        for _ in range(2):
            with pytest.warns(UserWarning, match=EXPECTED):
                with client.session(resume=of_session, keep_open=True):
                    pass
        server.kill()
        server.flags = server.flags[:2]
        server.restart()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            client.session(resume=of_session).close()


def test_the_same_machine_warns_of_nothing(server):
    with convgrad.Client(server.address) as client:
        of_session = saved(client)
        server.kill()
        server.restart()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            client.session(resume=of_session).close()


def test_a_warning_that_is_an_error_is_no_malformed_reply(server):
    with convgrad.Client(server.address) as client, client.session(durable=True) as session:
        session.put("w", A)
        session.save_state("best")
        moved(server)
        session.put("w", 2 * A)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match=EXPECTED):
                session.restore_state("best")
        np.testing.assert_array_equal(session.get("w"), A)


def test_a_session_that_is_restored_during_a_training_logs_it(server, caplog):
    caplog.set_level(logging.WARNING, "convgrad")
    with convgrad.Client(server.address) as client, client.session(durable=True) as session:
        session.put("w", A)
        session.save_state()
        moved(server)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # doesn't stop the session
            session.put("v", A)
        assert session.tensors().keys() == {"w", "v"}
    assert any(EXPECTED in record.getMessage() for record in caplog.records)
