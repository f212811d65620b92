"""Steps of norms and of products with matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from convgrad.importers import steps
from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import Batch, text_of
from convgrad.onnx.operators.elements import of_each
from convgrad.onnx.operators.views import (
    axis_in,
    known_sizes,
    of_channels,
    permuted,
    reshaped,
)
from convgrad.onnx.operators.windows import Window, padded_by
from convgrad.onnx.values import Known, Node, Operand, Value
from convgrad.shapes import broadcast, padded


def batch_norm(to: Declared, node: Node, x: Value, scale: Operand, bias: Operand,
               mean: Operand, var: Operand) -> Any:
    if node.get("training_mode", 0) and x.shape[0] == 1:  # of a weight
        return [group_norm(to, node, x, scale, bias)]
    if node.get("training_mode", 0):
        raise to.refuse("BatchNormalization with training_mode=1",
                        "0: the network's training program trains it")
    if node.opset < 14 and any(node.outputs[1:]):  # which says so before training_mode existed
        raise to.refuse("BatchNormalization with several results", "one")
    eps = float(node.get("epsilon", 1e-5))
    if not 2 <= len(x.shape) <= 5 or any(one.shape != (x.shape[1],) for one in (
            scale, bias, mean, var)):
        raise to.refuse(f"BatchNormalization of {text_of(x.shape)}",
                        "two to five axes, and operands with a number for each channel")
    has_own = isinstance(scale, Known) and isinstance(bias, Known)
    if isinstance(mean, Known) and isinstance(var, Known):
        # ONNX's momentum is that of the old statistics, the program's that of the new ones.
        y = to.add("batch_norm", x, shape=x.shape, parameters=(
            *((scale, bias) if has_own else (None, None)), to.statistic(mean),
            to.statistic(var)), training=to.training or None, eps=eps,
            momentum=1 - float(node.get("momentum", 0.9)) if to.training else None)
        if has_own:
            return [y]
    else:
        rank = len(x.shape)
        root = of_each(to, "sqrt", of_channels(to, var, rank) + eps)
        y = (x - of_channels(to, mean, rank)) / root
    return [_scaled(to, y, scale, bias)]


def _scaled(to: Declared, y: Value, scale: Operand, bias: Operand) -> Value:
    """Multiplies each channel by a number and adds one."""
    scaled = y * of_channels(to, scale, len(y.shape))
    return scaled + of_channels(to, bias, len(y.shape))


def group_norm(to: Declared, node: Node, x: Value, scale: Operand, bias: Operand) -> Value:
    """Also InstanceNormalization, and BatchNormalization of a single item. onnx's checker
    refuses the deprecated GroupNormalization from before opset 21."""
    shape: Any = x.shape
    groups = node.get("num_groups") if node.operator == "GroupNormalization" else shape[1]
    if not 3 <= len(shape) <= 5 or not isinstance(groups, int) or (
            groups < 1 or shape[1] % groups) or any(
            one.shape != (shape[1],) for one in (scale, bias)):
        raise to.refuse(f"{node.operator} of {text_of(x.shape)} in {groups} groups",
                        "three to five axes, and operands with a number for each channel")
    has_own = isinstance(scale, Known) and isinstance(bias, Known)
    y = of_each(to, "group_norm", x, groups=groups, eps=float(node.get("epsilon", 1e-5)),
                parameters=(scale, bias) if has_own else ())
    return y if has_own else _scaled(to, y, scale, bias)


def layer_norm(operator: str) -> Callable[..., Any]:
    """Returns the row of layer_norm or rms_norm."""
    def row(to: Declared, node: Node, x: Value, scale: Operand,
            bias: Operand = None) -> list[Value]:
        axis = axis_in(to, node.get("axis", -1), len(x.shape))
        sizes = tuple(known_sizes(to, x, range(axis, len(x.shape))))
        attributes: dict[str, Any] = dict(
            axes=len(sizes), eps=float(node.get("epsilon", 1e-5)))
        own = [one for one in (scale, bias) if one is not None]
        if len(x.shape) >= 2 and all(
                isinstance(one, Known) and one.shape == sizes for one in own):
            return [to.add(operator, x, shape=x.shape, parameters=own, **attributes)]
        y = of_each(to, operator, x, **attributes)
        y = y if scale is None else y * to.value(scale)
        y = y if bias is None else y + to.value(bias)
        if y.shape != x.shape:
            raise to.refuse(f"{node.operator} by {text_of(scale.shape)}",
                            "a scale that is broadcast to the other operand")
        return [y]

    return row


def lrn(to: Declared, node: Node, x: Value) -> Value:
    """Divides by a power of the mean of squares of the channels around each one."""
    size, (n, *rest) = int(node.get("size")), x.shape
    channels, length = known_sizes(to, x, [1])[0], math.prod(known_sizes(
        to, x, range(2, len(x.shape))))
    if len(x.shape) < 3 or size < 1 or size > 2 * channels:
        raise to.refuse(f"LRN of {text_of(x.shape)} with size={size}",
                        "three axes or more, and a size of twice the channels at most")
    rows = reshaped(to, x * x, (n, 1, channels, length))
    before = (size - 1) // 2
    wide, _ = padded_by(to, rows, [Window(channels, size, 1, 1, before, size - 1 - before),
                                   Window(length, 1, 1, 1, 0, 0)])
    mean = to.add("avg_pool", wide, shape=rows.shape, kernel_size=[size, 1], stride=[1, 1])
    scale = reshaped(to, mean, (n, *rest)) * node.get("alpha", 1e-4) + node.get("bias", 1.0)
    return x * of_each(to, "pow", scale, exponent=-float(node.get("beta", 0.75)))


def softmax(operator: str) -> Callable[..., Value]:
    """Returns the row of softmax or log_softmax."""
    def row(to: Declared, node: Node, x: Value) -> Value:
        axis = axis_in(to, node.get("axis", -1), len(x.shape)) + max(2 - len(x.shape), 0)
        return of_each(to, operator, x, axis=axis)

    return row


def transposed(known: Known) -> Known:
    return replace(known, array=known.array.T)


def _linear(to: Declared, x: Value, weight: Known, bias: Known | None = None) -> Value:
    """x times the matrix, which the program keeps transposed."""
    if x.shape[-1] != weight.shape[0]:
        raise to.refuse(f"a product of {text_of(x.shape)} and {text_of(weight.shape)}",
                        "as many columns as rows")
    own = [transposed(weight)] if bias is None else [transposed(weight), bias]
    return to.add("linear", x, parameters=own, shape=(*x.shape[:-1], weight.shape[1]))


def gemm(to: Declared, node: Node, a: Value, b: Operand, c: Operand = None) -> Value:
    alpha, beta = float(node.get("alpha", 1.0)), float(node.get("beta", 1.0))
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise to.refuse(f"Gemm of {text_of(a.shape)} and {text_of(b.shape)}", "matrices")
    if node.get("transA", 0):
        a = permuted(to, a, [1, 0])
    if c is not None and beta == 0:
        c = None
    if isinstance(b, Known) and (node.get("transB", 0) or to.may_move(b)):
        b = transposed(b) if node.get("transB", 0) else b
        n = b.shape[1]
        is_bias = isinstance(c, Known) and c.shape in ((n,), (1, n)) and (
            c.shape == (n,) or to.may_move(c)) and alpha == beta == 1
        y = _linear(to, a, b, replace(c, array=c.array.reshape(n)) if is_bias else None)
        c = None if is_bias else c
    else:
        b = to.value(b)
        y = product(to, a, permuted(to, b, [1, 0]) if node.get("transB", 0) else b)
    y = y if alpha == 1 else y * alpha
    if c is None:
        return y
    c = to.value(c)
    found: Value = y + (c if beta == 1 else c * beta)
    if found.shape != y.shape:
        raise to.refuse(f"Gemm with C of {text_of(c.shape)}",
                        f"one that is broadcast to {text_of(y.shape)}")
    return found


def matmul(to: Declared, node: Node, a: Value, b: Operand) -> Value:
    if isinstance(b, Known) and len(b.shape) == 2 and len(a.shape) >= 1 and to.may_move(b):
        return _linear(to, a, b)
    return product(to, a, to.value(b))


def product(to: Declared, a: Value, b: Value) -> Value:
    """NumPy's product: a vector is a row at the left and a column at the right."""
    if not a.shape or not b.shape:
        raise to.refuse("MatMul of a number", "one axis at least")
    left = reshaped(to, a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = reshaped(to, b, (*b.shape, 1)) if len(b.shape) == 1 else b
    rank = max(len(left.shape), len(right.shape))
    x, y = (reshaped(to, one, padded(one.shape, rank)) for one in (left, right))
    leading = broadcast(x.shape[:-2], y.shape[:-2])
    if leading is None:
        raise to.refuse(f"MatMul of {text_of(a.shape)} and {text_of(b.shape)}",
                        "leading extents that are equal, or 1")
    if x.shape[-1] != y.shape[-2] or isinstance(x.shape[-1], Batch):
        raise to.refuse(f"MatMul of {text_of(a.shape)} and {text_of(b.shape)}",
                        "as many columns as rows")
    z = to.add("matmul", x, y, shape=(*leading, x.shape[-2], y.shape[-1]))
    shape = [*leading, *[x.shape[-2]] * (len(a.shape) > 1), *[y.shape[-1]] * (len(b.shape) > 1)]
    return reshaped(to, z, shape)


def einsum(to: Declared, node: Node, *operands: Operand) -> Value:
    values = [to.value(one) for one in operands]
    equation = str(node.get("equation")).replace(" ", "")
    terms, _, result = equation.partition("->")
    first, second = spelled = [
        term.replace("...", "012345"[6 - max(len(one.shape) - len(term) + 3, 0):])
        for term, one in zip(terms.split(","), values)] if len(values) == 2 else ["", ""]
    dots = (set(first) | set(second)) & set("012345")
    result = result.replace("...", "".join(sorted(dots)))
    if len(values) != 2 or not steps.is_product(first, second, result) or (
            len(set(result)) != len(result)) or any(
            not len(set(term)) == len(term) == len(one.shape)
            for term, one in zip(spelled, values)):
        raise to.refuse(f"Einsum of {equation}", "two operands, each axis once in each, and "
                        "sums over axes of both")
    sizes: dict[str, Any] = dict(zip(first, values[0].shape))
    if any(sizes.get(c, n) != n for c, n in zip(second, values[1].shape)):
        raise to.refuse("Einsum of " + ", ".join(text_of(one.shape) for one in values),
                        "equal extents")
    return steps.einsum(to, values[0], values[1], first, second, result)
