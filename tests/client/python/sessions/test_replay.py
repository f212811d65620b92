"""A durable session against a server that forgets what isn't on its disk."""

import logging
import random
import threading

import grpc
import numpy as np
import pytest
from durable_stand_in import WINDOW, DurableStandIn, served
from shared_steps import wait_until

import convgrad
from convgrad.v1 import network_pb2, session_pb2

FAST = convgrad.RetryPolicy(initial_seconds=0.01, max_seconds=0.1)


@pytest.fixture
def server():
    return DurableStandIn()


@pytest.fixture
def client(server):
    with served(server) as address, convgrad.Client(address, timeout=20, retry=FAST) as client:
        yield client


@pytest.fixture
def session(client):
    with client.session(durable=True, keep_open=True) as session:
        yield session


def put(session, i, name="x"):
    return session.submit(session.put, name, np.array([i], np.int64))


def values(server):
    """The numbers that were put, in the order of the changes."""
    messages = [session_pb2.PutTensorsRequest.FromString(one) for one in server.history]
    return [int(np.frombuffer(one.payloads[0], np.int64)[0]) for one in messages]


def test_changes_since_the_durable_number_are_repeated(server, session):
    for i in range(5):
        put(session, i).result()
    server.save()
    for i in range(5, 9):
        put(session, i).result()
    assert session.durable_number == 5 and session.number == 9
    server.calls.clear()
    server.restart()
    put(session, 9).result()
    assert values(server) == list(range(10)) and session.number == 10
    # The first attempt, then each lost change once.
    assert sorted(sequence for _, sequence in server.calls[1:]) == [6, 7, 8, 9, 10]


def test_a_read_alone_notices_the_restart(server, session):
    for i in range(100):
        put(session, i)
    session.tensors()
    server.restart()
    assert session.tensors() == {}
    assert values(server) == list(range(100))


def test_more_changes_than_the_window_are_repeated(server, session):
    for i in range(200):
        put(session, i).result()
    server.restart()
    read = session.submit(session.tensors)
    futures = [put(session, i) for i in range(200, 210)]
    for future in (read, *futures):
        future.result()
    assert values(server) == list(range(210))


@pytest.mark.parametrize("seed", range(4))
def test_restarts_at_any_moment(server, session, seed):
    rng = random.Random(seed)
    is_over = threading.Event()

    def disturb():
        while not is_over.is_set():
            # Not a time, in which a server on a busy machine answers no call at all.
            calls = len(server.calls) + rng.randrange(20)
            while len(server.calls) < calls and not is_over.wait(0.001):
                pass
            rng.choice((server.save, server.restart, server.restart))()

    thread = threading.Thread(target=disturb)
    thread.start()
    futures, refused = [], 0
    for i in range(300):
        futures.append(put(session, i))
        if rng.random() < 0.05:
            session.tensors()
        if rng.random() < 0.03:
            for future in futures:
                future.result()
            with pytest.raises(convgrad.InvalidArgument):
                put(session, 1000, "bad").result()
            refused += 1
    for future in futures:
        future.result()
    is_over.set()
    thread.join()
    session.tensors()
    assert values(server) == list(range(300)) and session.failures == refused


def test_a_tape_comes_back(server, session):
    session.run("p", {"x": np.ones(2, np.float32)}, tape="t")
    put(session, 1).result()
    server.save()  # there is a tape
    assert server.disk[0] == 0
    server.restart()
    assert not server.tapes
    session.tensors()
    assert server.tapes == {"t"}
    session.drop_programs(tapes=["t"])
    assert session.save_state() == 3 and session.durable_number == 3


def test_arrays_may_change_once_a_call_has_returned(server, session):
    x = np.array([1], np.int64)
    session.put("x", x)
    x[0] = 2
    server.restart()
    session.tensors()
    assert values(server) == [1]


def test_a_full_session_asks_for_a_snapshot_and_waits_for_it(server, client):
    with client.session(durable=True, keep_open=True, replay_bytes=20_000) as session:
        server.may_save.clear()
        futures = []

        def fill():
            futures.extend(put(session, i) for i in range(100))

        thread = threading.Thread(target=fill)
        thread.start()
        wait_until(lambda: session._durable.replay.is_full)
        assert len(futures) < 100
        server.may_save.set()
        thread.join()
        for future in futures:
            future.result()
        assert 0 < server.saves < 30
        # Changes that were in flight when it became full come on top.
        replay = session._durable.replay
        assert replay._bytes < 20_000 + WINDOW * replay._bytes / max(len(replay._kept), 1)
        server.restart()
        session.tensors()
        assert values(server) == list(range(100))


