"""Makes ONNX models for tests, and runs them by onnx's reference evaluator."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
from onnx import TensorProto, helper, numpy_helper

import convgrad.onnx

OPSET = 21


def make_model(nodes, inputs, outputs, arrays=None, opset=OPSET):
    """`inputs` and `outputs` are shapes by name, with "N" for the batch; an input may be a pair
    of a dtype and a shape."""
    def info(name, shape):
        is_pair = len(shape) == 2 and isinstance(shape[1], (list, tuple))
        kind, shape = shape if is_pair else (TensorProto.FLOAT, shape)
        return helper.make_tensor_value_info(name, kind, shape)

    graph = helper.make_graph(
        nodes, "graph", [info(*one) for one in inputs.items()],
        [info(*one) for one in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (arrays or {}).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                             ir_version=10)


def node(operator, inputs, outputs, **attributes):
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def one_node(operator, shape, out, operands=None, opset=OPSET, **attributes):
    """A model of one node of x and these constants."""
    names = [name for name in operands or ()]
    return make_model([helper.make_node(operator, ["x", *names], ["y"], **attributes)],
                      {"x": shape}, {"y": out}, operands, opset)


def expected_of(model, **inputs):
    return onnx.reference.ReferenceEvaluator(model).run(None, inputs)


def predicted_of(client, model, **inputs):
    """Returns the outputs that a server computes."""
    network = convgrad.onnx.load(model)
    with client.session() as session:
        network.put(session)
        return list(network.predict(session, **inputs).values())


def assert_same(client, model, tolerance=1e-5, **inputs):
    found, expected = predicted_of(client, model, **inputs), expected_of(model, **inputs)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


class Builder:
    """Adds nodes and initializers to a graph."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.arrays = [], {}

    def array(self, name, *shape, low=None):
        array = self.rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))
        if low is not None:
            array = np.abs(array) + low
        self.arrays[name] = array.astype(np.float32)
        return name

    def add(self, operator, *inputs, name=None, **attributes):
        name = name or f"/{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=name,
                                           **attributes))
        return name

    def ints(self, *numbers):
        name = f"ints_{len(self.arrays)}"
        self.arrays[name] = np.array(numbers, np.int64)
        return name

    def conv(self, x, name, channels, out, kernel=3, stride=1, groups=1, bias=False, **more):
        weight = self.array(f"{name}.weight", out, channels // groups, kernel, kernel)
        operands = [weight, self.array(f"{name}.bias", out)] if bias else [weight]
        more.setdefault("pads", [kernel // 2] * 4)
        return self.add("Conv", x, *operands, strides=[stride] * 2, group=groups, **more)

    def norm(self, x, name, channels, momentum=0.9):
        return self.add("BatchNormalization", x,
                        self.array(f"{name}.weight", channels, low=0.5),
                        self.array(f"{name}.bias", channels),
                        self.array(f"{name}.running_mean", channels),
                        self.array(f"{name}.running_var", channels, low=0.5),
                        momentum=momentum)


def resnet(classes=5):
    """A stem and two blocks, whose end has a shape that follows from the batch."""
    b = Builder()
    y = b.norm(b.conv("x", "conv1", 3, 8, stride=2), "bn1", 8)
    y = b.add("MaxPool", b.add("Relu", y), kernel_shape=[3, 3], strides=[2, 2],
              pads=[1, 1, 1, 1])
    for i, (channels, out, stride) in enumerate([(8, 8, 1), (8, 16, 2)]):
        z = b.add("Relu", b.norm(b.conv(y, f"{i}.conv1", channels, out, stride=stride),
                                 f"{i}.bn1", out))
        z = b.norm(b.conv(z, f"{i}.conv2", out, out), f"{i}.bn2", out)
        if stride > 1:
            y = b.norm(b.conv(y, f"{i}.down.0", channels, out, 1, stride), f"{i}.down.1", out)
        y = b.add("Relu", b.add("Add", z, y))
    pooled = b.add("GlobalAveragePool", y)
    batch = b.add("Gather", b.add("Shape", pooled), b.ints(0), axis=0)
    rows = b.add("Reshape", pooled, b.add("Concat", batch, b.ints(-1), axis=0))
    b.add("Gemm", rows, b.array("fc.weight", classes, 16), b.array("fc.bias", classes),
          transB=1, name="logits")
    return make_model(b.nodes, {"x": ["N", 3, 32, 32]}, {"logits": ["N", classes]}, b.arrays)


def mobilenet(classes=5):
    """Depthwise convolutions, pads as TensorFlow's, and a squeeze-and-excite."""
    b = Builder(1)
    y = b.conv("x", "stem", 3, 8, stride=2, bias=True, pads=[0, 0, 1, 1])
    y = b.add("HardSwish", y)
    y = b.add("Clip", b.norm(b.conv(y, "depth", 8, 8, groups=8), "bn", 8), "zero", "six")
    b.arrays["zero"], b.arrays["six"] = np.float32(0), np.float32(6)
    s = b.add("ReduceMean", y, b.ints(2, 3), keepdims=1)
    s = b.add("HardSigmoid", b.conv(s, "se", 8, 8, 1, bias=True), alpha=1 / 6)
    y = b.add("Mul", s, y)
    y = b.add("AveragePool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1],
              ceil_mode=1)
    y = b.add("Dropout", b.add("Flatten", y))
    b.add("MatMul", y, b.array("head.weight", 8 * 4 * 4, classes), name="head")
    b.add("Add", "head", b.array("head.bias", classes), name="logits")
    return make_model(b.nodes, {"x": ["N", 3, 16, 16]}, {"logits": ["N", classes]},
                      b.arrays, 22)


def vit(classes=5):
    """Attention of two heads, written out, and GELU by Erf, as exporters write them."""
    b = Builder(2)
    y = b.conv("x", "patch", 3, 16, 4, 4, bias=True, pads=[0] * 4)
    batch = b.add("Gather", b.add("Shape", y), b.ints(0), axis=0)
    y = b.add("Reshape", y, b.add("Concat", batch, b.ints(16), b.ints(-1), axis=0))
    y = b.add("Transpose", y, perm=[0, 2, 1])
    wide = b.add("Concat", batch, b.ints(-1, -1), axis=0)
    minus = b.add("Equal", wide, b.ints(-1))
    wide = b.add("Where", minus, b.ints(1, 1, 1), wide)
    y = b.add("Concat", b.add("Expand", b.array("class_token", 1, 1, 16), wide), y, axis=1)
    y = b.add("Add", y, b.array("position", 1, 17, 16))
    z = b.add("LayerNormalization", y, b.array("ln.weight", 16), b.array("ln.bias", 16))
    z = b.add("Add", b.add("MatMul", z, b.array("qkv.weight", 16, 48)), b.array("qkv.bias", 48))
    z = b.add("Reshape", z, b.ints(0, 17, 3, 2, 8))
    z = b.add("Transpose", z, perm=[2, 0, 3, 1, 4])
    b.nodes.append(node("Split", z, "q k v", axis=0, num_outputs=3))
    q, k, v = (b.add("Squeeze", one, b.ints(0)) for one in ("q", "k", "v"))
    b.arrays["scale"] = np.float32(8**0.5)
    z = b.add("Div", b.add("MatMul", q, b.add("Transpose", k, perm=[0, 1, 3, 2])), "scale")
    z = b.add("Transpose", b.add("MatMul", b.add("Softmax", z), v), perm=[0, 2, 1, 3])
    y = b.add("Add", y, b.add("Reshape", z, b.ints(0, 0, 16)))
    z = b.add("MatMul", y, b.array("mlp.weight", 16, 32))
    b.arrays |= {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    bell = b.add("Add", b.add("Erf", b.add("Div", z, "root")), "one")
    z = b.add("Mul", b.add("Mul", z, bell), "half")
    y = b.add("Gather", z, b.ints(0), axis=1)
    y = b.add("Squeeze", y, b.ints(1))
    b.add("Gemm", y, b.array("fc.weight", classes, 32), b.array("fc.bias", classes),
          transB=1, name="logits")
    return make_model(b.nodes, {"x": ["N", 3, 16, 16]}, {"logits": ["N", classes]},
                      b.arrays, 20)
