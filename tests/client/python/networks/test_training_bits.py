"""Tests that a training's final state has the same bits whatever else happens."""

import contextlib
import threading

import numpy as np
import pytest
from cutting_proxy import CuttingProxy

import convgrad

STEPS = 20
SHAPES = {"conv.weight": (8, 3, 3, 3), "norm.weight": (8,), "norm.bias": (8,),
          "mean": (8,), "var": (8,), "fc.weight": (5, 128), "fc.bias": (5,)}
STATISTICS = ("mean", "var")
TRAINED = tuple(name for name in SHAPES if name not in STATISTICS)


def network():
    """Returns a program with a batch_norm and a dropout in training, and its loss."""
    program = convgrad.Program()
    x, target = program.input("x"), program.input("target", is_index=True)
    p = {name: program.parameter(name, dims, fixed=name in STATISTICS)
         for name, dims in SHAPES.items()}
    y = program.step("conv", x, p["conv.weight"], None, name="conv",
                     attributes={"padding": 1})
    y = program.step("batch_norm", y, p["norm.weight"], p["norm.bias"], p["mean"], p["var"],
                     name="norm", attributes={"training": True})
    y = program.step("relu", y, name="relu")
    y = program.step("max_pool", y, name="pool", attributes={"kernel_size": 2})
    y = program.step("dropout", y, name="dropped", attributes={"p": 0.1, "training": True})
    y = program.step("flatten", y, name="flat")
    logits = program.step("linear", y, p["fc.weight"], p["fc.bias"], name="logits")
    program.output(program.step("cross_entropy", logits, target, name="loss"), logits)
    return program


def initial():
    rng = np.random.default_rng(1)
    drawn = {name: rng.normal(0, 0.2, dims).astype(np.float32)
             for name, dims in SHAPES.items()}
    return drawn | {"mean": np.zeros(8, np.float32), "var": np.ones(8, np.float32)}


def trained(client, fetched=lambda step: ["loss"], steps=STEPS, **options):
    """Returns all tensors that the session keeps at the end, and the losses."""
    sgd = convgrad.Update("sgd", [convgrad.ParameterGroup(TRAINED, 0.05, momentum=0.9)])
    rng = np.random.default_rng(2)
    with client.session() as session:
        session.put(initial())
        session.load_program("net", network())
        runs = []
        for step in range(steps):
            inputs = {"x": rng.normal(size=(6, 3, 8, 8)).astype(np.float32),
                      "target": rng.integers(0, 5, 6)}
            runs.append(session.submit(session.run, "net", inputs, fetched=fetched(step),
                                       backward=convgrad.Backward(), **options))
            session.submit(session.update, sgd)
        losses = [run.result().values["loss"].tobytes() for run in runs]
        return {name: session.get(name).tobytes() for name in session.tensors()}, losses


@pytest.fixture(scope="module")
def expected(client):
    state, losses = trained(client)
    assert {*SHAPES, *(f"{name}#momentum_buffer" for name in TRAINED)} <= state.keys()
    assert state["fc.weight"] != initial()["fc.weight"].tobytes() and len(set(losses)) > 1
    return state, losses


def test_two_runs(client, expected):
    assert trained(client) == expected


def test_other_values_that_are_fetched(client, expected):
    others = (["logits"], ["pool"], ["dropped", "logits"], [])
    assert trained(client, lambda step: ["loss", *others[step % len(others)]]) == expected


def test_values_that_are_computed_again(client, expected):
    assert trained(client, recompute=True) == expected


def test_replies_that_are_lost_and_repeated(server, expected):
    proxy = CuttingProxy(server.address, cuts=20, mean_bytes=4_000)
    retry = convgrad.RetryPolicy(max_attempts=10_000, max_seconds=0.05)
    with contextlib.closing(proxy), convgrad.Client(proxy.address, retry=retry) as cut:
        assert trained(cut) == expected
    assert proxy.cuts == 20


@contextlib.contextmanager
def busy_client(address):
    """Trains networks of another client until the block ends."""
    done, rounds = threading.Event(), []

    def work():
        with convgrad.Client(address, timeout=60) as client:
            while not done.is_set():
                rounds.append(trained(client, steps=3))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield rounds
    finally:
        done.set()
        thread.join()


def test_two_other_clients_that_are_busy(server, client, expected):
    with busy_client(server.address) as one, busy_client(server.address) as other:
        for _ in range(3):
            assert trained(client) == expected
    assert one and other and all(found == one[0] for found in (*one, *other))