def test_training_goes_on_if_the_server_cant_write(server, client, caplog):
    server.cant_save = grpc.StatusCode.INTERNAL
    with client.session(durable=True, keep_open=True, replay_bytes=20_000) as session:
        with caplog.at_level(logging.WARNING, "convgrad"):
            for i in range(100):
                put(session, i).result()
        assert caplog.text.count("a restart of the server now would lose") == 1
        server.cant_save = None
        session.save_state()
        assert "durable again" in caplog.text
        put(session, 100).result()
        server.restart()
        session.tensors()
        assert values(server) == list(range(101))


@pytest.mark.parametrize("error", [None, grpc.StatusCode.UNAVAILABLE])
def test_a_restart_before_the_snapshot_is_written_loses_nothing(server, client, error):
    with client.session(durable=True, keep_open=True, replay_bytes=5_000) as session:
        server.may_save.clear()
        server.seconds_of_change = 0.5  # so that all are in flight before one is committed
        for future in [put(session, i) for i in range(WINDOW)]:
            future.result()
        server.seconds_of_change = 0
        replay = session._durable.replay
        assert replay.is_saving and replay._bytes > 2 * 5_000
        server.restart()
        server.cant_save = error
        server.may_save.set()
        wait_until(lambda: not replay.is_saving)
        session.tensors()
        assert values(server) == list(range(WINDOW))


def test_a_late_answer_asks_for_a_snapshot_of_all_that_is_kept(server, client):
    with client.session(durable=True, keep_open=True, replay_bytes=5_000) as session:
        server.late = 1
        server.may_save.clear()
        futures = [put(session, 0)]
        wait_until(lambda: server.number == 1)
        server.save()
        server.seconds_of_change = 0.3  # so that all are in flight
        futures += [put(session, i) for i in range(1, 50)]
        for future in futures[1:]:
            future.result()
        server.cant_save = grpc.StatusCode.UNIMPLEMENTED  # ends the first request
        replay = session._durable.replay
        replay._limit = 40_000  # so that the refusal drops nothing
        server.may_save.set()
        wait_until(lambda: not replay.is_saving)
        replay._limit = 5_000
        server.may_save.clear()
        server.cant_save = None
        server.may_answer.set()
        futures[0].result()
        wait_until(lambda: replay.is_saving)
        server.restart()
        server.may_save.set()
        wait_until(lambda: not replay.is_saving)
        session.tensors()
        assert values(server) == list(range(50))


def test_refused_snapshots_bound_what_is_kept(server, client, caplog):
    server.cant_save = grpc.StatusCode.PERMISSION_DENIED
    with client.session(durable=True, keep_open=True, replay_bytes=20_000) as session:
        with caplog.at_level(logging.WARNING, "convgrad"):
            for i in range(100):
                put(session, i).result()
        assert caplog.text.count("a restart of the server now would lose") == 1
        assert session._durable.replay._bytes < 3 * 20_000


def test_busy_snapshots_are_asked_for_again(server, client):
    with client.session(durable=True, keep_open=True, replay_bytes=20_000) as session:
        server.is_busy_saving = 15
        most = 0
        for i in range(100):
            put(session, i).result()
            most = max(most, session._durable.replay._bytes)
        assert session.durable_number > 0 and most < 25_000  # new changes have waited


def test_resuming_asks_the_others_while_a_server_is_busy(server):
    busy = DurableStandIn()
    busy.is_busy = True
    with served(busy) as first, served(server) as second, \
            convgrad.Client([first, second], timeout=20, retry=FAST) as client, \
            client.session(resume=b"i" * 16, durable=True, keep_open=True) as session:
        put(session, 0).result()
    assert values(server) == [0]


def test_what_isnt_kept_cant_be_repeated(server, client):
    server.cant_save = grpc.StatusCode.INTERNAL
    with client.session(durable=True, keep_open=True, replay_bytes=20_000) as session:
        for i in range(100):
            put(session, i).result()
        server.restart()
        with pytest.raises(convgrad.SessionRestored, match="no longer has change 1"):
            put(session, 100).result()
        assert session.is_lost


def test_a_server_that_lost_what_was_durable_is_an_error(server, session):
    disk = server.disk
    put(session, 0).result()
    server.save()
    put(session, 1).result()
    server.disk = disk
    server.restart()
    with pytest.raises(convgrad.SessionRestored, match="as of change 0"):
        session.tensors()


