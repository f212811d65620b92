"""Tests sessions with a real server: kept tensors, order, exactly once."""

import concurrent.futures
import threading

import numpy as np
import pytest
from cutting_proxy import CuttingProxy
from server_process import ServerProcess
from shared_steps import wait_until

import convgrad

X = np.arange(2 * 4 * 6 * 6, dtype=np.float32).reshape(2, 4, 6, 6) % 7 - 3
W = np.arange(6 * 4 * 3 * 3, dtype=np.float32).reshape(6, 4, 3, 3) % 5 - 2
B = np.arange(6, dtype=np.float32)
G = np.arange(2 * 6 * 6 * 6, dtype=np.float32).reshape(2, 6, 6, 6) % 3 - 1


@pytest.fixture
def session(client):
    with client.session() as session:
        yield session


def test_kept_operands_give_the_bits_of_arrays(client, session):
    session.put({"x": X, "w": W, "b": B}, layouts={"w": "OIX"})
    found = session.conv_forward("x", "w", "b", padding=1)
    np.testing.assert_array_equal(found.output,
                                  client.conv_forward(X, W, B, padding=1).output)
    gradients = session.conv_backward(G, input="x", weight="w", padding=1)
    expected = client.conv_backward(G, X, W, padding=1)
    for one, other in zip(gradients[:3], expected[:3]):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(
        session.conv_transpose_forward("x", W.swapaxes(0, 1)).output,
        client.conv_transpose_forward(X, W.swapaxes(0, 1)).output)
    session.put({"rows": X.reshape(2, -1), "flat": W.reshape(12, -1).repeat(8, 1)[:, :144]},
                layouts={"flat": "OIX"})
    np.testing.assert_array_equal(
        session.linear_forward("rows", "flat").output,
        client.linear_forward(X.reshape(2, -1),
                              W.reshape(12, -1).repeat(8, 1)[:, :144]).output)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_images_come_back_as_they_were_put(client, session, dtype):
    most = np.iinfo(dtype).max
    images = np.random.default_rng(1).integers(0, most, (3, 5, 7), dtype, endpoint=True)
    images[0, 0, :2] = most, 0
    for _ in range(2):
        session.put({"x": images, "last": images}, layouts={"last": "NWC"}, dedupe=True)
    for name in ("x", "last"):
        found = session.get(name)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, images)
        np.testing.assert_array_equal(session.get(name, first_item=1, items=1), images[1:2])
        with pytest.raises(convgrad.InvalidArgument):
            session.get(name, dtype="f32")
    assert session.tensors()["x"].dtype == dtype
    with pytest.raises(convgrad.InvalidArgument, match="dtype: found"):
        session.conv_forward("x", np.ones((6, 5, 3), np.float32), padding=1)
    with pytest.raises(convgrad.InvalidArgument, match="dtype: found"):
        client.conv_forward(images, np.ones((6, 5, 3), np.float32), padding=1)


def test_a_layout_changes_nothing_below_two_axes(session):
    for layout in ("OIX", "OXI", "XIO"):
        session.put({"bias": np.arange(3, dtype=np.float32), "scale": np.float32(2)},
                    layout=layout)
        np.testing.assert_array_equal(session.get("bias"), [0, 1, 2])
        assert session.get("scale") == 2


@pytest.mark.parametrize("layout, axes", [("NCX", (0, 3, 1, 2)), ("OXI", (0, 2, 3, 1))])
def test_an_array_of_any_strides_comes_back_in_its_shape(session, layout, axes):
    array = X.transpose(axes)
    session.put("x", array, layout=layout)
    np.testing.assert_array_equal(session.get("x"), array, strict=True)
    assert session.tensors()["x"].shape == array.shape


