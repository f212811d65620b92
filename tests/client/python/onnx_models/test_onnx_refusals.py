"""Tests what load() refuses, and what hostile models do."""

import os
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_graphs import make_model, node, one_node, resnet

import convgrad.onnx


def refusals_of(model, **keywords):
    with pytest.raises(convgrad.onnx.Refused) as caught:
        convgrad.onnx.load(model, **keywords)
    return caught.value


def test_all_that_is_refused_is_listed_at_once():
    nodes = [node("Round", "x", "a"), node("Round", "a", "b"), node("Relu", "b", "c"),
             node("Hardmax", "x", "d"), node("Add", "c d", "y")]
    error = refusals_of(make_model(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}))
    assert [(one.times, one.found, one.node) for one in error.refusals] == [
        (2, "Round", "a"), (1, "Hardmax", "d")]
    assert "2 x Round, first in a, expected an operator that programs have" in str(error)
    assert isinstance(error, convgrad.Unimplemented)


SHAPE = ["N", 4]
REFUSED = {
    "float64": (make_model([node("Relu", "x", "y")], {"x": (TensorProto.DOUBLE, SHAPE)},
                           {"y": (TensorProto.DOUBLE, SHAPE)}), "float64"),
    "integers": (make_model([node("Add", "x x", "y")], {"x": (TensorProto.INT64, SHAPE)},
                            {"y": (TensorProto.INT64, SHAPE)}), "int64"),
    "a cast": (make_model([node("Cast", "x", "y", to=TensorProto.FLOAT16)], {"x": SHAPE},
                          {"y": (TensorProto.FLOAT16, SHAPE)}), "another type than float32"),
    "two batches": (make_model([node("Add", "x z", "y")], {"x": ["N", 4], "z": ["M", 4]},
                               {"y": SHAPE}), "batches N and M"),
    "a batch plus 1": (make_model([
        node("Shape", "x", "s"), node("Add", "s one", "t"), node("Reshape", "x t", "y")],
        {"x": SHAPE}, {"y": SHAPE}, {"one": np.array([1, 0])}), "the size of the batch"),
    "a part of the batch": (one_node("Gather", SHAPE, [1, 4], {"i": np.array([0])}, axis=0),
                            "another axis than the batch"),
    "half of a batch": (one_node("Reshape", SHAPE, ["M", 8], {"s": np.array([-1, 8])}),
                        "Reshape of (N, 4) to (-1, 8), expected as many elements"),
    "two axes of sums": (one_node("CumSum", SHAPE, SHAPE, {"axes": np.array([0, 1])}),
                         "CumSum along 2 axes, expected one axis"),
    "Erf alone": (one_node("Erf", SHAPE, SHAPE), "Erf elsewhere than in a GELU"),
    "ceil_mode before 22": (one_node(
        "MaxPool", ["N", 1, 4], ["N", 1, 3], opset=13, kernel_shape=[1], strides=[2],
        pads=[0, 1], ceil_mode=1), "last window begins in the pad"),
    "statistics of a batch": (make_model([node("BatchNormalization", "x w w w w", "y m v",
                                               training_mode=1)], {"x": ["N", 4, 3]},
                                         {"y": ["N", 4, 3]}, {"w": np.ones(4, np.float32)}),
                              "training_mode=1"),
    "an index of floats": (make_model(
        [node("Gather", "table x", "y")], {"x": SHAPE}, {"y": ["N", 4, 2]},
        {"table": np.ones((5, 2), np.float32)}), "that follow from data"),
    "an index of two batches": (make_model(
        [node("Gather", "x i", "y", axis=1)],
        {"x": SHAPE, "i": (TensorProto.INT64, ["N", 3])}, {"y": ["N", "N", 3]}),
        "Gather of (N, 4) along axis 1 by (N, 3)"),
    "an index of five axes": (make_model(
        [node("Gather", "table i", "y")], {"i": (TensorProto.INT64, ["N", 1, 1, 1, 1])},
        {"y": ["N", 1, 1, 1, 1, 2]}, {"table": np.ones((5, 2), np.float32)}),
        "expected one to four axes"),
    "a mask of floats": (make_model(
        [node("Relu", "x", "m"), node("Where", "m x x", "y")], {"x": SHAPE}, {"y": SHAPE}),
        "Where by a mask of float32"),
    "no elements": (one_node("Slice", SHAPE, ["N", 0], {
        "a": np.array([2]), "b": np.array([2]), "c": np.array([1])}), "without elements"),
    "another domain": (helper.make_model(helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], domain="com.example")], "graph",
        [helper.make_tensor_value_info("x", 1, SHAPE)],
        [helper.make_tensor_value_info("y", 1, SHAPE)]), ir_version=10, opset_imports=[
            helper.make_opsetid("", 21), helper.make_opsetid("com.example", 1)]),
        "of the domain com.example"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_programs_do_not_have_is_refused_by_name(name):
    model, said = REFUSED[name]
    assert said in str(refusals_of(model))


@pytest.mark.parametrize("mode, how, size", [
    ("linear", "asymmetric", 8), ("linear", "half_pixel", 8), ("cubic", "align_corners", 8),
    ("nearest", "half_pixel", 7)])
def test_resize_is_checked_by_its_weights(mode, how, size):
    model = one_node("Resize", ["N", 1, 4, 4], ["N", 1, size, size], {
        "roi": np.zeros(0, np.float32), "scales": np.zeros(0, np.float32),
        "sizes": np.array([1, 1, size, size])}, mode=mode, coordinate_transformation_mode=how)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    if (mode, how) == ("linear", "asymmetric"):
        assert "coordinates as PyTorch has them" in str(refusals_of(model))
    else:
        steps = [one.operator for one in convgrad.onnx.load(model).program.message.steps]
        assert set(steps) == ({"index_select"} if mode == "nearest" else {"upsample"})


