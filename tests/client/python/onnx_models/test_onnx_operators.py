"""Tests operators whose meaning in ONNX differs from a program's, or from one opset to the
next."""

import itertools

import numpy as np
import pytest
import torch
from onnx_graphs import assert_same, expected_of, make_model, node, one_node, predicted_of

import convgrad.onnx


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def average(x, kernel, stride, pads, counts_pads, places):
    """The definition, for one axis."""
    result = np.zeros((*x.shape[:2], places))
    for i in range(places):
        first = i * stride - pads[0]
        last = min(first + kernel, x.shape[2] + pads[1])
        window = x[..., max(first, 0):min(last, x.shape[2])]
        result[..., i] = window.sum(-1) / (
            last - first if counts_pads else window.shape[-1])
    return result


@pytest.mark.parametrize("kernel, stride, pads, ceil, counts", list(itertools.product(
    [2, 3], [1, 2], [(0, 0), (1, 1), (0, 1), (1, 0)], [0, 1], [0, 1])))
def test_average_pool_by_its_definition(client, kernel, stride, pads, ceil, counts):
    x = random(2, 3, 6)
    rest = 6 + sum(pads) - kernel
    places = (-(-rest // stride) if ceil else rest // stride) + 1
    if (places - 1) * stride >= 6 + pads[0]:
        places -= 1
    model = one_node("AveragePool", ["N", 3, 6], ["N", 3, places], opset=22, ceil_mode=ceil,
                     kernel_shape=[kernel], strides=[stride], pads=pads,
                     count_include_pad=counts)
    np.testing.assert_allclose(predicted_of(client, model, x=x)[0],
                               average(x, kernel, stride, pads, counts, places),
                               rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pads", [[0, 0, 1, 1], [1, 0, 0, 1], [2, 2, 2, 2]])
def test_max_pool_with_other_pads_keeps_infinities(client, pads):
    x = random(2, 3, 6, 6)
    x[:, 0] = -np.inf
    x[0, 1] = -1e30
    size = [(6 + pads[i] + pads[i + 2] - 3) // 2 + 1 for i in (0, 1)]
    model = one_node("MaxPool", ["N", 3, 6, 6], ["N", 3, *size], kernel_shape=[3, 3],
                     strides=[2, 2], pads=pads)
    wide = torch.nn.functional.pad(torch.from_numpy(x), (pads[1], pads[3], pads[0], pads[2]),
                                   value=-torch.inf)
    expected = torch.nn.functional.max_pool2d(wide, 3, 2)
    np.testing.assert_array_equal(predicted_of(client, model, x=x)[0], expected)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_conv_with_auto_pad_and_groups(client, auto_pad, axes):
    out = [3] * axes if auto_pad != "VALID" else [2] * axes
    model = one_node("Conv", ["N", 4, *[6] * axes], ["N", 6, *out], {
        "w": random(6, 2, *[4] * axes), "b": random(6, seed=1)}, strides=[2] * axes, group=2,
        auto_pad=auto_pad)
    x = torch.from_numpy(random(2, 4, *[6] * axes, seed=2))
    more, less = (1, 1) if auto_pad != "VALID" else (0, 0)
    wide = torch.nn.functional.pad(x, (more, less) * axes)
    conv = getattr(torch.nn.functional, f"conv{axes}d")
    expected = conv(wide, torch.from_numpy(random(6, 2, *[4] * axes)),
                    torch.from_numpy(random(6, seed=1)), stride=2, groups=2)
    np.testing.assert_allclose(predicted_of(client, model, x=x.numpy())[0], expected,
                               rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attributes", [
    dict(pads=[1, 0, 0, 1]), dict(pads=[0, 0, 2, 1], output_padding=[1, 0]),
    dict(pads=[1, 1, 1, 1], output_padding=[1, 1]),
    dict(auto_pad="SAME_UPPER"), dict(auto_pad="SAME_LOWER")])
def test_conv_transpose_with_other_pads(client, attributes):
    model = one_node("ConvTranspose", ["N", 2, 5, 4], ["N", 3, "h", "w"],
                     {"w": random(2, 3, 3, 3), "b": random(3)}, strides=[2, 2], **attributes)
    assert_same(client, model, 1e-4, x=random(2, 2, 5, 4))


def test_conv_transpose_with_an_output_shape(client):
    w, x = random(2, 3, 3, 3), random(2, 2, 5, 4)
    model = one_node("ConvTranspose", ["N", 2, 5, 4], ["N", 3, 9, 8], {"w": w},
                     strides=[2, 2], output_shape=[9, 8])
    whole = torch.nn.functional.conv_transpose2d(torch.from_numpy(x), torch.from_numpy(w),
                                                 stride=2)
    np.testing.assert_allclose(predicted_of(client, model, x=x)[0], whole[..., 1:10, 1:9],
                               rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2",
                                      "ReduceMin", "ReduceL1", "ReduceSumSquare"])
def test_axes_of_reductions_are_attribute_or_operand(client, operator, opset):
    is_operand = opset >= 18 or operator == "ReduceSum"
    operands, attributes = ({"axes": np.array([-1, 1])}, {}) if is_operand else (
        {}, {"axes": [-1, 1]})
    for keeps in (0, 1):
        out = ["N", 1, 5, 1] if keeps else ["N", 5]
        model = one_node(operator, ["N", 4, 5, 6], out, operands, opset, keepdims=keeps,
                         **attributes)
        assert_same(client, model, x=random(3, 4, 5, 6))


@pytest.mark.parametrize("alpha, beta, a, b, c", list(itertools.product(
    [1.0, 0.5], [1.0, 2.0], [0, 1], [0, 1], [None, (3,), (1, 3), (1,), (4, 1)])))
def test_gemm(client, alpha, beta, a, b, c):
    names = {"b": random(3, 5) if b else random(5, 3)} | ({} if c is None else {
        "c": random(*c, seed=1)})
    model = one_node("Gemm", [5, 4] if a else [4, 5], [4, 3], names, alpha=alpha, beta=beta,
                     transA=a, transB=b)
    assert_same(client, model, x=random(5, 4) if a else random(4, 5))


@pytest.mark.parametrize("x, y", [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((4,), (4, 5)),
                                  ((3, 4), (4,)), ((2, 1, 3, 4), (5, 4, 6)),
                                  ((2, 3, 4), (2, 4, 1))])
@pytest.mark.parametrize("is_constant", [False, True])
def test_matmul_broadcasts_as_numpy(client, x, y, is_constant):
    out = np.matmul(np.ones(x), np.ones(y)).shape
    arrays = {"w": random(*y, seed=1)}
    model = make_model([node("MatMul", "x w", "y")], {"x": x} | ({} if is_constant else {
        "w": y}), {"y": out}, arrays if is_constant else {})
    assert_same(client, model, x=random(*x), **({} if is_constant else arrays))


@pytest.mark.parametrize("bounds", [(-0.5, 0.5), (None, 0.5), (0.0, None), (1.0, -1.0),
                                    (0.0, 6.0), (-np.inf, 1.0)])
def test_clip_by_any_bounds(client, bounds):
    names = {name: np.float32(one) for name, one in zip(("low", "high"), bounds)
             if one is not None}
    operands = ["low" if bounds[0] is not None else "", *(["high"] if bounds[1] is not None
                                                          else [])]
    model = make_model([node("Relu", "x", "unused"), node("Clip", "x", "y")], {"x": ["N", 8]},
                       {"y": ["N", 8]}, names)
    model.graph.node[1].input.extend(operands)
    x = random(4, 8) * 4
    x[0, 0] = np.nan
    assert_same(client, model, x=x)


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize("first, second", [
    (("N", 3, 4), (3, 1)), ((3, 4), ("N", 3, 1)), (("N", 1, 4), (3, 1)), ((), ("N", 4)),
    (("N", 4), (1,)), ((1, 1, 1), ("N", 4))])
def test_operands_are_broadcast_both_ways(client, operator, first, second):
    def array(shape, seed):
        return np.abs(random(*(2 if n == "N" else n for n in shape), seed=seed)) + 0.5

    arrays = {"a": array(first, 0), "b": array(second, 1)}
    out = np.broadcast_shapes(*(one.shape for one in arrays.values()))
    constant = "a" if "N" not in first else "b"
    other = "b" if constant == "a" else "a"
    shape = second if other == "b" else first
    model = make_model([node(operator, "a b", "y")], {other: shape}, {"y": list(out)},
                       {constant: arrays[constant]})
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "N"
    if len(out) == 3 and shape == ("N", 4):
        model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "M"
    assert_same(client, model, **{other: arrays[other]})


@pytest.mark.parametrize("start, end, step", [(1, 100, 2), (-3, -1, 1), (-1, -100, -1),
                                              (4, 0, -2)])
def test_slice(client, start, end, step):
    size = len(range(6)[slice(start, end, step)])
    model = one_node("Slice", ["N", 6, 2], ["N", size, 2], {
        name: np.array([one]) for name, one in zip("abcd", (start, end, 1, step))})
    assert_same(client, model, x=random(3, 6, 2))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad(client, mode):
    operands = {"pads": np.array([1, 2, 0, 1])} | ({} if mode != "constant" else {
        "value": np.float32(1.5)})
    names = [*operands, "axes"] if mode == "constant" else [*operands, "", "axes"]
    model = make_model([node("Relu", "x", "r"), node("Pad", "r", "y", mode=mode)],
                       {"x": ["N", 2, 4, 5]}, {"y": ["N", 2, 5, 8]},
                       operands | {"axes": np.array([2, 3])})
    model.graph.node[1].input.extend(names)
    assert_same(client, model, x=random(2, 2, 4, 5))


@pytest.mark.parametrize("mode, scale", list(itertools.product(
    ["nearest", "linear", "cubic"], [(2.0, 2.0), (0.5, 3.0)])))
@pytest.mark.parametrize("how", ["half_pixel", "pytorch_half_pixel", "align_corners",
                                 "asymmetric"])
def test_resize_is_right_or_refused(client, mode, how, scale):
    out = [int(4 * scale[0]), int(6 * scale[1])]
    rounding = "floor" if how == "asymmetric" else "round_prefer_floor"
    model = one_node("Resize", ["N", 2, 4, 6], ["N", 2, *out], {
        "roi": np.zeros(0, np.float32), "scales": np.array([1, 1, *scale], np.float32)},
        mode=mode, coordinate_transformation_mode=how, nearest_mode=rounding)
    x = random(2, 2, 4, 6)
    try:
        found = predicted_of(client, model, x=x)[0]
    except convgrad.onnx.Refused:
        assert mode != "nearest" and how == "asymmetric"
        return
    np.testing.assert_allclose(found, expected_of(model, x=x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_become_float32_exactly(dtype):
    import ml_dtypes  # noqa: F401  (NumPy knows bfloat16 by it)
    weight = random(4, 3).astype(np.dtype(dtype))
    nodes = [node("Cast", "w", "f", to=1), node("MatMul", "x f", "y")]
    network = convgrad.onnx.load(make_model(nodes, {"x": ["N", 4]}, {"y": ["N", 3]},
                                            {"w": weight}))
    np.testing.assert_array_equal(network.parameters["w"], weight.astype(np.float32).T)


def test_constants_are_cast_like_floats(client):
    nodes = [node("CastLike", "two x", "c"), node("CastLike", "half x", "d"),
             node("Clip", "x d c", "a"), node("Mul", "a c", "y")]
    arrays = {"two": np.array(2), "half": np.array(0.5)}
    assert_same(client, make_model(nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, arrays),
                x=np.float32([[-1, 1, 2, 5]]))


@pytest.mark.parametrize("use", [
    [node("Add", "p b", "y")], [node("Sub", "b p", "y")], [node("Clip", "p b", "y")],
    [node("Pow", "p b", "y")], [node("Sigmoid", "b", "c"), node("Mul", "p c", "y")]])
def test_a_number_that_a_step_has_is_trained_nowhere(client, use):
    """The Gemm has it as a parameter, the other use as a constant."""
    nodes = [node("Gemm", "x w b", "p", transB=1), *use]
    model = make_model(nodes, {"x": ["N", 4]}, {"y": ["N", 1]},
                       {"w": np.ones((1, 4), np.float32), "b": np.float32([2])})
    assert convgrad.onnx.load(model).trainable == ["w"]
    assert_same(client, model, x=np.ones((2, 4), np.float32))


@pytest.mark.parametrize("operator", ["Shape", "Size"])
def test_a_parameter_whose_shape_is_read_is_trained(client, operator):
    nodes = [node(operator, "w", "s"), node("CastLike", "s x", "n"), node("Mul", "w n", "v"),
             node("Add", "x v", "y")]
    model = make_model(nodes, {"x": ["N", 4]}, {"y": ["N", 4]},
                       {"w": np.arange(4, dtype=np.float32)})
    assert convgrad.onnx.load(model).trainable == ["w"]
    assert_same(client, model, x=np.ones((2, 4), np.float32))


@pytest.mark.parametrize("equation, x, other, rank", [
    ("bhqd, bhkd -> bhqk", [1, 2, 3, 4], (1, 2, 5, 4), 4),
    ("nchw,ck->nkhw", ["N", 3, 2, 4], (3, 5), 4), ("...c,cd->...d", ["N", 2, 3], (3, 5), 3),
    ("n...,k...->nk", ["N", 2, 3], (4, 2, 3), 2), ("ca,a...->...c", [2, 3], (3, 4, 5), 3),
    ("nab,ba->n", ["N", 2, 3], (3, 2), 1), ("ab,ab->ab", [2, 3], (2, 3), 2)])
def test_einsum(client, equation, x, other, rank):
    model = one_node("Einsum", x, ["A", "B", "C", "D"][:rank], {"o": random(*other)},
                     equation=equation)
    assert_same(client, model, x=random(*(2 if n == "N" else n for n in x), seed=1))


@pytest.mark.parametrize("equation, other", [
    ("ab,bc", (3, 2)), ("aa,ab->ab", (2, 2)), ("ab,cb->a", (2, 3)), ("ab,bc->ac", (2, 3)),
    ("ab,...->ab", (2,)), ("abc,c->ab", (3,))])
def test_other_einsums_are_refused(equation, other):
    with pytest.raises(convgrad.onnx.Refused, match="Einsum of"):
        convgrad.onnx.load(one_node("Einsum", [2, 3], ["A", "B"], {"o": random(*other)},
                                    equation=equation))


def test_a_weight_is_normalized_by_its_own_statistics(client):
    """As NFNets do it."""
    shape = (1, 4, 27)
    nodes = [node("Reshape", "w one", "flat"),
             node("BatchNormalization", "flat gain zeros zeros ones", "n m v", training_mode=1),
             node("Reshape", "n back", "standard"), node("Conv", "x standard", "y")]
    model = make_model(nodes, {"x": ["N", 3, 5, 5]}, {"y": ["N", 4, 3, 3]}, {
        "w": random(4, 3, 3, 3), "one": np.array(shape), "back": np.array([4, 3, 3, 3]),
        "gain": random(4, seed=1), "zeros": np.zeros(4, np.float32),
        "ones": np.ones(4, np.float32)})
    assert_same(client, model, x=random(2, 3, 5, 5))
    assert {"w", "gain"} <= set(convgrad.onnx.load(model).trainable)


def test_an_average_in_the_pad_alone_is_kept_without_ceil_mode(client):
    model = one_node("AveragePool", ["N", 1, 4], ["N", 1, 6], opset=22, kernel_shape=[2],
                     strides=[1], pads=[0, 3], count_include_pad=1)
    assert_same(client, model, x=random(2, 1, 4))


def test_zeros_are_no_bias(client):
    """PyTorch's exporter without optimization gives a Conv3d zeros of too many axes."""
    nodes = [node("Expand", "zero sizes", "b"), node("Conv", "x w b", "y")]
    model = make_model(nodes, {"x": ["N", 1, 3, 3, 3]}, {"y": ["N", 2, 2, 2, 2]}, {
        "zero": np.float32(0), "sizes": np.array([2, 2]), "w": random(2, 1, 2, 2, 2)})
    x = random(2, 1, 3, 3, 3, seed=1)
    expected = torch.nn.functional.conv3d(torch.tensor(x), torch.tensor(random(2, 1, 2, 2, 2)))
    np.testing.assert_allclose(predicted_of(client, model, x=x)[0], expected, rtol=1e-5,
                               atol=1e-6)


@pytest.mark.parametrize("axis", [1, -1, -2])
@pytest.mark.parametrize("exclusive, reverse", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_sums_so_far(client, axis, exclusive, reverse):
    model = one_node("CumSum", ["N", 3, 4], ["N", 3, 4], {"axis": np.array(axis)},
                     exclusive=exclusive, reverse=reverse)
    x = random(2, 3, 4)
    x[0, 1, 1], x[1, 2, 0] = np.inf, np.nan
    assert_same(client, model, x=x)