def test_results_stay_and_are_operands(client, session):
    session.put("w", W.transpose(0, 2, 3, 1), layout="OHWI")
    found = session.conv_forward(X, "w", padding=1, activation="relu", keep={"output": "y"})
    assert found.output is None and found.report.implementation
    expected = client.conv_forward(X, W, padding=1, activation="relu").output
    np.testing.assert_array_equal(session.get("y"), expected)
    np.testing.assert_array_equal(session.get("y", layout="NHWC", dtype="bf16"),
                                  expected.transpose(0, 2, 3, 1).astype("bfloat16"))
    found = session.conv_backward(
        G, X, "w", padding=1, activation="relu", output="y",
        gradients=["grad_bias", "grad_input"], keep={"grad_input": "gx"})
    expected = client.conv_backward(G, X, W, padding=1, activation="relu", output=expected)
    np.testing.assert_array_equal(session.get("gx"), expected.grad_input)
    np.testing.assert_array_equal(found.grad_bias, expected.grad_bias)
    np.testing.assert_array_equal(session.get("gx", first_item=1), expected.grad_input[1:])
    np.testing.assert_array_equal(session.get("gx", items=1), expected.grad_input[:1])
    kept = session.tensors()
    assert kept.keys() == {"w", "y", "gx"} and kept["gx"].shape == X.shape
    assert kept["w"].version == 1 and session.number == 3
    session.drop("w", "y")
    assert session.tensors().keys() == {"gx"}
    session.drop()
    assert not session.tensors()


def test_streams_read_what_is_kept(client, session):
    """A stream reads tensors that were submitted before it."""
    session.submit(session.put, {"w": W, "b": B}, layouts={"w": "OIX"})
    found = session.conv_forward(X, "w", "b", padding=1, slice_items=1)
    np.testing.assert_array_equal(found.output,
                                  client.conv_forward(X, W, B, padding=1).output)
    session.put("x", X)
    expected = client.conv_backward(G, X, W, padding=1)
    gradients = session.conv_backward(G, "x", "w", padding=1, slice_items=1)
    for one, other in zip(gradients[:3], expected[:3]):
        np.testing.assert_array_equal(one, other)


def test_a_stream_behind_a_change_that_fails_ends_with_it():
    server = ServerProcess()
    with convgrad.Client(server.address) as client, client.session() as session:
        session.put("w", W, layout="OIX")
        # Both calls are in flight before the server answers the first one.
        with server.standing_still():
            failing = session.submit(session.put, "no/good", X)
            read = session.submit(session.conv_forward, X, "w", padding=1, slice_items=1)
        assert isinstance(failing.exception(), convgrad.InvalidArgument)
        assert isinstance(read.exception(), convgrad.EpochEnded)
    server.kill()


def test_gradients_add_up(client, session):
    session.put("w", W, layout="OIX")
    for scale in (1, 2, 3):
        session.conv_backward(G, X, "w", padding=1, gradients=["grad_weight"],
                              scales={"grad_weight": scale}, add={"grad_weight": "gw"})
    expected = client.conv_backward(G, X, W, padding=1).grad_weight
    np.testing.assert_array_equal(session.get("gw"), 6 * expected)


def test_changes_are_pipelined_in_order():
    """The client sends as many changes as the window holds before the first answer."""
    server = ServerProcess()
    futures = []
    with convgrad.Client(server.address) as client, client.session() as session:

        def put_all():
            for i in range(200):
                futures.append(session.submit(session.put, "x", X + i))

        thread = threading.Thread(target=put_all)
        with server.standing_still():
            thread.start()
            wait_until(lambda: len(futures) == 64)
        thread.join()
        read = session.submit(session.get, "x")
        np.testing.assert_array_equal(read.result(), X + 199)
        assert [future.result() for future in futures] == [None] * 200
        assert session.number == 200
    server.kill()


def test_what_came_behind_a_failure_fails_with_it():
    server = ServerProcess()
    with convgrad.Client(server.address) as client, client.session() as session:
        session.put("before", X)
        # All changes are in flight before the server answers one.
        with server.standing_still():
            futures = [session.submit(session.put, name, X)
                       for name in ("one", "no/good", "two")]
            read = session.submit(session.get, "two")
        assert futures[0].result() is None
        assert isinstance(futures[1].exception(), convgrad.InvalidArgument)
        for future in (futures[2], read):
            assert isinstance(future.exception(), convgrad.EpochEnded)
        assert "tensors[0].name" in str(futures[2].exception())
        assert "a change failed that this call was to see" in str(read.exception())
        session.put("three", X)
        assert session.tensors().keys() == {"before", "one", "three"}
    server.kill()


