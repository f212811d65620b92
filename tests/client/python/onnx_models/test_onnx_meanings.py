"""Tests models that two readers understand differently, and small models that ask for much."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_graphs import assert_same, expected_of, make_model, node, one_node, predicted_of

import convgrad.onnx
from convgrad.onnx import declared

SHAPE = ["N", 4]


def ones(*shape):
    return np.ones(shape, np.float32)


def refused(model, said, **keywords):
    with pytest.raises(convgrad.onnx.Refused, match=said):
        convgrad.onnx.load(model, **keywords)


def softmax_of_opset_1():
    model = one_node("Softmax", ["N", 2, 3], ["N", 2, 3], axis=1)
    del model.opset_import[:]
    model.ir_version = 2  # whose models without an opset have opset 1
    return model


def with_opset(domain):
    model = one_node("Relu", SHAPE, SHAPE)
    model.opset_import.add(domain=domain, version=13)
    return model


@pytest.mark.parametrize("model", [softmax_of_opset_1(), with_opset("ai.onnx"), with_opset("")])
def test_a_model_has_one_opset(model):
    with pytest.raises(convgrad.InvalidArgument, match="expected one opset, 13 to"):
        convgrad.onnx.load(model)


def test_no_function_replaces_an_operator():
    model = one_node("Relu", SHAPE, SHAPE)
    model.functions.append(helper.make_function(
        "", "Relu", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])],
        [helper.make_opsetid("", 21)]))
    with pytest.raises(convgrad.Unimplemented, match="a function Relu"):
        convgrad.onnx.load(model)
    del model.functions[:]
    model.graph.node[0].overload = "other"
    refused(model, "Relu")


def test_a_model_without_outputs_is_refused():
    model = one_node("Relu", SHAPE, SHAPE)
    del model.graph.output[:]
    with pytest.raises(convgrad.InvalidArgument, match="one output at least"):
        convgrad.onnx.load(model)


def test_several_results_of_an_old_batch_normalization_mean_training():
    nodes = [node("BatchNormalization", "x w w w w", "y m v a b")]
    model = make_model(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, {"w": ones(4)}, 13)
    refused(model, "BatchNormalization with several results")


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("operator, name", [
    ("LeakyRelu", "alpha"), ("Elu", "alpha"), ("HardSigmoid", "alpha"), ("Selu", "gamma")])
def test_attributes_are_finite(operator, name, number):
    refused(one_node(operator, SHAPE, SHAPE, **{name: float(number)}),
            f"{operator} with the number")


@pytest.mark.parametrize("sizes", [np.float32([-1.2, 4.7]), np.array([b"-1", b"4"], object),
                                   np.complex64([-1, 4])])
def test_sizes_are_integers(sizes):
    refused(one_node("Reshape", SHAPE, SHAPE, {"s": sizes}), "Reshape|sizes of")


@pytest.mark.parametrize("shape", [(np.float64(4), 4), (4.0, 4), ("N", 4), (True, 4), 4, "N4"])
def test_given_shapes_are_integers_or_none(shape):
    with pytest.raises(convgrad.InvalidArgument, match="shapes.x"):
        convgrad.onnx.load(one_node("Relu", SHAPE, SHAPE), shapes={"x": shape})


def test_given_shapes_have_names():
    with pytest.raises(convgrad.InvalidArgument, match="a dict of shapes by the inputs' names"):
        convgrad.onnx.load(one_node("Relu", SHAPE, SHAPE), shapes=(None, 4))


def test_a_sparse_initializer_is_refused_by_its_name():
    model = make_model([node("Add", "x w", "y")], {"x": SHAPE}, {"y": SHAPE})
    sparse = model.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(numpy_helper.from_array(ones(1), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([1]), "i"))
    refused(model, "model.w: found a sparse initializer")


def test_a_gelu_s_constants_add_no_axes():
    arrays = {"root": np.float32(2**0.5), "one": ones(1, 1, 1), "half": np.float32(0.5)}
    nodes = [node("Div", "x root", "d"), node("Erf", "d", "e"), node("Add", "e one", "a"),
             node("Mul", "x a", "m"), node("Mul", "m half", "y")]
    model = make_model(nodes, {"x": SHAPE}, {"y": [1, "N", 4]}, arrays)
    refused(model, "Erf elsewhere than in a GELU")


REFUSED = {
    "Resize of 10 by 0.699999988, to 6 or 7": one_node("Resize", ["N", 1, 10], ["N", 1, 7], {
        "roi": ones(0), "scales": np.float32([1, 1, 0.7])}),
    "Resize of 3 by 1.29999995 to the same size": one_node(
        "Resize", ["N", 1, 3], ["N", 1, 3], {
            "roi": ones(0), "scales": np.float32([1, 1, 1.3])}),
    "Resize with mode=nearest, half_pixel, 15 to 9": one_node(
        "Resize", ["N", 1, 15], ["N", 1, 9], {"roi": ones(0), "scales": ones(0),
                                              "sizes": np.array([9])}, axes=[2],
        nearest_mode="floor"),
    "Resize with mode=nearest, half_pixel_symmetric, 17 to 15": one_node(
        "Resize", ["N", 1, 17], ["N", 1, 15], {
            "roi": ones(0), "scales": np.float32([1, 1, 0.9])}, nearest_mode="floor",
        coordinate_transformation_mode="half_pixel_symmetric"),
    "Resize by": one_node("Resize", ["N", 2, 4, 4], ["N", 2, 8, 8], {
        "roi": ones(0), "scales": np.float32([2, 2])}),
    "MaxPool with auto_pad=SAME_LOWER and dilations": one_node(
        "MaxPool", ["N", 3, 5], ["N", 3, 5], kernel_shape=[3], dilations=[2],
        auto_pad="SAME_LOWER"),
    "Split with sizes and num_outputs": make_model(
        [node("Split", "x s", "y z", axis=1, num_outputs=2)], {"x": SHAPE},
        {"y": ["N", 1], "z": ["N", 3]}, {"s": np.array([1, 3])}),
    "Squeeze along an empty": one_node("Squeeze", ["N", 1, 4], ["N", 4], {
        "a": np.array([], int)}),
    "Gemm of": one_node("Gemm", ["N", 2, 4], ["N", 2, 3], {"w": ones(4, 3)}),
    "a tensor without elements": one_node("Expand", [1, 4], ["M", 4], {"s": np.array([-1, 4])}),
    "AveragePool to": one_node("AveragePool", ["N", 3, 8], ["N", 3, "M"], kernel_shape=[3],
                               pads=[2**40, 0], opset=22),
    "Slice of": one_node("Slice", ["N", 2**40], ["N", "M"], {
        "a": np.array([-1]), "b": np.array([-2**62]), "c": np.array([1]),
        "d": np.array([-1])}),
}


@pytest.mark.parametrize("said", REFUSED)
def test_operands_that_readers_take_differently_are_refused(said):
    refused(REFUSED[said], said)


FOLDED = {
    "Squeeze along an empty": ("Squeeze", [np.ones((1, 3), int), np.array([], int)], {}),
    "division by 0": ("Div", [np.array([3]), np.array([0])], {}),
    "Concat that can't be followed": ("Concat", [np.ones((2, 3), int), np.ones((3, 4), int)],
                                      {"axis": 0}),
    "Flatten with axis=9": ("Flatten", [np.ones((2, 3), int)], {"axis": 9}),
}


@pytest.mark.parametrize("said", FOLDED)
def test_constants_that_can_not_be_computed_are_refused(said):
    operator, arrays, attributes = FOLDED[said]
    names = {f"c{i}": array for i, array in enumerate(arrays)}
    nodes = [node(operator, " ".join(names), "k", **attributes),
             node("Gather", "x k", "y", axis=1)]
    refused(make_model(nodes, {"x": SHAPE}, {"y": ["N", "M"]}, names), said)


@pytest.mark.parametrize("operator", ["ConstantOfShape", "Cast"])
def test_all_constants_together_are_bounded(monkeypatch, operator):
    monkeypatch.setattr(declared, "_MOST_BYTES", 2**16)
    attributes = {} if operator == "ConstantOfShape" else {"to": TensorProto.FLOAT}
    large = np.array([2**12]) if operator == "ConstantOfShape" else np.ones(2**12, bool)
    nodes = [node(operator, "c", f"k{i}", **attributes) for i in range(20)]
    nodes += [node("Relu", "x", "y")]
    refused(make_model(nodes, {"x": SHAPE}, {"y": SHAPE}, {"c": large}),
            f"{operator} of constants, .*expected 0 MiB")


def test_names_that_become_equal_stay_apart(client):
    nodes = [node("Add", "x 日", "本"), node("Mul", "本 é", "_~2"), node("Relu", "_~2", "y")]
    model = make_model(nodes, {"x": SHAPE}, {"y": SHAPE}, {"日": 2 * ones(4), "é": 3 * ones(4)})
    assert len(convgrad.onnx.load(model).parameters) == 2
    assert_same(client, model, x=np.float32([[1, -1, 2, -5]]))


def test_long_names_are_cut(client):
    long = "a" * 300 + "~" + "b" * 300
    model = make_model([node("Relu", "x", long), node("Tanh", long, long + "c")],
                       {"x": SHAPE}, {long: SHAPE, long + "c": SHAPE})
    assert_same(client, model, x=ones(2, 4))


def test_an_initializer_is_a_statistic_and_a_parameter_apart(client):
    """Exporters merge equal initializers: zeros are one norm's mean and another one's bias."""
    arrays = {"zeros": np.zeros(3, np.float32), "ones": ones(3), "bias": ones(3) / 2}
    nodes = [node("BatchNormalization", "x ones bias zeros ones", "a"),
             node("BatchNormalization", "a ones zeros zeros ones", "y")]
    network = convgrad.onnx.load(make_model(nodes, {"x": ["N", 3]}, {"y": ["N", 3]}, arrays))
    first, second = network.program.message.steps
    assert first.operands[4] != second.operands[4]          # each norm has its statistics
    assert second.operands[2] in network.trainable          # and a bias of its own
    assert not {*first.operands[3:], *second.operands[3:]} & {*network.trainable}


def test_a_norm_whose_scale_is_computed_trains_its_statistics(client):
    rng = np.random.default_rng(0)
    arrays = {"w": rng.standard_normal(3).astype(np.float32), "c": np.float32(2), "b": ones(3),
              "mean": ones(3) / 4, "var": ones(3) * 2}
    nodes = [node("Mul", "w c", "scale"), node("BatchNormalization", "x scale b mean var", "y")]
    model = make_model(nodes, {"x": ["N", 3]}, {"y": ["N", 3]}, arrays)
    x = rng.standard_normal((8, 3)).astype(np.float32)
    assert_same(client, model, x=x)
    network = convgrad.onnx.load(model)
    program = network.training_program()
    program.output("y")
    with client.session() as session:
        network.put(session)
        session.load_program("train", program)
        found = session.run("train", {"x": x}, change=True).values["y"]
        mean = session.get(["mean"])["mean"]
    np.testing.assert_allclose(mean, 0.9 * 0.25 + 0.1 * x.mean(0), rtol=1e-5)
    normal = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
    np.testing.assert_allclose(found, normal * 2 * arrays["w"] + 1, rtol=1e-4, atol=1e-5)


def test_an_initializer_of_which_constants_are_computed_is_not_trained(client):
    arrays = {"w": np.float32([[0.5, 1.5], [2.5, -1]]), "v": ones(2, 2)}
    nodes = [node("Floor", "w", "f"), node("MatMul", "x f", "a"), node("Add", "a v", "b"),
             node("MatMul", "b w", "y")]
    model = make_model(nodes, {"x": [2, 2]}, {"y": [2, 2]}, arrays)
    assert convgrad.onnx.load(model).trainable == ["v"]
    x = np.float32([[1, 2], [3, 4]])
    np.testing.assert_allclose(predicted_of(client, model, x=x)[0], expected_of(model, x=x)[0])


def test_a_file_s_name_does_not_choose_its_format(tmp_path):
    path = tmp_path / "model.textproto"
    onnx.save(one_node("Relu", SHAPE, SHAPE), path)
    with pytest.raises(convgrad.InvalidArgument, match="valid ONNX model"):
        convgrad.onnx.load(path)
    onnx.save(one_node("Relu", SHAPE, SHAPE), path, format="protobuf")
    assert convgrad.onnx.load(path).outputs
