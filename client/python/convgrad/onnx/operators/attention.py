"""Steps of attention, as one node or written out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import text_of
from convgrad.onnx.operators import masks as masked
from convgrad.onnx.operators.elements import as_numbers, of_each
from convgrad.onnx.operators.sums import reduce
from convgrad.onnx.operators.views import expanded, known_sizes, permuted, reshaped
from convgrad.onnx.values import Known, Node, Operand, Source, Value
from convgrad.shapes import broadcast, padded

# Attributes that programs don't have, with the values that change nothing.
_PLAIN = {"softcap": (0,), "softmax_precision": (1,), "left_window_size": (-1,),
          "right_window_size": (-1,)}
# Steps whose results a mask before them doesn't close.
_PRODUCTS = frozenset(("attention", "batch_norm", "conv", "conv_transpose", "group_norm",
                       "layer_norm", "linear", "matmul", "rms_norm", "softmax"))
# Steps that keep the rows of a mask, so that its own rows tell which ones it closes.
_SUMS = frozenset(("add", "expand", "mul", "neg", "read", "reshape", "sub"))
# Steps that make infinite numbers of finite ones.
_UNBOUNDED = frozenset(("exp", "log", "pow", "reciprocal"))
_LEAST = np.finfo(np.float32).min


def attention(to: Declared, node: Node, query: Value, key: Operand, value: Operand,
              mask: Operand = None, *caches: Operand) -> Value:
    for name, usual in _PLAIN.items():
        if node.get(name, usual[0]) not in usual:
            raise to.refuse(f"Attention with {name}={node.get(name)}", f"{usual[0]}")
    if any(one is not None for one in caches):
        raise to.refuse("Attention with past keys or nonpad_kv_seqlen", "none")
    is_flat = len(query.shape) == 3
    q, k, v = (_heads(to, node, one, name) for one, name in (
        (query, "q_num_heads"), (key, "kv_num_heads"), (value, "kv_num_heads")))
    heads, groups = known_sizes(to, q, [1])[0], known_sizes(to, k, [1])[0]
    if v.shape[:3] != k.shape[:3] or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3] or (
            heads % groups):
        raise to.refuse("Attention of " + ", ".join(text_of(one.shape) for one in (q, k, v)),
                        "a query, a key and a value that fit")
    k, v = (_repeated(to, one, heads // groups) for one in (k, v))
    known_sizes(to, k, [2])
    scale = node.get("scale")
    operands = [q, k, v]
    if mask is not None:
        operands.append(_bias(to, mask, (*q.shape[:3], k.shape[2])))
    y = to.add("attention", *operands, shape=(*q.shape[:3], v.shape[3]),
               causal=bool(node.get("is_causal", 0)) or None,
               scale=None if scale is None else float(scale))
    if not is_flat:
        return y
    n, _, length, features = y.shape
    turned = permuted(to, y, [0, 2, 1, 3])
    return reshaped(to, turned, (n, length, features * heads))


def _heads(to: Declared, node: Node, operand: Operand, name: str) -> Value:
    """Returns (batch, heads, length, features) of a node's operand."""
    x, heads = to.value(operand), node.get(name)
    if len(x.shape) == 4 and heads is None:
        return x
    if len(x.shape) != 3 or not isinstance(heads, int) or heads < 1 or (
            known_sizes(to, x, [2])[0] % heads):
        raise to.refuse(f"Attention of {text_of(x.shape)} with {name}={heads}",
                        "four axes, or three and a number of heads that divides the last one")
    apart = reshaped(to, x, (*x.shape[:2], heads, known_sizes(to, x, [2])[0] // heads))
    return permuted(to, apart, [0, 2, 1, 3])


def _repeated(to: Declared, x: Value, count: int) -> Value:
    """Returns heads, each one `count` times."""
    if count == 1:
        return x
    n, heads, *rest = x.shape
    wide = expanded(to, reshaped(to, x, (n, heads, 1, *rest)), (n, heads, count, *rest))
    return reshaped(to, wide, (n, heads * count, *rest))


def _bias(to: Declared, mask: Operand, shape: Any) -> Value:
    """Returns the numbers that are added to scores of this shape."""
    if isinstance(mask, Known) and mask.array.dtype == bool:
        mask = Known(np.where(mask.array, np.float32(0), np.float32(-np.inf)))
    elif isinstance(mask, Value) and mask.dtype == "bool":
        mask = masked.chosen(to, mask, *(Known(np.array(n, np.float32)) for n in (0, -np.inf)))
    if not mask.shape or mask.shape[-1] != shape[-1] or broadcast(mask.shape, shape) != shape:
        raise to.refuse(f"Attention with a mask of {text_of(mask.shape)}",
                        f"one that is broadcast to {text_of(shape)}")
    return reshaped(to, to.value(mask), padded(mask.shape, 4))


def without_gaps(to: Declared, node: Node, mask: Value, zero: Operand,
                 x: Operand) -> Value | None:
    """Where(IsNaN(s), 0, s) of a Softmax s. A row that is NaN because a mask leaves nothing of
    it becomes 0, with finite gradients; without such a mask, this is s itself. None: the node
    is another choice."""
    if not isinstance(x, Value) or x.source.operator != "softmax" or (
            not masked.is_nan_of(mask, x) or to.number_of(zero) != 0 or
            broadcast(zero.shape, x.shape) != x.shape):
        return None
    scores: Any = x.source.operands[0]
    axis: Any = x.source.attributes["axis"]
    if _has_open_rows(scores, x.shape, axis):
        return x
    y = replace(x, source=scores, shape=padded(x.shape))
    most = reduce(to, "amax", y, [axis % len(y.shape)], True)
    is_open = masked.compare("ge")(to, node, most, Known(np.array(_LEAST)))
    y = of_each(to, "softmax", masked.chosen(
        to, is_open, y, Known(np.array(0, np.float32))), axis=axis)
    return replace(y * as_numbers(to, is_open), shape=x.shape)


def _has_open_rows(scores: Source, shape: Any, axis: int) -> bool:
    """Returns whether no mask closes a whole row of the scores, as far as constants tell. An
    input may be such a mask, and two masks may close a row together."""
    left, seen, masks, keeps_rows = [scores], set[int](), list[Any](), True
    while left:
        one = left.pop()
        if id(one) in seen or one.operator in _PRODUCTS:
            continue
        seen.add(id(one))
        operands = [it for it in one.operands if it is not None]
        if one.array is None and not one.operator or one.operator in _UNBOUNDED or (
                one.operator == "div" and len(operands) > 1):
            return False
        numbers = one.array if one.array is not None else np.array(
            one.attributes.get("other", 0.0))
        if _closes(numbers).any():
            masks.append(numbers)
        keeps_rows &= one.array is not None or one.operator in _SUMS
        left += operands
    return not masks or keeps_rows and len(masks) == 1 and (
        axis in (-1, max(len(shape), 2) - 1) and masks[0].shape[-1:] == shape[-1:] and
        not _closes(masks[0]).all(-1).any())


def _closes(numbers: Any) -> Any:
    """Returns the places of numbers that are infinite, or become so when they are doubled."""
    return np.abs(numbers) >= -_LEAST / 2