@pytest.mark.parametrize("name", ["", "a/b", "a\\b", "..\n", "\x00", "é", "n" * 10240])
def test_bad_names(session, name):
    for attempt in (lambda: session.put(name, X), lambda: session.conv_forward(
            X, W, keep={"output": name})):
        with pytest.raises(convgrad.InvalidArgument, match="expected"):
            attempt()
    with pytest.raises(convgrad.NotFound):
        session.conv_forward(X, name)
    session.put("good", X)
    assert session.tensors().keys() == {"good"}


def test_other_bad_input(client, session):
    for attempt, words in (
            (lambda: session.put("x"), "array: found nothing"),
            (lambda: session.put("x", X.astype("f8")), "tensors.x.dtype: found float64"),
            (lambda: session.put("x", X, layout="NHCW"), "tensors.x.layout: found NHCW"),
            (lambda: session.conv_forward(X, W, keep={"output": "y"}, add={"output": "y"}),
             "add.output: found 'y'"),
            (lambda: session.conv_forward(X, W, keep={"grad_input": "y"}),
             "keep.grad_input: found a result not asked for"),
            (lambda: session.submit(client.conv_forward, X, W), "a method of this session"),
            (lambda: client.conv_forward("x", W), "session: found the name 'x'")):
        with pytest.raises(convgrad.InvalidArgument) as caught:
            attempt()
        assert words in caught.value.message
    with pytest.raises(convgrad.Unimplemented, match="a stream whose results stay"):
        session.conv_forward(X, W, keep={"output": "y"}, slice_items=1)
    with pytest.raises(convgrad.InvalidArgument, match="sizes below 2\\^63 bytes"):
        session.conv_backward(G, X, W, gradients=["grad_input", "grad_weight"],
                              input_shape=(2**40, 3, 2**20, 2**10), keep={"grad_weight": "g"})
    session.put("sum", X)
    with pytest.raises(convgrad.InvalidArgument):
        session.conv_forward(X, W, padding=1, add={"output": "sum"})
    assert session.number == 1


def test_a_quota_that_is_full(client):
    with client.session(quota=4 * X.nbytes) as session:
        session.put("x", X)
        with pytest.raises(convgrad.ResourceExhausted, match="quota"):
            session.put({str(i): X for i in range(9)})
        session.drop("x")
        session.put("y", X)
        assert session.tensors().keys() == {"y"}


def test_bytes_that_the_server_has_arent_sent(monkeypatch):
    server = ServerProcess("--metrics_listen=127.0.0.1:0")
    with convgrad.Client(server.address) as client, client.session() as first, \
            client.session() as second:
        first.put({"x": X, "w": W}, layouts={"w": "OIX"}, dedupe=True)
        before = server.received_bytes("put")
        assert before == X.nbytes + W.nbytes
        second.put({"x": X, "w": W, "b": B}, layouts={"w": "OIX"}, dedupe=True)
        assert server.received_bytes("put") == before + B.nbytes
        np.testing.assert_array_equal(second.get("w"), W)
        # As if the server had lost the tensors between the client's question and its put.
        monkeypatch.setattr(second._uploads, "known", lambda digests, _: frozenset(digests))
        later = [second.submit(second.put, "gone", X + 1, dedupe=True),
                 second.submit(second.put, "later", B)]
        assert [future.result() for future in later] == [None, None]
        np.testing.assert_array_equal(second.get("gone"), X + 1)
    server.kill()


def test_a_change_whose_deadline_is_over():
    """A change that is given up while the server stands still never happens; later ones do."""
    server = ServerProcess()
    with convgrad.Client(server.address) as client, client.session() as session:
        session.put("x", X)
        with server.standing_still():
            late = session.submit(session.put, "late", X, timeout=0.2)
            behind = session.submit(session.put, "behind", X)
            assert isinstance(late.exception(), convgrad.DeadlineExceeded)
        assert isinstance(behind.exception(), (convgrad.EpochEnded, type(None)))
        session.put("after", X)
        assert session.tensors().keys() - {"late", "behind"} == {"x", "after"}
    server.kill()


def test_what_a_lost_session_never_answered_is_not_acknowledged():
    server = ServerProcess()
    with convgrad.Client(server.address) as client:
        session = client.session()
        session.put("x", X)
        server.kill()
        lost = [session.submit(session.put, name, X) for name in ("y", "z")]
        server.restart()
        assert all(isinstance(one.exception(), convgrad.SessionExpired) for one in lost)
        assert session.is_lost and session.number == 1
    server.kill()


