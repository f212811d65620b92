"""Tests attention: as one node, and as exporters write it out."""

import numpy as np
import pytest
from onnx import helper
from onnx_graphs import assert_same, expected_of, make_model, node, predicted_of

import convgrad.onnx

HEADS = ["N", 2, 3, 4]
OPEN = np.triu(np.full((3, 3), -np.inf, np.float32), 1)  # each query sees a key


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def written_out(masks, axis=-1, zero="zero s"):
    """As PyTorch's exporter writes scaled_dot_product_attention before opset 23."""
    names = [f"mask{i}" for i in range(len(masks))]
    scores = ["scores", *(f"sum{i}" for i in range(len(masks)))]
    nodes = [node("Transpose", "x", "turned", perm=[0, 1, 3, 2]),
             node("MatMul", "x turned", "scores"),
             *(node("Add", f"{before} {name}", after) for before, name, after in zip(
                 scores, names, scores[1:])),
             node("Softmax", scores[-1], "s", axis=axis), node("IsNaN", "s", "gaps"),
             node("Where", f"gaps {zero}", "weights"), node("MatMul", "weights x", "y")]
    return make_model(nodes, {"x": HEADS}, {"y": HEADS}, {
        "zero": np.float32(0), "one": np.float32(1), **dict(zip(names, masks))})


CLOSED = np.where(np.arange(3)[:, None] == 1, -np.inf, OPEN).astype(np.float32)


@pytest.mark.parametrize("masks, is_open", [
    ([], True), ([OPEN], True), ([OPEN[None]], True), ([OPEN, random(3, 3)], True),
    ([CLOSED], False), ([OPEN, OPEN.T.copy()], False),
    ([np.full((3, 1), -np.inf, np.float32)], False)])
def test_a_softmax_that_is_nan_becomes_zeros(client, masks, is_open):
    x = random(2, 2, 3, 4)
    network = convgrad.onnx.load(written_out(masks))
    with np.errstate(invalid="ignore"):
        expected = expected_of(written_out(masks), x=x)[0]
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(predicted_of(client, written_out(masks), x=x)[0], expected,
                               rtol=1e-5, atol=1e-6)
    steps = [one.operator for one in network.program.message.steps]
    assert ("where" not in steps) == is_open


@pytest.mark.parametrize("nodes", [
    [node("Add", "x m", "a"), node("Div", "a two", "z")],
    [node("Min", "x m", "z")],
    [node("Add", "x m", "a"), node("LeakyRelu", "a", "z")],
    [node("Log", "seen", "l"), node("Add", "x l", "z")],
    [node("Greater", "x two", "b"), node("Cast", "b", "f", to=1), node("Log", "f", "z")],
    [node("Add", "x least", "a"), node("Add", "a other_least", "z")],
    [node("Transpose", "x", "t", perm=[0, 1, 3, 2]), node("Add", "t turned", "a"),
     node("Transpose", "a", "z", perm=[0, 1, 3, 2])],
    [node("Add", "x open", "a"), node("Slice", "a end stop axis", "b"),
     node("Concat", "b b b", "z", axis=3)]])
def test_a_mask_closes_rows_through_other_operators(client, nodes):
    least = np.maximum(CLOSED, np.finfo(np.float32).min)
    nodes = [node("MatMul", "u v", "x"), *nodes, node("Softmax", "z", "s"),
             node("IsNaN", "s", "gaps"), node("Where", "gaps zero s", "y")]
    model = make_model(nodes, {"u": HEADS}, {"y": ["N", 2, 3, 3]}, {
        "v": random(4, 3), "m": CLOSED, "seen": np.exp(CLOSED), "least": least, "open": OPEN,
        "other_least": least.copy(), "turned": CLOSED.T.copy(), "two": np.float32(2),
        "zero": np.float32(0), "end": np.array([2]), "stop": np.array([3]),
        "axis": np.array([3])})
    with np.errstate(all="ignore"):
        assert_same(client, model, u=random(2, 2, 3, 4))


@pytest.mark.parametrize("axis", [1, 2])
def test_a_softmax_along_another_axis(client, axis):
    model, x = written_out([OPEN], axis), random(2, 2, 3, 4)
    np.testing.assert_allclose(predicted_of(client, model, x=x)[0], expected_of(model, x=x)[0],
                               rtol=1e-5, atol=1e-6)


def test_a_softmax_that_is_nan_by_an_input_becomes_zeros(client):
    nodes = [node("Add", "x m", "scores"), node("Softmax", "scores", "s"),
             node("IsNaN", "s", "gaps"), node("Where", "gaps zero s", "y")]
    model = make_model(nodes, {"x": ["N", 3], "m": ["N", 3]}, {"y": ["N", 3]},
                       {"zero": np.float32(0)})
    mask = np.array([[0, -np.inf, 0], [-np.inf] * 3], np.float32)
    found = predicted_of(client, model, x=random(2, 3), m=mask)[0]
    assert np.isfinite(found).all() and found[0].any() and not found[1].any()


