"""Tests elements that are taken by their places: by Gather, Where, and of repeated numbers."""

import numpy as np
import pytest
from onnx import TensorProto
from onnx_graphs import Builder, assert_same, expected_of, make_model, node, predicted_of

import convgrad.onnx


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("table, axis, index, out", [
    ((5, 4), 0, ["N", 3], ["N", 3, 4]), ((5, 4), 0, ["N"], ["N", 4]), ((5,), 0, ["N"], ["N"]),
    ((5,), 0, ["N", 3], ["N", 3]), ((2, 5), 1, [3], [2, 3]),
    ((5, 2), 0, ["N", 2, 3], ["N", 2, 3, 2]), ((2, 5), -1, ["N", 3], [2, "N", 3])])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_an_input_has_indices_of_a_table(client, table, axis, index, out, dtype):
    nodes = [node("Cast", "i", "j", to=TensorProto.INT64),
             node("Gather", "table j", "y", axis=axis)]
    model = make_model(nodes, {"i": (getattr(TensorProto, dtype.upper()), index)}, {"y": out},
                       {"table": random(*table)})
    indices = np.random.default_rng(1).integers(0, 5, [2 if n == "N" else n for n in index])
    assert_same(client, model, i=indices.astype(dtype))


def words():
    b = Builder()
    b.add("Gather", b.array("table", 7, 4), "i", name="e")
    y = b.add("Flatten", "e")
    b.add("Gemm", y, b.array("weight", 12, 2), name="logits")
    return make_model(b.nodes, {"i": (TensorProto.INT64, ["N", 3])}, {"logits": ["N", 2]},
                      b.arrays)


