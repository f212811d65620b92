"""Tests calls of a session that are not sent, and where the user's functions raise: the session
goes on."""

import gc
import itertools
import sys

import numpy as np
import pytest
from shared_steps import interrupted, wait_until

import convgrad
from convgrad.sessions.attempts import Read

X = np.ones(3, np.float32)


class Tokens:
    """A user's function for the token, which raises `error` if there is one."""

    def __init__(self):
        self.error = None
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return "secret"


@pytest.fixture
def tokens():
    return Tokens()


@pytest.fixture
def client(server, tokens):
    with convgrad.Client(server.address, token=tokens, timeout=15) as client:
        yield client


@pytest.mark.parametrize("error", [
    RuntimeError("no token"), ValueError("no token"), KeyboardInterrupt("no token")])
def test_a_change_that_cannot_be_started_fails_alone(client, tokens, error):
    with client.session() as session:
        session.put("a", X)
        tokens.error = error
        with pytest.raises(type(error), match="no token"):
            session.put("b", X)
        tokens.error = None
        session.put("c", X)
        assert session.tensors().keys() == {"a", "c"}
        assert session.number == 2


def test_a_change_that_is_interrupted_leaves_no_gap(client):
    with client.session() as session:
        for at in itertools.count():
            with interrupted(at) as functions:
                session.submit(session.put, "a", X)
            session.put("b", X + at)
            assert session.get("b")[0] == 1 + at
            if functions() <= at:
                break
        assert at > 10


def test_a_single_call_raises_what_its_start_raised(client, tokens):
    tokens.error = ValueError("no token")
    with pytest.raises(ValueError, match="no token"):
        client.capabilities()
    tokens.error = None
    assert client.capabilities().backends


def test_a_callback_that_exits_ends_no_session(client):
    with client.session() as session:
        session.submit(session.put, "a", X).add_done_callback(lambda _: sys.exit())
        assert session.submit(session.put, "b", X).result(20) is None


def test_a_callback_that_exits_leaves_no_future_open(server):
    with convgrad.Client(server.address) as client:
        session = client.session()
        with server.standing_still():
            failed, *behind = [session.submit(session.drop, f"nothing {i}") for i in range(3)]
            failed.add_done_callback(lambda _: sys.exit())
        assert [type(one.exception(20)) for one in (failed, *behind)] == [
            convgrad.NotFound, convgrad.EpochEnded, convgrad.EpochEnded]
        with server.standing_still():
            ended, *others = [session.submit(session.put, f"{i}", X) for i in range(3)]
            ended.add_done_callback(lambda _: sys.exit())
            client.close()
        assert [type(one.exception(20)) for one in (ended, *others)] == [
            convgrad.Cancelled] * 3


def test_a_read_that_is_cancelled_before_it_begins_leaves_nothing(server):
    def reads():
        gc.collect()
        return sum(isinstance(one, Read) for one in gc.get_objects())

    with convgrad.Client(server.address) as client, client.session() as session:
        before = reads()
        with server.standing_still():
            futures = [session.submit(session.tensors) for _ in range(100)]
            assert sum(one.cancel() for one in futures)
        assert [one.result(20) for one in futures if not one.cancelled()]
        wait_until(lambda: reads() == before)


@pytest.mark.parametrize("token, words", [
    (None, "found a NoneType, expected a str"), (b"x", "found a bytes, expected a str")])
def test_a_function_that_returns_no_token(server, token, words):
    with convgrad.Client(server.address, token=lambda: token) as client:
        with pytest.raises(convgrad.Unauthenticated, match=words):
            client.capabilities()


def test_leases_are_renewed_after_a_call_that_could_not_be_started(client, tokens):
    with client.session(lease=1) as session:
        session.put("a", X)
        tokens.error = RuntimeError("no token")
        seen = tokens.calls
        wait_until(lambda: tokens.calls > seen)
        tokens.error = None
        seen = tokens.calls
        wait_until(lambda: tokens.calls >= seen + 5, seconds=20)  # longer than the lease
        assert session.tensors().keys() == {"a"}


def test_a_session_ends_if_nothing_can_be_started_any_more(client, tokens):
    session = client.session(lease=1)
    session.put("a", X)
    tokens.error = RuntimeError("no token")
    with pytest.raises(RuntimeError, match="no token"):
        session.put("b", X)
    wait_until(lambda: session.is_lost)
    with pytest.raises(convgrad.SessionExpired, match="RuntimeError: no token"):
        session.put("c", X)