def test_a_session_whose_files_are_damaged_ends(server, session):
    put(session, 0).result()
    server.restart()
    server.is_damaged = True
    for _ in range(2):
        with pytest.raises(convgrad.SessionDamaged):
            put(session, 1).result()
        with pytest.raises(convgrad.SessionDamaged):
            session.tensors()
    assert values(server) == []


def test_a_repeated_change_that_is_refused_ends_the_session(server, session):
    put(session, 0).result()
    put(session, 1, "ba").result()
    server.restart()
    server.refused = b"ba"
    with pytest.raises(convgrad.SessionRestored, match="change 2, which the client repeated"):
        put(session, 2).result()


def test_a_change_that_was_given_up_and_committed_is_repeated(server, session):
    with server.lock:  # it arrives, and isn't answered
        with pytest.raises(convgrad.DeadlineExceeded):
            session.put("x", np.array([0], np.int64), timeout=0.2)
    put(session, 1).result()
    assert values(server) == [0, 1] or values(server) == [1]
    before = values(server)
    server.restart()
    session.tensors()
    assert values(server) == before


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_committed_change_that_was_given_up_is_repeated(server, session, is_saved):
    server.unanswered = 1  # only the answer to the change behind it says that it was committed
    late = session.submit(session.put, "x", np.array([0], np.int64), timeout=2)
    wait_until(lambda: server.number == 1)
    with pytest.raises(convgrad.DeadlineExceeded):
        late.result()
    put(session, 1).result()
    server.seconds_of_change = 0.05  # behind its deadline
    if is_saved:
        server.save()
    server.restart()
    session.tensors()
    put(session, 2).result()
    assert values(server) == [0, 1, 2]


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_committed_change_that_is_late_after_restarts_is_repeated(server, session, restarts):
    server.unanswered = 1
    late = session.submit(session.put, "x", np.array([0], np.int64), timeout=1)
    put(session, 1).result()
    server.unreached = 1
    for i in range(restarts):
        server.restart()
        reader = threading.Thread(target=session.tensors)
        reader.start()
        wait_until(lambda i=i: len(server.calls) >= 4 + 2 * i)  # both are repeated
    with pytest.raises(convgrad.DeadlineExceeded):
        late.result()
    server.unreached = 0
    reader.join()
    put(session, 2).result()
    assert values(server) == [0, 1, 2]


def test_a_committed_change_that_is_refused_until_it_is_late_is_repeated(server, session):
    server.unanswered = 1
    late = session.submit(session.put, "x", np.array([0], np.int64), timeout=1)
    put(session, 1).result()
    server.refused_for_now = 1
    server.restart()  # FAST repeats a refused change for two seconds
    reader = threading.Thread(target=session.tensors)
    reader.start()
    with pytest.raises(convgrad.DeadlineExceeded):
        late.result()
    server.refused_for_now = 0
    reader.join()
    put(session, 2).result()
    assert values(server) == [0, 1, 2]


def test_another_client_keeps_the_session_it_has_resumed(server, session, client):
    put(session, 0).result()
    server.save()
    server.restart()
    with client.session(resume=session.id, keep_open=True) as second:
        put(second, 1).result()
        with pytest.raises(convgrad.SessionTakenOver):
            put(session, 2).result()
        put(second, 3).result()
    assert values(server) == [0, 1, 3]


def test_a_session_whose_server_was_restarted_is_closed(server, client):
    with client.session(durable=True) as session:
        put(session, 0).result()
        server.save()
        server.restart()
    assert server.is_closed


def test_resuming_returns_the_trainers_state(server, client):
    server.trainer_state = b"epoch 3"
    with client.session(resume=b"i" * 16, durable=True, keep_open=True) as session:
        assert session.trainer_state == b"epoch 3"
        session.put({}, trainer_state=b"epoch 4")
        session.run("p", {}, tape="t", trainer_state=b"run")
        messages = [kind.FromString(one) for kind, one in zip(
            (session_pb2.PutTensorsRequest, network_pb2.RunProgramRequest), server.history)]
        assert [message.trainer_state for message in messages] == [b"epoch 4", b"run"]


def test_the_size_of_what_is_kept_is_checked(client):
    with pytest.raises(convgrad.InvalidArgument, match="replay_bytes"):
        client.session(durable=True, replay_bytes=-1)
