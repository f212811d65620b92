"""Tests that streams put and get tensors that are larger than one message."""

import numpy as np
import pytest
from cutting_proxy import CuttingProxy
from server_process import ServerProcess

import convgrad

LARGE = np.arange(9 << 18, dtype=np.float32).reshape(9, 256, 1024)  # 9 MiB
SMALL = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def small_messages():
    process = ServerProcess("--max_message_bytes=1048576", "--metrics_listen=127.0.0.1:0")
    yield process
    process.kill()


@pytest.fixture
def session(small_messages):
    with convgrad.Client(small_messages.address, timeout=60) as client, \
            client.session() as session:
        yield session


def test_large_arrays_come_back(session):
    session.put({"large": LARGE, "empty": LARGE[:0], "small": SMALL})
    found = session.get(["small", "large", "empty"])
    np.testing.assert_array_equal(found["large"], LARGE)
    np.testing.assert_array_equal(found["small"], SMALL)
    assert found["empty"].shape == (0, 256, 1024)
    np.testing.assert_array_equal(session.get("large", first_item=2), LARGE[2:])
    np.testing.assert_array_equal(session.get("large", layout="NXC"),
                                  LARGE.transpose(0, 2, 1))
    np.testing.assert_array_equal(session.get("large", dtype="bf16"),
                                  LARGE.astype("bfloat16"))
    assert session.number == 1
    pixels = LARGE.astype(np.uint16)
    session.put("pixels", pixels)
    found = session.get("pixels", first_item=1)
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, pixels[1:])


def test_more_arrays_than_a_message_has_payloads(session):
    arrays = {f"t{i}": np.full(3, i, np.float32) for i in range(1025)}
    session.put(arrays)
    assert session.number == 1
    found = session.get(arrays)
    assert found.keys() == arrays.keys()
    np.testing.assert_array_equal(found["t1024"], arrays["t1024"])


def test_they_have_their_place_among_other_changes(session):
    futures = [session.submit(session.put, "x", value)
               for value in (SMALL, LARGE, SMALL, LARGE + 1, SMALL, LARGE + 2)]
    read = session.submit(session.get, "x")
    np.testing.assert_array_equal(read.result(), LARGE + 2)
    assert [future.result() for future in futures] == [None] * 6
    failing = session.submit(session.put, "no/good", LARGE)
    assert isinstance(failing.exception(), convgrad.InvalidArgument)
    assert failing.exception().field == "tensors[0].name"
    np.testing.assert_array_equal(session.get("x"), LARGE + 2)


def test_known_bytes_arent_sent(small_messages, session, monkeypatch):
    session.put("x", LARGE, dedupe=True)
    before = small_messages.received_bytes("put")
    session.put({"y": LARGE, "z": LARGE + 1}, dedupe=True)
    assert small_messages.received_bytes("put") == before + LARGE.nbytes
    np.testing.assert_array_equal(session.get("y"), LARGE)
    # As if the server had lost the tensor between the client's question and its put.
    monkeypatch.setattr(session._uploads, "known", lambda digests, _: frozenset(digests))
    session.put("w", LARGE + 2, dedupe=True)
    np.testing.assert_array_equal(session.get("w"), LARGE + 2)


def test_a_quota_is_checked_before_the_bytes_are_sent(small_messages):
    before = small_messages.received_bytes("put")
    with convgrad.Client(small_messages.address) as client, \
            client.session(quota=1 << 20) as session:
        with pytest.raises(convgrad.ResourceExhausted, match="quota"):
            session.put("x", LARGE)
        session.put("x", SMALL)
    assert small_messages.received_bytes("put") == before + SMALL.nbytes


def test_connections_that_are_cut_change_no_bit(small_messages):
    proxy = CuttingProxy(small_messages.address, cuts=12, mean_bytes=6_000_000)
    retry = convgrad.RetryPolicy(max_attempts=10_000, max_seconds=0.05)
    with convgrad.Client(proxy.address, retry=retry) as client, client.session() as session:
        steps = 0
        while proxy.cuts < 12:
            steps += 1
            session.put("x", LARGE + steps)
            np.testing.assert_array_equal(session.get("x"), LARGE + steps)
        assert session.number == steps
    proxy.close()
