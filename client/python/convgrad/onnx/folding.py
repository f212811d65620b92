"""Computes what is constant in a graph: numbers by onnx's reference evaluator, and shapes whose
batch is unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnx.shape_inference
from onnx import helper, numpy_helper

from convgrad.layouts import Array
from convgrad.onnx.extents import Batch
from convgrad.onnx.values import Node

MOST_BYTES = 2**26
"""Most bytes of a constant that a node makes."""
MOST_EXTENTS = 1024
"""Most elements of all operands of a node that calculates with the batch."""

# Operators whose results can be constants: they follow from the operands' sizes and values.
COMPUTED = frozenset("""
    Abs Add And ArgMax ArgMin BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip
    Concat Constant ConstantOfShape Cos CumSum Div Equal Erf Exp Expand EyeLike Flatten Floor
    Gather GatherElements GatherND Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual
    Log MatMul Max Mean Min Mod Mul Neg NonZero Not OneHot Or Pad Pow Range Reciprocal ReduceL1
    ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape
    Round ScatterElements ScatterND Shape Sigmoid Sign Sin Size Slice Softmax Split Sqrt Squeeze
    Sub Sum Tanh Tile Transpose Trilu Unsqueeze Where Xor""".split())


def compute(node: Node, proto: Any, arrays: Sequence[Array | None]) -> list[Array] | None:
    """Returns the node's results; None if its operator isn't in COMPUTED, or if they are too
    large."""
    if node.operator not in COMPUTED:
        return None
    feeds = {name: array for name, array in zip(node.inputs, arrays) if array is not None}
    try:
        return _computed(node, proto, feeds)
    except Exception as error:  # of onnx, which raises errors of any kind
        raise ValueError(str(error).strip().split("\n")[0] or type(error).__name__) from error


def _computed(node: Node, proto: Any, feeds: dict[str, Array]) -> list[Array] | None:
    types = {name: helper.make_tensor_type_proto(
        helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()}
    if node.operator == "NonZero":  # at most as many elements as the operand, times its rank
        if any(array.size * array.ndim > MOST_BYTES // 8 for array in feeds.values()):
            return None
    elif not _are_small(node, proto, feeds, types):
        return None
    if node.operator == "GatherElements":  # onnx's evaluator computes few cases
        return [_gathered(node, *(feeds[name] for name in node.inputs))]
    if node.operator in ("Div", "Mod"):
        divisor = feeds[node.inputs[1]]
        if divisor.dtype.kind in "iu" and not divisor.all():
            raise ZeroDivisionError("a division by 0")
    inputs = [helper.make_value_info(name, kind) for name, kind in types.items()]
    graph = helper.make_graph(
        [proto], "constant", inputs,
        [onnx.ValueInfoProto(name=name) for name in node.outputs if name])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)])
    results = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    return [np.asarray(result) for result in results]


def _gathered(node: Node, x: Array, index: Array) -> Array:
    axis = node.get("axis", 0) % x.ndim
    if x.ndim != index.ndim or any(
            m < n for i, (m, n) in enumerate(zip(x.shape, index.shape)) if i != axis):
        raise ValueError("indices of other axes")
    part = x[tuple(slice(None if i == axis else n) for i, n in enumerate(index.shape))]
    return np.take_along_axis(part, index, axis)


def _are_small(node: Node, proto: Any, feeds: Any, types: Any) -> bool:
    """Returns whether shape inference knows the results' sizes, and they are small."""
    small = {name: numpy_helper.from_array(array, name) for name, array in feeds.items()
             if array.size <= 1024}
    inferred = onnx.shape_inference.infer_node_outputs(
        onnx.defs.get_schema(node.operator, node.opset), proto, types, small,
        opset_imports=[helper.make_opsetid("", node.opset)])
    for name in node.outputs:
        if not name:
            continue
        if name not in inferred or not inferred[name].tensor_type.HasField("shape"):
            return False
        extents = [one.dim_value if one.HasField("dim_value") else None
                   for one in inferred[name].tensor_type.shape.dim]
        if None in extents or math.prod(n for n in extents if n is not None) > MOST_BYTES // 8:
            return False
    return True


def of_batch(node: Node, arrays: Sequence[Any]) -> list[Array]:
    """Returns the result of a node that calculates with extents, of which some are Batch.

    Raises TypeError for an expression that Batch doesn't have, and KeyError for another
    operator.
    """
    return [_plain(np.asarray(_SYMBOLIC[node.operator](node, *arrays), dtype=object))]


def _plain(array: Array) -> Array:
    """Returns an array of numbers if no element depends on the batch."""
    kinds = {type(one) for one in array.reshape(-1)}
    if Batch in kinds:
        return array
    return array.astype(bool if kinds <= {bool, np.bool_} and kinds else np.int64)


def _slice(node: Node, x: Any, starts: Any, ends: Any, axes: Any = None,
           steps: Any = None) -> Any:
    wanted = [slice(None)] * x.ndim
    for i, (start, end) in enumerate(zip(starts, ends)):
        step = 1 if steps is None else int(steps[i])
        first, last = int(start), int(end)
        if step < 0:
            raise TypeError("a step below 0")
        wanted[i if axes is None else int(axes[i])] = slice(first, last, step)
    return x[tuple(wanted)]


def _cast(node: Node, x: Any, *_: Any) -> Any:
    if node.get("to") not in (onnx.TensorProto.INT64, onnx.TensorProto.INT32):
        raise TypeError("a conversion of the batch")
    return x


def _equal(node: Node, x: Any, y: Any) -> Any:
    def same(a: Any, b: Any) -> bool:
        batches = [one for one in (a, b) if isinstance(one, Batch)]
        others = [one for one in (a, b) if not isinstance(one, Batch)]
        if batches and others and others[0] > 0 or len(batches) == 2 and a != b:
            raise TypeError("a comparison of the batch")
        return bool(a == b)

    return np.frompyfunc(same, 2, 1)(x, y).astype(bool)


def _quotient(node: Node, x: Any, y: Any) -> Any:
    if any(not isinstance(one, Batch) and one < 0 for one in (*x.reshape(-1), *y.reshape(-1))):
        raise TypeError("a quotient below 0")  # which ONNX rounds to 0
    return x // y


_SYMBOLIC: Any = {
    "Add": lambda node, x, y: x + y,
    "Cast": _cast,
    "Concat": lambda node, *xs: np.concatenate(
        [np.asarray(x, object) for x in xs], node.get("axis")),
    "Div": _quotient,
    "Equal": _equal,
    "Gather": lambda node, x, index: np.take(x, index.astype(np.int64), node.get("axis", 0)),
    "Mul": lambda node, x, y: x * y,
    "Slice": _slice,
    "Sub": lambda node, x, y: x - y,
    "Where": lambda node, mask, x, y: np.where(mask.astype(bool), x, y),
}
