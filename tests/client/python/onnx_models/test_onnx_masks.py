"""Tests masks that follow from data: comparisons, logic, and choices by them."""

import re

import numpy as np
import pytest
from onnx import TensorProto
from onnx_graphs import Builder, assert_same, expected_of, make_model, node, predicted_of

import convgrad.onnx

SHAPE = ["N", 3, 4]


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def halves(*shape, seed=0):
    """Numbers of which many are equal."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32) / 2


@pytest.mark.parametrize("operator", [
    "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
@pytest.mark.parametrize("other", [np.float32(0.5), halves(3, 1, seed=1)])
def test_comparisons(client, operator, other):
    for operands in ("x o", "o x"):
        nodes = [node(operator, operands, "m"), node("Cast", "m", "y", to=TensorProto.FLOAT)]
        model = make_model(nodes, {"x": SHAPE}, {"y": SHAPE}, {"o": other})
        x = halves(2, 3, 4)
        x[0, 0] = [1e-45, -1e-45, 3e38, -3e38]
        assert_same(client, model, x=x)


def test_a_comparison_with_a_trained_parameter_follows_it(client):
    nodes = [node("Greater", "x w", "m"), node("Where", "m x w", "y")]
    network = convgrad.onnx.load(make_model(
        nodes, {"x": SHAPE}, {"y": SHAPE}, {"w": random(4)}))
    x, w = random(2, 3, 4), random(4, seed=1)
    assert network.trainable == ["w"]
    with client.session() as session:
        network.put(session)
        session.put({"w": w})
        np.testing.assert_array_equal(network.predict(session, x)["y"], np.maximum(x, w))


@pytest.mark.parametrize("limit", [random(4), np.float32(0.5)], ids=["row", "number"])
def test_a_parameter_that_is_only_compared_does_not_train(limit):
    once = [node("Greater", "x t", "m"), node("Where", "m x w", "y")]
    twice = [*once, node("Less", "t y", "n"), node("Where", "n y w", "z")]
    for nodes, output in ((once, "y"), (twice, "z")):
        network = convgrad.onnx.load(make_model(nodes, {"x": SHAPE}, {output: SHAPE},
                                                {"t": limit, "w": random(4)}))
        assert network.trainable == ["w"]


@pytest.mark.parametrize("nodes, said", [
    ([node("Less", "x o", "m"), node("Where", "m x x", "y")], "Less of (N, 3, 4), (5), "),
    ([node("Less", "x x", "m"), node("Where", "m x o", "y")],
     "Where of (N, 3, 4), (N, 3, 4), (5), ")])
def test_operands_that_do_not_fit_are_refused(nodes, said):
    model = make_model(nodes, {"x": SHAPE}, {"y": SHAPE}, {"o": random(5)})
    with pytest.raises(convgrad.onnx.Refused, match=re.escape(said)):
        convgrad.onnx.load(model)


def test_a_constant_mask_of_six_axes(client):
    nodes = [node("Reshape", "x s", "z"), node("Where", "m z zero", "y")]
    model = make_model(nodes, {"x": SHAPE}, {"y": ["N", 1, 1, 1, 3, 4]}, {
        "s": np.array([-1, 1, 1, 1, 3, 4]), "m": random(1, 1, 1, 1, 3, 4) > 0,
        "zero": np.float32(0)})
    assert_same(client, model, x=random(2, 3, 4))


@pytest.mark.parametrize("number", [0, np.nan, -np.inf])
def test_a_number_that_is_chosen_does_not_train(client, number):
    """Exporters share an initializer between nodes that need the same number."""
    nodes = [node("Greater", "x w", "m"), node("Where", "m n x", "a"), node("Not", "m", "k"),
             node("Where", "k n a", "b"), node("Where", "m w b", "y")]
    model = make_model(nodes, {"x": SHAPE}, {"y": SHAPE},
                       {"w": random(4), "n": np.float32(number)})
    assert convgrad.onnx.load(model).trainable == ["w"]
    assert_same(client, model, x=random(2, 3, 4))


@pytest.mark.parametrize("detected", [{}, {"detect_positive": 0}, {"detect_negative": 0},
                                      {"detect_positive": 0, "detect_negative": 0}])
def test_nan_and_infinity(client, detected):
    nodes = [node("IsNaN", "x", "a"), node("IsInf", "x", "b", **detected),
             node("Equal", "x x", "c"), *(node("Cast", one, f"{one}y", to=TensorProto.FLOAT)
                                          for one in "abc")]
    model = make_model(nodes, {"x": ["N", 3]}, {f"{one}y": ["N", 3] for one in "abc"})
    x = np.array([[np.nan, np.inf, -np.inf], [0, 3e38, -1]], np.float32)
    assert_same(client, model, x=x)


@pytest.mark.parametrize("operator", ["And", "Or", "Xor"])
def test_logic(client, operator):
    nodes = [node("Greater", "x zero", "a"), node("Cast", "x", "b", to=TensorProto.BOOL),
             node("Not", "b", "c"), node(operator, "a c", "d"), node(operator, "d m", "e"),
             node("Cast", "e", "y", to=TensorProto.FLOAT)]
    model = make_model(nodes, {"x": SHAPE}, {"y": SHAPE}, {
        "zero": np.float32(0), "m": np.array([True, False, True, False])})
    assert_same(client, model, x=halves(2, 3, 4))


def test_sign(client):
    assert_same(client, make_model([node("Sign", "x", "y")], {"x": SHAPE}, {"y": SHAPE}),
                x=halves(2, 3, 4))


@pytest.mark.parametrize("other", [np.float32(-np.inf), random(3, 1), random(1, 1, 4)])
def test_a_choice_keeps_out_what_is_not_chosen(client, other):
    for operands in ("m z o", "m o z"):
        nodes = [node("Greater", "x zero", "m"), node("Log", "x", "z"),
                 node("Where", operands, "y")]
        model = make_model(nodes, {"x": SHAPE}, {"y": SHAPE}, {"zero": np.float32(0),
                                                               "o": other})
        x = random(2, 3, 4)
        with np.errstate(all="ignore"):
            expected = expected_of(model, x=x)[0]
        np.testing.assert_allclose(predicted_of(client, model, x=x)[0], expected, rtol=1e-5,
                                   atol=1e-6)


def masked_words(kind, how):
    """Rows of a table, weighted by a softmax that a mask of an input leaves out of."""
    b = Builder()
    minus = np.float32(-np.inf)
    b.arrays |= {"one": np.float32(1), "least": np.finfo(np.float32).min, "minus": minus,
                 "zero": np.float32(0)}
    rows = b.add("Gather", b.array("table", 7, 4), "i")
    scores = b.add("Squeeze", b.add("MatMul", rows, b.array("query", 4, 1)), b.ints(-1))
    if how == "added":
        mask = b.add("Cast", b.add("Squeeze", b.add("Unsqueeze", "m", b.ints(1)), b.ints(1)),
                     to=TensorProto.FLOAT)
        scores = b.add("Add", scores, b.add("Mul", b.add("Sub", "one", mask), "least"))
    else:
        mask = "m" if kind == TensorProto.BOOL else b.add("Cast", "m", to=TensorProto.BOOL)
        scores = b.add("Add", scores, b.add("Where", mask, "zero", "minus"))
    weights = b.add("Softmax", scores)
    if how != "added":
        weights = b.add("Where", b.add("IsNaN", weights), "zero", weights)
    weights = b.add("Unsqueeze", weights, b.ints(1))
    b.add("Squeeze", b.add("MatMul", weights, rows), b.ints(1), name="y")
    return make_model(b.nodes, {"i": (TensorProto.INT64, ["N", 3]), "m": (kind, ["N", 3])},
                      {"y": ["N", 4]}, b.arrays)


@pytest.mark.parametrize("kind, how", [
    (TensorProto.INT64, "added"), (TensorProto.INT64, "chosen"), (TensorProto.BOOL, "chosen"),
    (TensorProto.INT32, "added")])
def test_an_input_is_a_mask_of_attention(client, kind, how):
    model = masked_words(kind, how)
    mask = np.array([[1, 1, 0], [0, 1, 0], [1, 1, 1], [0, 0, 0]])
    if how == "added":
        mask = mask[:3]
    indices = np.random.default_rng(1).integers(0, 7, mask.shape)
    dtype = {TensorProto.INT64: np.int64, TensorProto.INT32: np.int32}.get(kind, bool)
    with np.errstate(all="ignore"):
        expected = expected_of(model, i=indices, m=mask.astype(dtype))[0]
    found = predicted_of(client, model, i=indices, m=mask.astype(dtype))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    if how == "chosen":
        assert not found[3].any()


@pytest.mark.parametrize("name", ["onnx", "of words"])
def test_a_closed_row_in_bf16(client, name):
    """The least number of float32 is infinite in bf16, and so would be all of a row."""
    model = masked_words(TensorProto.INT64, "added")
    network, mask = convgrad.onnx.load(model), np.array([[1, 1, 0], [0, 0, 0]])
    indices = np.array([[0, 1, 2], [3, 4, 5]])
    with client.session() as session:
        network.put(session, name)
        found = network.predict(session, i=indices, m=mask, name=name, compute_dtype="bf16")
        same = network.predict(session, i=indices, m=mask, name=name)
    expected = expected_of(model, i=indices, m=mask)[0]
    np.testing.assert_allclose(found["y"], expected, rtol=0.05, atol=0.05)
    np.testing.assert_allclose(same["y"], expected, rtol=1e-5, atol=1e-6)


def test_another_program_called_as_the_one_for_bf16_was(client):
    """`put` leaves it as it is, and `predict` doesn't run it."""
    model = masked_words(TensorProto.INT64, "added")
    network, mask = convgrad.onnx.load(model), np.array([[1, 1, 0]])
    other = convgrad.Program()
    other.output(other.step("relu", other.input("x")))
    indices = np.array([[0, 1, 2]])
    with client.session() as session:
        session.load_program("onnx.bf16", other)
        network.put(session)
        found = network.predict(session, i=indices, m=mask, compute_dtype="bf16")
    expected = expected_of(model, i=indices, m=mask)[0]
    np.testing.assert_allclose(found["y"], expected, rtol=0.05, atol=0.05)


