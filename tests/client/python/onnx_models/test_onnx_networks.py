"""Tests whole ONNX models: prediction for any batch, names, and training."""

import gc

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from onnx_graphs import (
    assert_same,
    expected_of,
    make_model,
    mobilenet,
    node,
    one_node,
    predicted_of,
    resnet,
    vit,
)

import convgrad.onnx
from convgrad.onnx.importer import Importer

NETWORKS = {"resnet": (resnet, 32), "mobilenet": (mobilenet, 16), "vit": (vit, 16)}


def images(batch, size, seed=3):
    return np.random.default_rng(seed).standard_normal((batch, 3, size, size), np.float32)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_predicts_any_batch(client, name):
    make, size = NETWORKS[name]
    model = make()
    network = convgrad.onnx.load(model)
    assert str(network.inputs) == str({"x": ("N", 3, size, size)}).replace("'N'", "N")
    assert list(network.outputs) == ["logits"]
    with client.session() as session:
        network.put(session)
        for batch in (1, 4):
            x = images(batch, size)
            found = network.predict(session, x)["logits"]
            np.testing.assert_allclose(found, expected_of(model, x=x)[0], rtol=1e-4, atol=1e-5)
        half = network.predict(session, x, compute_dtype="bf16")["logits"]
        np.testing.assert_allclose(half, found, rtol=0.1, atol=0.1)


def test_a_gelu_is_one_step_and_products_are_linear():
    steps = [step.operator for step in convgrad.onnx.load(vit()).program.message.steps]
    assert steps.count("gelu") == 1 and steps.count("linear") == 3
    assert "mul" not in steps and "expand" in steps


def test_parameters_have_the_model_s_names_and_values():
    model = mobilenet()
    network = convgrad.onnx.load(model)
    arrays = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    for name in ("stem.weight", "stem.bias", "bn.running_var", "head.bias"):
        np.testing.assert_array_equal(network.parameters[name], arrays[name])
    np.testing.assert_array_equal(network.parameters["head.weight"], arrays["head.weight"].T)
    assert set(network.trainable) == {
        name for name in arrays if "." in name and "running" not in name}


def test_a_file_with_data_beside_it(client, tmp_path):
    model, x = resnet(), images(2, 32)
    expected = expected_of(model, x=x)[0]
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="data.bin",
              size_threshold=0)
    assert (tmp_path / "data.bin").stat().st_size > 1000
    np.testing.assert_allclose(predicted_of(client, tmp_path / "model.onnx", x=x)[0], expected,
                               rtol=1e-4, atol=1e-5)
    content = resnet().SerializeToString()
    np.testing.assert_allclose(predicted_of(client, content, x=x)[0], expected, rtol=1e-4,
                               atol=1e-5)


class Twin(torch.nn.Module):
    """The model's layers in PyTorch, for its statistics and gradients."""

    def __init__(self, arrays):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, bias=False)
        self.bn = torch.nn.BatchNorm2d(4, momentum=0.2)
        self.fc = torch.nn.Linear(4 * 36, 5)
        self.load_state_dict({name: torch.from_numpy(array.copy())
                              for name, array in arrays.items()}, strict=False)

    def forward(self, x):
        return self.fc(torch.relu(self.bn(self.conv(x))).flatten(1))


