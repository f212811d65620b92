"""Losses that a forward returns, by functions with the arguments of ATen's operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from convgrad.torch.networks.operators.values import INDICES, Importer, Value, text_of
from convgrad.torch.networks.operators.views import as_value

_REDUCTIONS = {1: "mean", 2: "sum"}


def cross_entropy(to: Importer, logits: Value, target: Value, weight: Value | None,
                  reduction: int, ignore_index: int, label_smoothing: float) -> Value:
    if len(logits.shape) < 2:
        raise to.refuse(f"cross_entropy of {text_of(logits.shape)}", "a batch of logits")
    if target.shape == logits.shape:  # probabilities
        return _loss(to, "cross_entropy", reduction, logits, as_value(to, target), weight,
                     label_smoothing=float(label_smoothing))
    whole = target.whole
    is_whole = whole.shape == target.shape and all(
        view.key[0] == "reshape" for view in target.views)
    if whole.dtype not in INDICES or whole.kind != "an input" or not is_whole:
        raise to.refuse(f"cross_entropy with a target of {text_of(target.shape)}",
                        "class indices in the shape of an input")
    return _loss(to, "cross_entropy", reduction, logits, to.indices(whole), weight,
                 label_smoothing=float(label_smoothing), ignore_index=ignore_index)


def of_elements(operator: str, *names: str) -> Callable[..., Value]:
    """Returns the row of a loss with attributes of these names."""
    return lambda to, x, target, reduction, *numbers: _loss(
        to, operator, reduction, x, as_value(to, target), **dict(
            zip(names, map(float, numbers))))


def binary_cross_entropy(to: Importer, x: Value, target: Value, weight: Any, pos_weight: Any,
                         reduction: int) -> Value:
    if weight is not None or pos_weight is not None:
        raise to.refuse("binary_cross_entropy_with_logits with weight or pos_weight",
                        "neither of them")
    return _loss(to, "binary_cross_entropy_with_logits", reduction, x, as_value(to, target))


def _loss(to: Importer, operator: str, reduction: int, x: Value, target: Value,
          *weight: Value | None, **attributes: Any) -> Value:
    if reduction not in _REDUCTIONS:
        raise to.refuse(f"{operator} with reduction='none'", "'mean' or 'sum'")
    is_index = isinstance(target, Value) and target.kind == "a parameter"
    y = to.add(operator, as_value(to, x), *(() if is_index else (target,)),
               parameters=((target,) if is_index else ()) + weight,
               reduction=_REDUCTIONS[reduction], **attributes)
    return replace(y, kind="a loss", shape=())