def test_a_program_that_was_loaded_alone_predicts_in_bf16(client):
    model = masked_words(TensorProto.INT64, "added")
    network, mask = convgrad.onnx.load(model), np.array([[1, 1, 0]])
    indices = np.array([[0, 1, 2]])
    with client.session() as session:
        session.put(network.parameters)
        session.load_program("onnx", network.program)
        found = network.predict(session, i=indices, m=mask, compute_dtype="bf16")
    expected = expected_of(model, i=indices, m=mask)[0]
    np.testing.assert_allclose(found["y"], expected, rtol=0.05, atol=0.05)


def test_a_closed_row_has_finite_gradients(client):
    network = convgrad.onnx.load(masked_words(TensorProto.BOOL, "chosen"))
    assert network.trainable == ["table", "query"]
    program = network.training_program()
    program.output(program.step("mse", "y", program.input("target")))
    with client.session() as session:
        session.put(network.parameters)
        session.load_program("train", program)
        session.run("train", {
            "i": np.array([[0, 1, 2], [3, 4, 5]]), "target": random(2, 4),
            "m": np.array([[1, 1, 0], [0, 0, 0]], np.float32)}, backward=convgrad.Backward())
        found = session.get("table#gradient")
    assert np.isfinite(found).all() and found[:2].any() and not found[2:].any()


