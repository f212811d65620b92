"""Lists the operators of ONNX that programs have. Each row is a function of the importer, the
node and its operands, and returns the results. The first operand is a Value, except in rows of
OF_ANYTHING."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from convgrad.onnx.declared import Declared
from convgrad.onnx.operators import (
    attention,
    elements,
    masks,
    moves,
    norms,
    resizing,
    selections,
    sums,
    windows,
)
from convgrad.onnx.values import Known, Node, Operand, Value

Row = Callable[..., Any]

_FLOAT = 1  # TensorProto.FLOAT
VIEWS = frozenset(("Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
"""Nodes that give a value or a constant another shape or order."""
OF_ANYTHING = frozenset("""
    Add And Cast CastLike ConstantOfShape Div Equal Greater GreaterOrEqual Identity IsInf IsNaN
    Less LessOrEqual Max Mean Min Mul Not Or SequenceAt Sub Sum Where Xor""".split())
"""Operators whose first operand may be a constant, or something else that is no value."""

OPERATORS: dict[str, Row] = {
    **{name: elements.pointwise(name.lower()) for name in (
        "Abs", "Cos", "Exp", "HardSwish", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Sigmoid",
        "Sin", "Softplus", "Sqrt", "Tanh")},
    **{name: elements.two(name.lower()) for name in ("Add", "Div", "Mul", "Sub")},
    **{name: masks.logical(name.lower()) for name in ("And", "Not", "Or", "Xor")},
    "Attention": attention.attention,
    "AveragePool": windows.average_pool,
    "BatchNormalization": norms.batch_norm,
    "Cast": masks.cast,
    "CastLike": elements.cast_like,
    "Celu": elements.celu,
    "Clip": elements.clip,
    "Concat": moves.concat,
    "ConstantOfShape": moves.constant_of_shape,
    "Conv": windows.conv,
    "ConvTranspose": windows.conv_transpose,
    "CumSum": sums.cumsum,
    "DepthToSpace": moves.depth_to_space,
    "Dropout": elements.dropout,
    "Einsum": norms.einsum,
    "Elu": elements.pointwise("elu", alpha=("alpha", 1.0)),
    "Equal": masks.compare("eq"),
    "Erf": elements.erf,
    "Expand": moves.expand,
    "Flatten": moves.flatten,
    "Gather": selections.gather,
    "GatherND": selections.gather_nd,
    "Gelu": elements.pointwise("gelu", approximate=("approximate", "none")),
    "Gemm": norms.gemm,
    "GlobalAveragePool": windows.global_pool("adaptive_avg_pool"),
    "GlobalMaxPool": windows.global_pool("adaptive_max_pool"),
    "Greater": masks.compare("gt"),
    "GreaterOrEqual": masks.compare("ge"),
    "GroupNormalization": norms.group_norm,
    "HardSigmoid": elements.hard_sigmoid,
    "Identity": elements.identity,
    "InstanceNormalization": norms.group_norm,
    "IsInf": masks.is_infinite,
    "IsNaN": masks.is_nan,
    "LRN": norms.lrn,
    "LayerNormalization": norms.layer_norm("layer_norm"),
    "LeakyRelu": elements.pointwise("leaky_relu", negative_slope=("alpha", 0.01)),
    "Less": masks.compare("lt"),
    "LessOrEqual": masks.compare("le"),
    "LogSoftmax": norms.softmax("log_softmax"),
    "MatMul": norms.matmul,
    "Max": elements.many("maximum"),
    "MaxPool": windows.max_pool,
    "Mean": elements.mean_of,
    "Min": elements.many("minimum"),
    "PRelu": elements.prelu,
    "Pad": moves.pad,
    "Pow": elements.power,
    "RMSNormalization": norms.layer_norm("rms_norm"),
    "ReduceL1": sums.reduced("sum", before="abs"),
    "ReduceL2": sums.reduced("norm"),
    "ReduceLogSum": sums.reduced("sum", after="log"),
    "ReduceMax": sums.reduced("amax"),
    "ReduceMean": sums.reduced("mean"),
    "ReduceMin": sums.reduced("amax", before="neg", after="neg"),
    "ReduceSum": sums.reduced("sum"),
    "ReduceSumSquare": sums.reduced("sum", before="square"),
    "Reshape": moves.reshape,
    "Resize": resizing.resize,
    "Selu": elements.selu,
    "SequenceAt": moves.sequence_at,
    "Sign": masks.sign,
    "Slice": moves.slice_of,
    "Softmax": norms.softmax("softmax"),
    "Softsign": elements.softsign,
    "SpaceToDepth": moves.space_to_depth,
    "Split": moves.split,
    "SplitToSequence": moves.split_to_sequence,
    "Squeeze": moves.squeeze,
    "Sum": elements.many("add"),
    "Swish": elements.swish,
    "Tile": moves.tile,
    "Transpose": moves.transpose,
    "Trilu": selections.trilu,
    "Unsqueeze": moves.unsqueeze,
    "Where": selections.where,
}


def shape_of(to: Declared, node: Node, x: Value | Known) -> Known:
    """Returns the result of Shape or Size."""
    extents: Any = [math.prod(x.shape)] if node.operator == "Size" else list(
        x.shape[node.get("start", 0):node.get("end")])
    is_plain = all(isinstance(n, int) for n in extents)
    found = np.array(extents, dtype=np.int64 if is_plain else object)
    return Known(found.reshape(()) if node.operator == "Size" else found)


def is_move(node: Node, known: Known) -> bool:
    """Returns whether the node only gives the constant another shape, order or type of floats.
    """
    return node.operator in VIEWS or node.operator == "Identity" or (
        node.operator == "Cast" and node.get("to") == _FLOAT and known.array.dtype != object)


def moved(to: Declared, node: Node, known: Known, *operands: Operand) -> Known:
    """Returns the result of such a node."""
    if node.operator == "Cast":
        return replace(known, array=known.array.astype(np.float32, copy=False))
    found: Known = OPERATORS[node.operator](to, node, known, *operands)
    return found
