"""Tests programs in sessions, with NumPy only."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from server_process import ServerProcess

import convgrad


def test_programs_names_and_attributes():
    program = convgrad.Program()
    x = program.input("x")
    one, two = program.step("relu", x), program.step("relu", x)
    assert (one, two) == ("relu", "relu_2")
    with pytest.raises(convgrad.InvalidArgument, match="the name 'x' twice"):
        program.parameter("x", (3,))
    with pytest.raises(convgrad.InvalidArgument, match="parameters.w.dtype: found bf16"):
        program.parameter("w", (3,), dtype="bf16")
    with pytest.raises(convgrad.InvalidArgument, match="attributes.p: found"):
        program.step("dropout", x, attributes={"p": ["a"]})


def test_names_of_many_steps():
    program = convgrad.Program()
    x = program.input("x")
    assert program.step("relu", x, name="relu_3") == "relu_3"
    assert [program.free_name("x"), program.free_name("x")] == ["x_2", "x_2"]
    started = time.monotonic()
    names = [program.step("relu", x) for _ in range(30_000)]
    assert names[:3] == ["relu", "relu_2", "relu_4"] and names[-1] == "relu_30001"
    assert program.copy().step("relu", x) == "relu_30002"
    assert time.monotonic() - started < 10  # a search from 2 on takes minutes


def test_values_within_a_group_and_recomputation(client):
    program = convgrad.Program()
    x = program.input("x")
    for i in range(8):
        w = program.parameter(f"w{i}", (16, 16, 3, 3))
        x = program.step("conv", x, w, None, name=f"a{i}", attributes={"padding": 1})
        x = program.step("batch_norm", x, None, None, None, None, name=f"b{i}",
                         attributes={"training": True})
        x = program.step("relu", x, name=f"c{i}")
    program.output(x)
    rng = np.random.default_rng(3)
    images = rng.normal(size=(2, 16, 8, 8)).astype(np.float32)
    with client.session() as session:
        session.put({f"w{i}": rng.normal(size=(16, 16, 3, 3)).astype(np.float32)
                     for i in range(8)})
        session.load_program("net", program)
        fused = session.run("net", {"x": images}, report_groups=True)
        groups = [list(group.values) for group in fused.report.groups]
        assert [value for group in groups for value in group] == [
            f"{value}{i}" for i in range(8) for value in "abc"]
        hidden = [value for group in groups for value in group[:-1]]
        assert "b0" in hidden
        with pytest.raises(convgrad.Unimplemented, match="fetched: found b0"):
            session.run("net", {"x": images}, fetched=["b0"])
        apart = session.run("net", {"x": images}, fetched=["b0", "c0", "c7"], fuse=False,
                            report_groups=True)
        assert all(len(group.values) == 1 for group in apart.report.groups)
        np.testing.assert_array_equal(apart.values["c0"], np.maximum(apart.values["b0"], 0))
        np.testing.assert_allclose(apart.values["c7"], fused.values["c7"], atol=1e-4)
        assert not session.run("net", {"x": images}).report.groups
        given = {"c7": np.ones((2, 16, 8, 8), np.float32)}
        found = []
        for recompute in (False, True):
            run = session.run("net", {"x": images}, tape="tape", recompute=recompute)
            back = session.backward("tape", given, input_gradients=["x"])
            weights = [session.get(f"w{i}#gradient").tobytes() for i in range(8)]
            session.drop(*(f"w{i}#gradient" for i in range(8)))
            found.append((run.report.tape_bytes, back.values["x#gradient"].tobytes(), weights))
        assert found[1][1:] == found[0][1:]
        assert found[1][0] < 0.7 * found[0][0]


def test_the_server_decides_on_fast_convolutions(client):
    program = convgrad.Program()
    x = program.input("x")
    w = program.parameter("w", (32, 32, 3, 3))
    program.output(program.step("conv", x, w, None, name="y", attributes={"padding": 1}))
    rng = np.random.default_rng(4)
    images = rng.normal(size=(1, 32, 16, 16)).astype(np.float32)
    weights = rng.normal(size=(32, 32, 3, 3)).astype(np.float32)

    def found(of, **keywords):
        """Returns whether the convolution is fast, and its bytes."""
        with of.session() as session:
            session.put({"w": weights})
            session.load_program("net", program)
            run = session.run("net", {"x": images}, report_groups=True, **keywords)
            return run.report.groups[0].fast, run.values["y"].tobytes()

    fast, direct = found(client), found(client, fast=False)
    assert fast[0] and not direct[0] and fast != direct
    assert found(client, fast=True) == fast
    server = ServerProcess("--fast_convolutions=false")
    try:
        with convgrad.Client(server.address, timeout=60) as other:
            assert found(other) == found(other, fast=False) == direct
            with pytest.raises(convgrad.FailedPrecondition, match="fast: found true"):
                found(other, fast=True)
    finally:
        server.kill()


@pytest.mark.parametrize("seed", [np.array([[7, 0]]), np.array([7, 0], np.float32)])
def test_a_seed_of_another_shape_or_dtype(client, seed):
    program = convgrad.Program()
    program.output(program.step("dropout", program.input("x"), name="y",
                                attributes={"training": True}))
    with client.session() as session:
        session.load_program("net", program)
        session.put("#randomness", seed)
        with pytest.raises(convgrad.InvalidArgument, match="#randomness: found .* i64"):
            session.run("net", {"x": np.ones((4, 4), np.float32)}, change=True)
        session.put("#randomness", np.array([7, 0]))
        session.run("net", {"x": np.ones((4, 4), np.float32)}, change=True)
        np.testing.assert_array_equal(session.get("#randomness"), [7, 1])


def test_first_runs_at_once(client):
    """Each plans a program of its own, and the client repeats those that are BUSY."""
    def found(steps):
        program = convgrad.Program()
        y, w = program.input("x"), program.parameter("w", (3, 3))
        for _ in range(steps):
            y = program.step("linear", y, w, None)
        program.output(y)
        with client.session() as session:
            session.put("w", np.eye(3, dtype=np.float32))
            session.load_program("net", program)
            run = session.run("net", {"x": np.ones((2, 3), np.float32)}, tape="tape")
            return run.values[y].sum()

    with ThreadPoolExecutor() as threads:
        assert list(threads.map(found, range(100, 108))) == [6] * 8


def test_a_product_that_does_not_fit(client):
    program = convgrad.Program()
    program.output(program.step("matmul", program.input("a"), program.input("b"), name="c"))
    rows = np.ones((2, 3), np.float32)
    with client.session() as session:
        session.load_program("net", program)
        with pytest.raises(convgrad.InvalidArgument, match=r"\(c\).y: found \[2,3\]"):
            session.run("net", {"a": rows, "b": rows})


def test_states_of_another_optimizer(client):
    weights, group = np.ones((2, 3), np.float32), convgrad.ParameterGroup(["w"], 0.5)
    with client.session() as session:
        session.put({"w": weights, "w#gradient": weights, "w#momentum_buffer": weights})
        with pytest.raises(convgrad.InvalidArgument, match="w#momentum_buffer: found f32.*, "
                           "expected none, because the session lacks other states"):
            session.update(convgrad.Update("rmsprop", [replace(group, momentum=0.9)]))
        with pytest.raises(convgrad.InvalidArgument, match="beta1: found 1, .*below 1"):
            session.update(convgrad.Update("adam", [replace(group, beta1=1.0)]))
        session.put("w#exp_avg", weights)
        with pytest.raises(convgrad.InvalidArgument, match="w#exp_avg_sq: found no tensor"):
            session.update(convgrad.Update("adam", [group]))
        np.testing.assert_array_equal(session.get("w"), weights)


@pytest.mark.parametrize("method, arguments, said", [
    ("run", {"fetched": "wb"}, "fetched: found 'wb', expected a list of names"),
    ("run", {"backward": convgrad.Backward(input_gradients="x")}, "input_gradients: found 'x'"),
    ("backward", {"input_gradients": "x"}, "input_gradients: found 'x'"),
    ("update", {"parameters": "wb"}, r"groups\[0\].parameters: found 'wb'"),
    ("update", {"averaged": "wb"}, "averaged: found 'wb'"),
    ("update", {"learning_rate": None}, r"groups\[0\].learning_rate: found None"),
    ("drop_programs", {"tapes": "t1"}, "tapes: found 't1'"),
    ("run", {"compute_dtype": "f16"}, "found f16, expected float32 or bfloat16")])
def test_words_in_place_of_lists_and_none_are_refused(client, method, arguments, said):
    """The letters would be names, and None would be 0."""
    with client.session() as session:
        if method == "update":
            averaged = arguments.pop("averaged", ())
            group = convgrad.ParameterGroup(**{"parameters": ["w"], "learning_rate": 0.1,
                                               **arguments})
            arguments = {"update": convgrad.Update("adam", [group], averaged=averaged)}
        first = {"run": ("p", {}), "backward": ("t", {})}.get(method, ())
        with pytest.raises(convgrad.InvalidArgument, match=said):
            getattr(session, method)(*first, **arguments)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("compute_dtype", ["f32", "bf16"])
def test_images_as_they_are(client, dtype, compute_dtype):
    """Images are sent by value or kept, also channels last."""
    most = np.iinfo(dtype).max
    program = convgrad.Program()
    x = program.input("x")
    program.output(program.step("normalize", x, name="y",
                                attributes={"mean": [0.0], "std": [most / 2]}))
    images = np.random.default_rng(5).integers(0, most, (2, 3, 5, 7), dtype, endpoint=True)
    images[0, 0, 0, :2] = most, 0
    expected = images.astype("bfloat16" if compute_dtype == "bf16" else "f4").astype("f8")
    with client.session() as session:
        session.load_program("net", program)
        session.put({"x": images, "last": images.transpose(0, 2, 3, 1)},
                    layouts={"last": "NHWC"})
        for given in (images, np.asfortranarray(images), "x", "last"):
            found = session.run("net", {"x": given}, compute_dtype=compute_dtype).values["y"]
            np.testing.assert_allclose(found.astype("f8"), expected / (most / 2),
                                       rtol=2**-22 if compute_dtype == "f32" else 2**-8)
        with pytest.raises(convgrad.InvalidArgument, match="x.dtype: found float64"):
            session.run("net", {"x": images.astype("f8")})
        with pytest.raises(convgrad.InvalidArgument, match=r"x.dtype: found >u2|>u2"):
            session.run("net", {"x": images.astype(">u2")})


def test_a_programs_calls_without_torch(client):
    program = convgrad.Program()
    x = program.input("x")
    w = program.parameter("w", (2, 3))
    y = program.step("linear", x, w, None, name="y")
    target = program.input("target", is_index=True)
    program.output(program.step("cross_entropy", y, target, name="loss",
                                attributes={"reduction": "sum"}), y)
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    with client.session() as session:
        session.put({"w": np.ones((2, 3), np.float32), "labels": np.array([0, 1, 1, 1])})
        session.load_program("net", program)
        session.load_program("net", program)
        found = session.run("net", {"x": rows, "target": "labels"})
        assert list(found.values) == ["loss", "y"] and found.report.backend
        np.testing.assert_array_equal(found.values["y"], rows.sum(1)[:, None].repeat(2, 1))
        np.testing.assert_allclose(found.values["loss"], 4 * np.log(2), rtol=1e-6)
        trained = session.run("net", {"x": rows, "target": "labels"}, fetched=["loss"],
                              backward=convgrad.Backward(input_gradients=["x"]))
        assert list(trained.values) == ["loss", "x#gradient"]
        gradient = session.get("w#gradient")
        expected = np.array([-0.5, 0.5])[:, None] * (rows[1:].sum(0) - rows[0])
        np.testing.assert_allclose(gradient, -expected, rtol=1e-6)
        session.run("net", {"x": rows, "target": "labels"}, tape="tape")
        session.backward("tape", {"y": np.ones((4, 2), np.float32)}, retain=True)
        back = session.backward("tape", {"y": np.ones((4, 2), np.float32)},
                                input_gradients=["x"], leave_parameters=True)
        np.testing.assert_array_equal(back.values["x#gradient"], np.full((4, 3), 2))
        np.testing.assert_allclose(session.get("w#gradient"), gradient + rows.sum(0))
        with pytest.raises(convgrad.NotFound, match="tape"):
            session.backward("tape", {"y": np.ones((4, 2), np.float32)})
        session.put("w#gradient", np.ones((2, 3), np.float32))
        session.update(convgrad.Update("sgd", [convgrad.ParameterGroup(["w"], 0.5)]))
        np.testing.assert_array_equal(session.get("w"), np.full((2, 3), 0.5))
        np.testing.assert_array_equal(session.get("labels"), [0, 1, 1, 1])
        assert session.tensors().keys() == {"w", "labels"}
        session.drop_programs("net", tapes=["tape"])
        with pytest.raises(convgrad.NotFound, match="net"):
            session.run("net", {"x": rows, "target": "labels"})


def test_a_run_that_is_training_asks_for_a_change(client):
    program = convgrad.Program()
    program.output(program.step("dropout", program.input("x"), name="y",
                                attributes={"training": True}))
    with client.session() as session:
        session.load_program("net", program)
        with pytest.raises(convgrad.InvalidArgument, match="dropout is .* change=True"):
            session.run("net", {"x": np.ones((4, 4), np.float32)})