@pytest.mark.parametrize("opset", [11, 12, 99])
def test_opsets_before_13_are_refused(opset):
    model = one_node("Relu", SHAPE, SHAPE)
    model.opset_import[0].version = opset
    with pytest.raises(convgrad.InvalidArgument):
        convgrad.onnx.load(model)


def with_data(location, **keys):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3],
                         data_location=TensorProto.EXTERNAL)
    for key, value in (dict(location=location) | keys).items():
        tensor.external_data.add(key=key, value=str(value))
    model = one_node("MatMul", ["N", 2], ["N", 3], {"w": np.zeros((2, 3), np.float32)})
    model.graph.initializer[0].CopyFrom(tensor)
    return model


@pytest.mark.parametrize("location", [
    "../secret", "sub/../../secret", "/etc/passwd", "link", "folder/secret", "", ".", "absent",
    "pipe", "hard", "long" * 2000])
def test_data_is_read_from_files_beside_the_model_alone(tmp_path, location):
    content = np.arange(6, dtype=np.float32).tobytes()
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(content)
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "folder").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    os.link(tmp_path / "secret", inside / "hard")
    (inside / "sub" / "own.bin").write_bytes(content)
    path = inside / "model.onnx"
    path.write_bytes(with_data("sub/own.bin").SerializeToString())
    assert convgrad.onnx.load(path).parameters["w"].size == 6
    path.write_bytes(with_data(location).SerializeToString())
    with pytest.raises(convgrad.InvalidArgument, match="folder or below, and no link"):
        convgrad.onnx.load(path)


@pytest.mark.parametrize("keys", [dict(length=10**12), dict(length=8), dict(offset=10**12),
                                  dict(offset=-4)])
def test_data_of_another_size_is_refused(tmp_path, keys):
    (tmp_path / "own.bin").write_bytes(bytes(24))
    (tmp_path / "model.onnx").write_bytes(with_data("own.bin", **keys).SerializeToString())
    with pytest.raises(convgrad.InvalidArgument, match="^INVALID_ARGUMENT: model"):
        convgrad.onnx.load(tmp_path / "model.onnx")


def test_bytes_have_no_data_beside_them():
    with pytest.raises(convgrad.InvalidArgument, match="a path"):
        convgrad.onnx.load(with_data("own.bin"))


HUGE = np.array([10**6, 10**6])


@pytest.mark.parametrize("operator, arrays", [
    ("ConstantOfShape", [HUGE]), ("Expand", [np.ones((1, 1), bool), HUGE]),
    ("Tile", [np.ones((1, 1), bool), HUGE]), ("NonZero", [np.ones([1] * 30 + [10**6], bool)]),
    ("Range", [np.array(0), np.array(10**12), np.array(1)]),
    ("And", [np.ones((10**5, 1), bool), np.ones((1, 10**5), bool)])])
def test_no_node_makes_a_huge_constant(operator, arrays):
    names = {f"c{i}": array for i, array in enumerate(arrays)}
    nodes = [node(operator, " ".join(names), "large"), node("Cast", "large", "floats", to=1),
             node("ReduceMax", "floats", "number", keepdims=0), node("Add", "x number", "y")]
    error = refusals_of(make_model(nodes, {"x": SHAPE}, {"y": SHAPE}, names))
    assert error.refusals[0].found == f"{operator} of constants"


@pytest.mark.parametrize("operator", ["Concat", "Gather", "Add"])
def test_no_node_makes_many_extents(operator):
    """Each node makes twice, or a thousand times, as many as there were."""
    inputs = {"Concat": "{0} {0}", "Gather": "{0} i", "Add": "{0} c"}[operator]
    arrays = {"i": np.zeros(1025, int), "c": np.zeros((1000, 1), int)}
    nodes = [node("Shape", "x", "s0"), *(
        node(operator, inputs.format(f"s{i}"), f"s{i + 1}", **(
            {"axis": 0} if operator == "Concat" else {})) for i in range(40)),
        node("Relu", "x", "y")]
    error = refusals_of(make_model(nodes, {"x": SHAPE}, {"y": SHAPE}, arrays))
    assert error.refusals[0].found == f"{operator} of many extents, which depend on the batch"


@pytest.mark.parametrize("content", [b"", b"no model", os.urandom(100)])
def test_other_bytes_are_no_model(content):
    with pytest.raises(convgrad.InvalidArgument, match="a valid ONNX model"):
        convgrad.onnx.load(content)


def test_a_cut_model_is_no_model():
    content = resnet().SerializeToString()
    for size in range(1, len(content), len(content) // 20):
        with pytest.raises(convgrad.InvalidArgument):
            convgrad.onnx.load(content[:size])


def test_other_objects_are_no_model(tmp_path):
    with pytest.raises(convgrad.InvalidArgument, match="ModelProto"):
        convgrad.onnx.load(3)
    with pytest.raises(FileNotFoundError):
        convgrad.onnx.load(tmp_path / "absent.onnx")


def test_the_package_onnx_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match='needs the package onnx: pip install "onnx>=1.19"'):
        convgrad.onnx.load(b"")


def test_versions_of_onnx_that_misread_bfloat16_are_refused(monkeypatch):
    monkeypatch.setattr(onnx, "__version__", "1.18.0")
    with pytest.raises(ImportError, match="needs onnx 1.19 or newer, found 1.18.0: "
                       'pip install "onnx>=1.19"'):
        convgrad.onnx.load(b"")


def test_reading_changes_no_model():
    model = resnet()
    before = model.SerializeToString(deterministic=True)
    convgrad.onnx.load(model)
    assert model.SerializeToString(deterministic=True) == before
    assert isinstance(model, onnx.ModelProto)