@pytest.mark.parametrize("zero", ["one s", "zero scores"])
def test_other_choices_by_nan(client, zero):
    model, x = written_out([CLOSED], zero=zero), random(2, 2, 3, 4)
    with np.errstate(invalid="ignore"):
        expected = expected_of(model, x=x)[0]
    np.testing.assert_allclose(predicted_of(client, model, x=x)[0], expected, rtol=1e-5,
                               atol=1e-6)


@pytest.mark.parametrize("other", [np.array(True), np.array([True, False, True, False])])
def test_a_comparison_of_a_mask_is_no_mask_of_nan(client, other):
    nodes = [node("Softmax", "x", "s"), node("Equal", "s s", "numbers"),
             node("Equal", "numbers other", "m"), node("Where", "m zero s", "y")]
    model = make_model(nodes, {"x": HEADS}, {"y": HEADS},
                       {"other": other, "zero": np.float32(0)})
    assert_same(client, model, x=random(2, 2, 3, 4))


def one_attention(shapes, mask=None, **attributes):
    names = ["q", "k", "v"] + ([] if mask is None else ["mask"])
    return make_model([helper.make_node("Attention", names, ["y"], **attributes)],
                      dict(zip("qkv", shapes)), {"y": list("NABC"[:len(shapes[0])])},
                      {} if mask is None else {"mask": mask}, opset=24)


@pytest.mark.parametrize("shapes, mask, attributes", [
    ([HEADS] * 3, None, {"scale": 0.3}),
    ([HEADS] * 3, CLOSED, {}),  # a row of zeros
    ([HEADS] * 3, OPEN == 0, {"is_causal": 1}),
    ([HEADS] * 3, random(2, 1, 3), {}),
    ([HEADS, ["N", 1, 5, 4], ["N", 1, 5, 2]], random(3, 5), {"is_causal": 1}),
    ([["N", 3, 8], ["N", 5, 4], ["N", 5, 6]], None, {"q_num_heads": 4, "kv_num_heads": 2})])
def test_attention(client, shapes, mask, attributes):
    model = one_attention(shapes, mask, **attributes)
    arrays = {name: random(*(2 if n == "N" else n for n in shape), seed=i)
              for i, (name, shape) in enumerate(zip("qkv", shapes))}
    assert_same(client, model, **arrays)


@pytest.mark.parametrize("shapes, mask, attributes, said", [
    ([HEADS] * 3, None, {"softcap": 2.0}, "Attention with softcap=2.0, expected 0"),
    ([HEADS] * 3, np.ones((3, 2), bool), {}, r"a mask of \(3, 2\), expected one that is"),
    ([HEADS, HEADS, ["N", 2, 4, 4]], None, {}, "a query, a key and a value that fit"),
    ([["N", 3, 8]] * 3, None, {"q_num_heads": 3, "kv_num_heads": 2}, "with q_num_heads=3"),
    ([["N", 3, 8]] * 3, None, {}, "with q_num_heads=None")])
def test_other_attention_is_refused(shapes, mask, attributes, said):
    with pytest.raises(convgrad.onnx.Refused, match=said):
        convgrad.onnx.load(one_attention(shapes, mask, **attributes))


@pytest.mark.parametrize("shape, index, axis", [
    ((1, 8), (1, 3), 1), ((3, 8), (2, 3), -1), ((70, 2), (4, 1), 0)])
def test_constants_are_gathered_by_elements(client, shape, index, axis):
    places = np.random.default_rng(1).integers(-shape[axis], shape[axis], index)
    table = random(*shape)
    nodes = [node("GatherElements", "table places", "c", axis=axis), node("Add", "x c", "y")]
    model = make_model(nodes, {"x": ["N", *index]}, {"y": ["N", *index]},
                       {"table": table, "places": places})
    x = random(2, *index, seed=2)
    part = table[:, :index[1]] if axis == 0 else table[:index[0]]
    np.testing.assert_array_equal(predicted_of(client, model, x=x)[0],
                                  x + np.take_along_axis(part, places, axis))


def test_trained_attention_has_the_gradients_of_torch(client):
    torch = pytest.importorskip("torch")
    mask = OPEN[None, None]
    nodes = [node("Mul", "x w", "q"), node("Attention", "q x x mask", "y"),
             node("ReduceMean", "y axes", "z", keepdims=0)]
    model = make_model(nodes, {"x": HEADS}, {"z": ["N", 4]}, {
        "w": random(4), "mask": mask, "axes": np.array([1, 2])}, opset=24)
    network, x, classes = convgrad.onnx.load(model), random(2, 2, 3, 4), np.array([1, 3])
    program = network.training_program()
    program.output(program.step("cross_entropy", "z", program.input("labels", is_index=True)))
    with client.session() as session:
        session.put(network.parameters)
        session.load_program("train", program)
        session.run("train", {"x": x, "labels": classes}, backward=convgrad.Backward())
        found = session.get("w#gradient")
    w, rows = torch.tensor(random(4), requires_grad=True), torch.tensor(x)
    y = torch.nn.functional.scaled_dot_product_attention(rows * w, rows, rows,
                                                         torch.tensor(mask))
    torch.nn.functional.cross_entropy(y.mean((1, 2)), torch.tensor(classes)).backward()
    np.testing.assert_allclose(found, w.grad.numpy(), rtol=1e-4, atol=1e-6)
