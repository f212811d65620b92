"""Tests a server that is unreachable, restarted or full: one warning and a clear error."""

import asyncio
import logging
import re
import socket
import threading
import time
import traceback

import grpc
import numpy as np
import pytest
import torch
from server_process import ServerProcess
from torch import nn

import convgrad
from convgrad.connections import channels
from convgrad.errors import from_rpc
from convgrad.outages import Outages
from convgrad.torch import optim, remote

X, W = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 2, 2), np.float32)
# Retries for about 5 s, long enough for a warning.
SHORT = convgrad.RetryPolicy(max_attempts=8)
# Waits 0.8 s in all, less than one attempt at a silent server takes in these tests.
IMPATIENT = convgrad.RetryPolicy(max_attempts=5, initial_seconds=0.2, max_seconds=0.2)


@pytest.fixture
def own_server():
    process = ServerProcess()
    yield process
    process.kill()


@pytest.fixture
def warnings(caplog):
    """Returns a function that returns the texts of all warnings so far."""
    caplog.set_level(logging.WARNING, "convgrad")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def restarts(own_server, caplog):
    """Kills the server, and starts it again when the client has logged a warning."""
    threads = []

    class OnWarning(logging.Handler):
        def emit(self, record):
            if record.levelno >= logging.WARNING and not threads:
                threads.append(threading.Thread(target=own_server.restart))
                threads[0].start()

    handler = OnWarning()
    logging.getLogger("convgrad").addHandler(handler)
    yield own_server.kill
    logging.getLogger("convgrad").removeHandler(handler)
    for thread in threads:
        thread.join()


def frames_of(error):
    """Returns the number of frames in a traceback besides the test's own."""
    return len(traceback.extract_tb(error.__traceback__)) - 1


def check_restart(error, address, number):
    assert str(error).startswith(f"NOT_FOUND: the server at {address} was started again at ")
    assert f"lost after change {number}." in error.message
    assert error.field == "session" and error.reason == "NOT_FOUND"
    assert frames_of(error) == 1


@pytest.mark.remote
def test_a_network_whose_server_was_started_again(own_server, restarts, warnings, capfd):
    client = convgrad.Client(own_server.address)
    net = remote(nn.Linear(4, 2), client)
    sgd = optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.ones(3, 4), torch.tensor([0, 1, 0])
    for _ in range(3):
        net.train_step(x, y, optimizer=sgd)
    number = net.session.number
    restarts()
    with pytest.raises(convgrad.SessionExpired) as caught:
        net.train_step(x, y, optimizer=sgd)
    check_restart(caught.value, own_server.address, number)
    for call in (lambda: net(x), net.wait, net.state_dict):
        with pytest.raises(convgrad.SessionExpired, match="was started again"):
            call()
    assert len(warnings()) == 1 and f"at {own_server.address} (" in warnings()[0]
    assert "trying again for about" in warnings()[0]
    assert capfd.readouterr().err == ""
    client.close()


def test_a_read_of_a_session_whose_server_was_started_again(own_server, restarts, warnings):
    with convgrad.Client(own_server.address) as client, client.session() as session:
        session.put("w", W)
        restarts()
        with pytest.raises(convgrad.SessionExpired) as caught:
            session.get("w")
        check_restart(caught.value, own_server.address, 1)
        assert len(warnings()) == 1


def test_a_session_that_has_ended_otherwise(own_server):
    with convgrad.Client(own_server.address) as client, client.session() as session:
        (listed,) = client.sessions()
        client.close_session(listed.handle)
        with pytest.raises(convgrad.SessionExpired, match="session: found none, or one that"):
            session.put("w", W)