def test_what_is_submitted_is_read_at_once():
    """The client copies a submitted array at once, for one message or for a stream."""
    server = ServerProcess("--max_message_bytes=4MiB")
    with convgrad.Client(server.address) as client, client.session() as session:
        for size in (1000, 64 << 20):
            array = np.ones(size, np.uint8)
            future = session.submit(session.put, "x", array)
            array[...] = 0
            future.result()
            assert session.get("x").min() == 1
    server.kill()


def test_what_is_submitted_is_read_at_once_for_a_stream():
    """The message of a read is too large for the server, so that the client sends a stream."""
    server = ServerProcess("--max_message_bytes=1MiB")
    x = np.ones((64, 4, 64, 64), np.float32)
    with convgrad.Client(server.address) as client, client.session() as session:
        session.put("w", W, layout="OIX")
        expected = session.conv_forward(x, "w").output
        with server.standing_still():
            read = session.submit(session.conv_forward, x, "w")
            x[...] = 0
        np.testing.assert_array_equal(read.result().output, expected)
    server.kill()


def test_a_put_by_digest_is_read_at_once(session, monkeypatch):
    # As if the server had lost the tensor between the client's question and its put.
    monkeypatch.setattr(session._uploads, "known", lambda digests, _: frozenset(digests))
    for dedupe in (True, False):
        array = np.ones(1000, np.float32)
        future = session.submit(session.put, "x", array, dedupe=dedupe)
        array[...] = 0
        future.result()
        assert session.get("x").min() == 1


def test_a_put_that_finds_no_room_leaves_the_shapes_as_they_are():
    server = ServerProcess()
    with convgrad.Client(server.address) as client, client.session() as session:
        session.put("w", W, layout="OIX")
        with server.standing_still():
            futures = [session.submit(session.put, "x", X) for _ in range(64)]
            with pytest.raises(convgrad.DeadlineExceeded):
                session.put("w", W[:, :1], layout="OIX", timeout=0.1)
        assert [future.result() for future in futures] == [None] * 64
        assert session.conv_forward(X, "w").output.shape == (2, 6, 4, 4)
    server.kill()


@pytest.mark.parametrize("timeout", [float("inf"), 1e10, 1e300, 10**20])
def test_timeouts_beyond_every_clock(client, session, timeout):
    session.put("x", X, timeout=timeout)
    session.submit(session.put, "y", X, timeout=timeout).result()
    assert session.get("x", timeout=timeout).shape == X.shape
    assert client.conv_forward(X, W, slice_items=1, timeout=timeout).output.any()
    with convgrad.Client(client.targets[0], timeout=timeout, keepalive_seconds=timeout) as far:
        with far.session() as other:
            other.put("x", X)


def test_threads_share_a_session(session):
    session.put("w", W, layout="OIX")

    def work(_):
        for _ in range(10):
            session.conv_backward(G, X, "w", padding=1, gradients="grad_weight",
                                  add={"grad_weight": "gw"})

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    expected = session.conv_backward(G, X, "w", padding=1).grad_weight
    np.testing.assert_array_equal(session.get("gw"), 80 * expected)


def accumulate(session, operands, steps):
    futures = [session.submit(session.put, "w", W, layout="OIX")]
    for i in range(steps):
        futures.append(session.submit(
            session.conv_backward, operands[i], X, "w", padding=1, gradients="grad_weight",
            add={"grad_weight": "gw"}))
    for future in futures:
        future.result()
    return session.get("gw"), session.number


def test_connections_that_are_cut_change_no_bit(server, client, rng):
    operands = rng.standard_normal((400, *G.shape), np.float32)
    with client.session() as session:
        expected = accumulate(session, operands, 400)
    proxy = CuttingProxy(server.address, cuts=100, mean_bytes=30_000)
    retry = convgrad.RetryPolicy(max_attempts=10_000, max_seconds=0.05)
    with convgrad.Client(proxy.address, retry=retry) as cut, cut.session() as session:
        found = accumulate(session, operands, 400)
    assert proxy.cuts == 100
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1] == expected[1] == 401
    proxy.close()