def trained_model():
    rng = np.random.default_rng(5)

    def array(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    arrays = {"conv.weight": array(4, 3, 3, 3), "bn.weight": array(4), "bn.bias": array(4),
              "bn.running_mean": array(4), "bn.running_var": np.abs(array(4)) + 1,
              "fc.weight": array(5, 144), "fc.bias": array(5)}
    nodes = [node("Conv", "x conv.weight", "c"),
             node("BatchNormalization", "c bn.weight bn.bias bn.running_mean bn.running_var",
                  "b", momentum=0.8),
             node("Relu", "b", "r"), node("Flatten", "r", "f"),
             node("Gemm", "f fc.weight fc.bias", "logits", transB=1)]
    return make_model(nodes, {"x": ["N", 3, 8, 8]}, {"logits": ["N", 5]}, arrays), arrays


def test_training_steps_are_those_of_torch(client):
    model, arrays = trained_model()
    network, twin = convgrad.onnx.load(model), Twin(arrays)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
    program = network.training_program()
    program.output(program.step("cross_entropy", "logits",
                                program.input("labels", is_index=True)))
    x, labels = images(6, 8), np.arange(6) % 5
    update = convgrad.Update("sgd", [convgrad.ParameterGroup(network.trainable, 0.05,
                                                             momentum=0.9)])
    with client.session() as session:
        network.put(session)
        session.load_program("train", program)
        for _ in range(5):
            loss = session.run("train", {"x": x, "labels": labels}, update=update,
                               backward=convgrad.Backward()).values[program.message.outputs[0]]
            optimizer.zero_grad()
            expected = torch.nn.functional.cross_entropy(twin(torch.from_numpy(x)),
                                                         torch.from_numpy(labels))
            expected.backward()
            optimizer.step()
            assert float(loss) == pytest.approx(expected.item(), rel=1e-4)
        kept = session.get(network.parameters)
        twin.eval()
        predicted = network.predict(session, x)["logits"]
    for name, tensor in twin.state_dict().items():
        if name in kept:
            np.testing.assert_allclose(kept[name], tensor.numpy(), rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        np.testing.assert_allclose(predicted, twin(torch.from_numpy(x)), rtol=1e-3, atol=1e-3)


def test_the_page_s_programs_run(client):
    """The two examples of client/python/onnx.md."""
    network = convgrad.onnx.load(resnet())
    images, classes = np.zeros((2, 3, 32, 32), np.float32), np.array([0, 1])
    with client.session() as session:
        network.put(session)
        assert network.predict(session, images)["logits"].shape == (2, 5)
        program = network.training_program()
        labels = program.input("labels", is_index=True)
        loss = program.step("cross_entropy", "logits", labels)
        program.output(loss)
        session.load_program("train", program)
        update = convgrad.Update("sgd", [convgrad.ParameterGroup(network.trainable, 0.1)])
        losses = [session.run("train", {"x": images, "labels": classes},
                              backward=convgrad.Backward(), update=update).values[loss]
                  for _ in range(10)]
    assert losses[-1] < losses[0]


def test_dropout_drops_in_the_training_program_alone(client):
    model = one_node("Dropout", ["N", 64], ["N", 64], {"ratio": np.float32(0.25)})
    x = np.ones((8, 64), np.float32)
    network = convgrad.onnx.load(model)
    program = network.training_program()
    program.output("y")
    with client.session() as session:
        network.put(session)
        np.testing.assert_array_equal(network.predict(session, x)["y"], x)
        session.load_program("train", program)
        dropped = session.run("train", {"x": x}, change=True).values["y"]
    assert set(np.unique(dropped)) == {0, np.float32(1 / 0.75)}


def test_weights_that_two_nodes_share_stay_one_parameter(client):
    nodes = [node("MatMul", "x w", "a"), node("Transpose", "w", "t"),
             node("MatMul", "a t", "b"), node("Gemm", "b w", "y", transB=1)]
    w = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    model = make_model(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, {"w": w})
    network = convgrad.onnx.load(model)
    assert network.trainable == ["w"] == list(network.parameters)
    assert_same(client, model, x=np.random.default_rng(1).standard_normal((3, 4), np.float32))


def test_images_of_bytes(client):
    nodes = [node("Transpose", "x", "t", perm=[0, 3, 1, 2]), node("Cast", "t", "f", to=1),
             node("Div", "f most", "y")]
    model = make_model(nodes, {"x": (onnx.TensorProto.UINT8, ["N", 4, 5, 3])},
                       {"y": ["N", 3, 4, 5]}, {"most": np.float32(255)})
    x = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3)).astype(np.uint8)
    assert_same(client, model, x=x)


def test_shapes_of_inputs_are_given(client):
    model = one_node("GlobalMaxPool", ["N", 3, "height", "width"], ["N", 3, 1, 1])
    with pytest.raises(convgrad.onnx.Refused, match="load\\(shapes="):
        convgrad.onnx.load(model)
    network = convgrad.onnx.load(model, shapes={"x": (None, 3, 6, 7)})
    with client.session() as session:
        network.put(session)
        x = np.random.default_rng(0).standard_normal((2, 3, 6, 7)).astype(np.float32)
        np.testing.assert_array_equal(network.predict(session, x)["y"],
                                      x.max((2, 3), keepdims=True))
        for wrong in (x[:, :2], x[0], x[..., :3]):
            with pytest.raises(convgrad.InvalidArgument, match="inputs.x"):
                network.predict(session, wrong)
        for twice in (lambda: network.predict(session, x, x),
                      lambda: network.predict(session, x[:1], x=x)):
            with pytest.raises(convgrad.InvalidArgument, match="inputs: found 1, .*expected x"):
                twice()
    with pytest.raises(convgrad.InvalidArgument, match="shapes.z"):
        convgrad.onnx.load(model, shapes={"z": (None, 3)})


@pytest.mark.parametrize("channels", [1, 2])
def test_an_if_whose_condition_follows_from_shapes(client, channels):
    """As PyTorch's older exporter writes x.squeeze(1). Both branches use the weight."""
    def branch(nodes):
        return helper.make_graph(nodes, "branch", [], [
            helper.make_tensor_value_info(nodes[-1].output[0], 1, None)])

    squeezed = branch([node("MatMul", "x w", "p"), node("Squeeze", "p one", "q")])
    plain = branch([node("MatMul", "x w", "r")])
    nodes = [node("Shape", "x", "s", start=1, end=2), node("Equal", "s one", "c"),
             node("If", "c", "z", then_branch=squeezed, else_branch=plain),
             node("MatMul", "z v", "a"), node("Transpose", "w", "t", perm=[1, 0]),
             node("MatMul", "a t", "y")]
    random = np.random.default_rng(0)
    out = ["N", 4] if channels == 1 else ["N", channels, 4]
    model = make_model(nodes, {"x": ["N", channels, 3]}, {"y": out}, {
        "one": np.array([1]), "w": random.random((3, 4), np.float32),
        "v": random.random((4, 4), np.float32)})
    assert_same(client, model, x=random.random((2, channels, 3), np.float32))
    assert sorted(convgrad.onnx.load(model).trainable) == ["v", "w"]


def test_memory_of_an_import_needs_no_collector():
    """An importer holds all initializers."""
    gc.collect()
    gc.disable()
    try:
        convgrad.onnx.load(vit())
        assert not [one for one in gc.get_objects() if type(one) is Importer]
    finally:
        gc.enable()