@pytest.mark.remote
def test_a_server_that_never_comes_back(own_server, warnings, capfd):
    with convgrad.Client(own_server.address, retry=SHORT) as client:
        net = remote(nn.Linear(4, 2), client)
        own_server.kill()
        with pytest.raises(convgrad.Unavailable) as caught, net:
            net(torch.ones(3, 4))
    assert caught.value.message == (
        f"server: found none that answers at {own_server.address} (Connection refused), "
        "expected the convgrad-server that was there")
    assert caught.value.attempts == 8
    # There is no second warning because the session can't be closed.
    assert len(warnings()) == 1 and capfd.readouterr().err == ""


@pytest.mark.parametrize("call", [
    lambda client: client.conv_forward(X, W),
    lambda client: client.session(),
    pytest.param(lambda client: remote(nn.Linear(4, 2), client), marks=pytest.mark.remote),
    lambda client: convgrad.torch.Conv2d(1, 1, 2, client=client)(torch.ones(1, 1, 3, 3)),
], ids=["call", "session", "remote", "layer"])
def test_nobody_listens(call, warnings, capfd):
    with convgrad.Client("localhost:1", retry=SHORT) as client:
        with pytest.raises(convgrad.Unavailable) as caught:
            call(client)
    error = caught.value
    assert error.attempts == 8 and error.field == "server"
    assert "at localhost:1 (Connection refused)" in error.message
    assert "check host and port (a server's default port is 7070)" in error.message
    assert len(warnings()) == 1 and warnings()[0].startswith(error.message)
    assert capfd.readouterr().err == ""