def test_an_embedding_trains(client):
    torch = pytest.importorskip("torch")
    network = convgrad.onnx.load(words())
    assert sorted(network.trainable) == ["table", "weight"]
    indices, classes = np.array([[0, 2, 2], [6, 0, 1]]), np.array([1, 0])
    program = network.training_program()
    labels = program.input("labels", is_index=True)
    program.output(program.step("cross_entropy", "logits", labels))
    with client.session() as session:
        session.put(network.parameters)
        session.load_program("train", program)
        session.run("train", {"i": indices, "labels": classes}, backward=convgrad.Backward())
        found = session.get("table#gradient")
    table, weight = (torch.tensor(network.parameters[key], requires_grad=True)
                     for key in ("table", "weight"))
    logits = table[torch.tensor(indices)].flatten(1) @ weight.T
    torch.nn.functional.cross_entropy(logits, torch.tensor(classes)).backward()
    np.testing.assert_allclose(found, table.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("indices, said", [
    (np.ones((2, 3), np.float32), "inputs.i: found float32, expected integers"),
    (np.full((2, 3), 7), "7"), (np.full((2, 3), -1), "-1")])
def test_other_indices_are_refused(client, indices, said):
    network = convgrad.onnx.load(words())
    with client.session() as session:
        network.put(session)
        with pytest.raises(convgrad.InvalidArgument, match=said):
            network.predict(session, indices)


@pytest.mark.parametrize("is_expand", [True, False])
def test_numbers_are_repeated_for_each_item(client, is_expand):
    b = Builder()
    batch = b.add("Gather", b.add("Shape", "x"), b.ints(0), axis=0)
    sizes = b.add("Concat", batch, b.ints(2, 3), axis=0)
    one = b.add("Expand", b.array("c", 1, 2, 1), sizes) if is_expand else b.add(
        "ConstantOfShape", sizes)
    b.add("Concat", "x", one, axis=1, name="y")
    model = make_model(b.nodes, {"x": ["N", 1, 3]}, {"y": ["N", 3, 3]}, b.arrays)
    assert_same(client, model, x=random(4, 1, 3))


@pytest.mark.parametrize("mask, x, other", [
    ((3, 4), ["N", 3, 4], ()), ((1, 3, 1), ["N", 3, 4], (4,)), ((4,), ["N", 4], (1, 1)),
    ((2, 4), ["N", 1, 4], (2, 1)), ((3, 4), [3, 4], ()), ((1,), ["N", 2], (2,))])
def test_where_takes_elements_by_a_constant_mask(client, mask, x, other):
    arrays = {"m": np.random.default_rng(2).integers(0, 2, mask).astype(bool),
              "o": np.full(other, -np.inf, np.float32)}
    given = random(*[2 if n == "N" else n for n in x])
    given[..., 0] = np.nan
    for operands in ("m x o", "m o x"):
        out = np.broadcast_shapes(mask, given.shape, other)
        model = make_model([node("Where", operands, "y")], {"x": x},
                           {"y": ["N" if x[0] == "N" else out[0], *out[1:]]}, arrays)
        np.testing.assert_array_equal(predicted_of(client, model, x=given)[0],
                                      expected_of(model, x=given)[0])


@pytest.mark.parametrize("x, index", [
    ([3, 4, 1, 2], [[[0, 3], [-1, 0]], [[2, 2], [1, -4]]]), ([3, 4], [[0, 0], [-1, -1]]),
    ([3, 4, 2], [1]), ([5], [[4], [-5]]), ([2, 3], [[0, 1]])])
def test_elements_are_taken_along_the_first_axes(client, x, index):
    places = np.array(index)
    rank = places.ndim - 1 + len(x) - places.shape[-1]
    model = make_model([node("Relu", "x", "r"), node("GatherND", "r index", "y")], {"x": x},
                       {"y": list("ABCDE"[:rank])}, {"index": places})
    assert_same(client, model, x=random(*x))


@pytest.mark.parametrize("index, attributes, said", [
    ([[0, 4]], {}, "an index from 0 to 4"), ([[0, 0, 0]], {}, "GatherND of"),
    ([[0], [1], [2]], {"batch_dims": 1}, "batch_dims=1")])
def test_other_places_are_refused(index, attributes, said):
    model = make_model([node("GatherND", "x index", "y", **attributes)], {"x": [3, 4]},
                       {"y": ["A", "B"]}, {"index": np.array(index)})
    with pytest.raises(convgrad.onnx.Refused, match=said):
        convgrad.onnx.load(model)


@pytest.mark.parametrize("sizes, attributes, places", [
    (np.array(2), {}, (0, -1)), (np.array([1, 4]), {}, (1, 0)), (None, {}, (4, -5)),
    (None, {"keepdims": 0}, (0, 2))])
def test_parts_of_a_sequence(client, sizes, attributes, places):
    nodes = [node("SplitToSequence", "x sizes" if sizes is not None else "x", "s", axis=-1,
                  **attributes),
             node("SequenceAt", "s first", "a"), node("SequenceAt", "s second", "b"),
             node("ReduceSum", "a last", "c", keepdims=1), node("Mul", "b c", "y")]
    arrays = {"first": np.array(places[0]), "second": np.array(places[1]),
              "last": np.array([-1])} | ({} if sizes is None else {"sizes": sizes})
    model = make_model(nodes, {"x": ["N", 3, 5]}, {"y": ["N", "M", "L"]}, arrays)
    if attributes:
        del model.graph.output[0].type.tensor_type.shape.dim[2:]
    assert_same(client, model, x=random(2, 3, 5))


@pytest.mark.parametrize("sizes, place, said", [
    (np.array([2, 2]), 0, "SplitToSequence of"), (np.array(0), 0, "SplitToSequence of"),
    (np.array(2), 3, "SequenceAt at 3, expected a place below 3")])
def test_other_parts_are_refused(sizes, place, said):
    nodes = [node("SplitToSequence", "x sizes", "s", axis=1),
             node("SequenceAt", "s place", "y")]
    model = make_model(nodes, {"x": ["N", 5]}, {"y": ["N", "M"]},
                       {"sizes": sizes, "place": np.array(place)})
    with pytest.raises(convgrad.onnx.Refused, match=said):
        convgrad.onnx.load(model)


def test_one_number_for_each_item_is_an_index(client):
    """As PyTorch's exporter writes BERT's token types."""
    b = Builder()
    batch = b.add("Gather", b.add("Shape", "x"), b.ints(0), axis=0)
    ids = b.add("Expand", b.ints(0, 2, 1), b.add("Concat", batch, b.ints(3), axis=0))
    b.add("Add", "x", b.add("Gather", b.array("table", 3, 4), ids), name="y")
    model = make_model(b.nodes, {"x": ["N", 3, 4]}, {"y": ["N", 3, 4]}, b.arrays)
    assert_same(client, model, x=random(5, 3, 4))
    assert convgrad.onnx.load(model).trainable == ["table"]


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [None, 0, -1, 2])
def test_triangles(client, upper, diagonal):
    model = make_model(
        [node("Trilu", "x" if diagonal is None else "x k", "y", upper=upper)],
        {"x": ["N", 3, 5]}, {"y": ["N", 3, 5]}, {"k": np.array(diagonal or 0)})
    x = random(2, 3, 5)
    x[0] = np.inf
    assert_same(client, model, x=x)