def test_integers_must_be_exact(client):
    model = make_model([node("Cast", "i", "y", to=TensorProto.FLOAT)],
                       {"i": (TensorProto.INT64, ["N", 2])}, {"y": ["N", 2]})
    network = convgrad.onnx.load(model)
    with client.session() as session:
        network.put(session)
        found = network.predict(session, np.array([[2**24, -3]]))["y"]
        np.testing.assert_array_equal(found, [[2**24, -3]])
        for number, dtype in ((2**24 + 1, "f32"), (257, "bf16"), (2**62 + 1, "f32")):
            with pytest.raises(convgrad.InvalidArgument, match=f"inputs.i: found integers from "
                               f"0 to {number}, expected integers that {dtype} has exactly"):
                network.predict(session, np.array([[number, 0]]), compute_dtype=dtype)


INTEGERS = (TensorProto.INT64, ["N", 2])
REFUSED = {
    "two uses": ([node("Gather", "table i", "e"), node("Cast", "i", "f", to=1),
                  node("Unsqueeze", "f axis", "g"), node("Mul", "e g", "y")],
                 "an input of indices that are also numbers"),
    "computed indices": ([node("Unsqueeze", "i axis", "j"), node("Gather", "table j", "y")],
                         "Gather by int64 that other nodes compute"),
    "arithmetic": ([node("Add", "i one", "j"), node("Cast", "j", "y", to=1)],
                   "Add with a constant of int64"),
    "large integers": ([node("Equal", "i large", "m"), node("Cast", "m", "y", to=1)],
                       "numbers that float32 has exactly"),
    "a mask as output": ([node("Equal", "i one", "y")], "a result of bool"),
    "no mask": ([node("Cast", "i", "f", to=1), node("Not", "f", "y")], "Not with a result")}


@pytest.mark.parametrize("name", REFUSED)
def test_other_integers_are_refused(name):
    nodes, said = REFUSED[name]
    model = make_model(nodes, {"i": INTEGERS}, {"y": ["N", 2]}, {
        "table": random(5, 3), "axis": np.array([2]), "one": np.array(1),
        "large": np.array(2**62 + 1)})
    if name == "no mask":
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    with pytest.raises(convgrad.onnx.Refused, match=said):
        convgrad.onnx.load(model)