@pytest.fixture
def silent_address():
    """An address that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def check_silence(error, address, attempts):
    assert error.attempts == attempts and error.field == "server"
    assert f"none that answers ({address} accepts connections but doesn't answer)" in str(error)


def test_a_peer_that_never_answers_is_given_up(monkeypatch, silent_address):
    monkeypatch.setattr(channels, "_CONNECT_SECONDS", 1)
    with convgrad.Client(silent_address, retry=IMPATIENT) as client:
        with pytest.raises(convgrad.Unavailable) as caught:
            client.conv_forward(X, W)
    check_silence(caught.value, silent_address, 1)

    async def call():
        async with convgrad.aio.Client(silent_address, retry=IMPATIENT) as client:
            await client.conv_forward(X, W)

    with pytest.raises(convgrad.Unavailable) as caught:
        asyncio.run(call())
    check_silence(caught.value, silent_address, 1)


def test_a_silent_peer_does_not_hide_the_next_server(monkeypatch, silent_address, server):
    monkeypatch.setattr(channels, "_CONNECT_SECONDS", 1)
    # The attempt at the silent peer takes more than a fourth of the waits, and less than all.
    retry = convgrad.RetryPolicy(max_attempts=9, initial_seconds=0.2, max_seconds=0.2)
    with convgrad.Client([silent_address, server.address], retry=retry) as client:
        assert client.conv_forward(X, W).output.shape == (1, 1, 2, 2)


def test_a_server_that_has_answered_gets_all_attempts(monkeypatch, own_server):
    monkeypatch.setattr(channels, "_CONNECT_SECONDS", 1)
    with convgrad.Client(own_server.address, retry=IMPATIENT, keepalive_seconds=1) as client:
        client.conv_forward(X, W)
        own_server.stand_still()
        with pytest.raises(convgrad.Unavailable) as caught:
            client.conv_forward(X, W)
    check_silence(caught.value, own_server.address, IMPATIENT.max_attempts)


def test_each_outage_is_a_warning(own_server, warnings):
    with convgrad.Client(own_server.address, retry=SHORT) as client:
        client.conv_forward(X, W)
        for outage in range(1, 3):
            own_server.kill()
            futures = [client.submit(client.conv_forward, X, W) for _ in range(4)]
            for future in futures:
                assert isinstance(future.exception(), convgrad.Unavailable)
            assert len(warnings()) == outage
            own_server.restart()
            # In this second gRPC may still wait before it connects again.
            client.conv_forward(X, W)
        assert len(warnings()) == 2


@pytest.mark.parametrize("is_full", [False, True], ids=["away", "full"])
def test_an_answer_ends_an_outage(warnings, is_full):
    code = (grpc.StatusCode.RESOURCE_EXHAUSTED if is_full else grpc.StatusCode.UNAVAILABLE)
    error, outages = from_rpc(code, "no room", ()), Outages()
    for _ in range(2):
        outages.note("there", error, attempts=1, delay=0, left=9, has_answered=True)
        time.sleep(0.2)
        outages.end("there")
    # Together with earlier waits, this one would be longer than two seconds.
    outages.note("there", error, attempts=1, delay=1.9, left=9, has_answered=True)
    assert warnings() == []


@pytest.mark.parametrize("left, rest", [
    (0.7, ""), (-1.0, ""), (3.0, "; trying again for about 3 s")])
def test_a_warning_names_the_seconds_that_are_left(warnings, left, rest):
    error = from_rpc(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room", ())
    Outages().note("there", error, attempts=1, delay=2.5, left=left, has_answered=True)
    assert warnings() == [f"the server at there is full: no room{rest}"]


def test_a_change_whose_deadline_is_over(own_server):
    with convgrad.Client(own_server.address) as client:
        session = client.session()
        own_server.kill()
        with pytest.raises(convgrad.DeadlineExceeded) as caught:
            session.put("w", W, timeout=2)
        text = str(caught.value)
        assert f"UNAVAILABLE: server: found none that answers at {own_server.address} (" in text
        assert caught.value.attempts > 1
        assert text.count("attempts)") == 1


def test_a_change_without_an_answer(own_server):
    with convgrad.Client(own_server.address) as client:
        session = client.session()
        own_server.stand_still()
        with pytest.raises(convgrad.DeadlineExceeded) as caught:
            session.put("w", W, timeout=1)
        assert caught.value.message.endswith("what became of the change")
        own_server.kill()


def test_a_change_that_finds_no_room_in_time():
    server = ServerProcess("--memory_budget_bytes=256MiB", "--max_kept_bytes=8MiB")
    array = np.ones((6 << 20) // 4, np.float32)
    with convgrad.Client(server.address) as client:
        client.session("first").put("w", array)
        with pytest.raises(convgrad.DeadlineExceeded) as caught:
            client.session("other").put("w", array, timeout=1)
    text = str(caught.value)
    assert "RESOURCE_EXHAUSTED: kept bytes: found" in text
    assert "your sessions there: " in text and "'first' with" in text
    assert text.count("attempts)") == 1
    server.kill()


def test_a_server_that_sessions_fill(warnings):
    server = ServerProcess("--memory_budget_bytes=256MiB", "--max_kept_bytes=16MiB")
    array = np.ones((6 << 20) // 4, np.float32)
    with convgrad.Client(server.address, retry=SHORT) as client:
        crashed = [client.session(f"run {i}") for i in range(2)]
        for session in crashed:
            session.put("w", array)
        handles = {one.name: one.handle for one in client.sessions()}
        session = client.session("run 2")
        future = session.submit(session.put, "w", array)
        behind = session.submit(session.put, "v", W)
        error = future.exception()
        assert isinstance(error, convgrad.ResourceExhausted) and error.field == "kept bytes"
        for name in ("run 0", "run 1"):
            assert re.search(rf"{handles[name]} '{name}' with \d+ bytes, ends in \d+ s;",
                             error.message)
        assert "run 2" not in str(error) and "client.close_session(handle)" in str(error)
        assert isinstance(behind.exception(), convgrad.EpochEnded)
        (warning,) = warnings()
        assert warning.startswith(f"the server at {server.address} is full: kept bytes: found")
        assert "trying again for about" in warning
        # The session continues, and has room after another one is closed.
        client.close_session(handles["run 0"])
        session.put("w", array)
        assert session.number == 1
        for one in (*crashed, session):
            one.close()
    assert server.terminate() == 0
