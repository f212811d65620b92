"""Losses by functions with the arguments of ATen's operators. The server computes a loss that
the forward only returns. Others are composed of steps, and may be computed with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from convgrad.torch.networks.operators.elements import binary, clamp, detach, of_each, times
from convgrad.torch.networks.operators.masks import chosen
from convgrad.torch.networks.operators.moves import moved
from convgrad.torch.networks.operators.places import check_places, is_at
from convgrad.torch.networks.operators.sums import reduce
from convgrad.torch.networks.operators.tokens import softmax
from convgrad.torch.networks.operators.values import INDICES, Importer, Value, text_of
from convgrad.torch.networks.operators.views import as_value, reshaped

_REDUCTIONS = {1: "mean", 2: "sum"}


def cross_entropy(to: Importer, logits: Value, target: Value, weight: Value | None,
                  reduction: int, ignore_index: int, label_smoothing: float) -> Value:
    if len(logits.shape) < 2:
        raise to.refuse(f"cross_entropy of {text_of(logits.shape)}", "a batch of logits")
    is_index = target.shape != logits.shape
    smoothing = float(label_smoothing)
    if not (to.is_returned and reduction in _REDUCTIONS):
        logs = softmax("log_softmax")(to, logits, 1)
        if is_index:
            return _nll(to, logs, target, weight, reduction, ignore_index, smoothing)
        return _of_probabilities(to, logs, target, weight, reduction, smoothing)
    own = _classes(to, target) if is_index else as_value(to, target)
    return _loss(to, "cross_entropy", reduction, logits, own, weight,
                 label_smoothing=smoothing, ignore_index=ignore_index if is_index else None)


def nll(to: Importer, logs: Value, target: Value, weight: Value | None, reduction: int,
        ignore_index: int) -> Value:
    return _nll(to, as_value(to, logs), target, weight, reduction, ignore_index, 0.0)


def _classes(to: Importer, target: Value) -> Value:
    """Returns class indices as a loss takes them, which are a whole input."""
    whole = target.whole
    is_whole = whole.shape == target.shape and all(
        view.key[0] == "reshape" for view in target.views)
    if whole.dtype in INDICES and whole.kind == "an input" and is_whole:
        return to.indices(whole)
    return to.indices(_sent(to, "cross_entropy", target, lambda classes: classes))


def _sent(to: Importer, loss: str, target: Value,
          then: Callable[[torch.Tensor], torch.Tensor]) -> Value:
    """Returns an input with what `then` makes of the class indices."""
    found = to.sent(target, then)
    if found is None:
        raise to.refuse(f"{loss} with a target of {text_of(target.shape)}, {target.name}",
                        "class indices that follow from inputs alone")
    return found


def _nll(to: Importer, logs: Value, target: Value, weight: Value | None, reduction: int,
         ignore_index: int, smoothing: float) -> Value:
    """The loss of class indices, from logarithms of probabilities (N, C, ...)."""
    classes = logs.shape[1]
    if not isinstance(classes, int):
        raise to.refuse(f"a loss of {text_of(logs.shape)}", "a number of classes")

    def checked(indices: torch.Tensor) -> torch.Tensor:
        """Returns the indices with one more class for what is ignored."""
        is_ignored = indices == ignore_index
        check_places(indices[~is_ignored], classes, "target",
                     f"a class from 0 to {classes - 1}, or {ignore_index}")
        return indices.masked_fill(is_ignored, classes)

    found = _sent(to, "a loss", target, checked)
    mask = moved(to, is_at(to, found, classes), -1, 1)
    picked = -reduce(to, "sum", chosen(to, mask, logs, 0.0), 1, False)
    shares = mask if weight is None else mask * _of_classes(to, logs, weight)
    share = reduce(to, "sum", shares, 1, False)
    loss = picked if weight is None else picked * share
    if smoothing:
        weighted = logs if weight is None else logs * _of_classes(to, logs, weight)
        is_used = reduce(to, "sum", mask, 1, False)
        even = chosen(to, is_used, -reduce(to, "sum", weighted, 1, False), 0.0)
        loss = loss * (1 - smoothing) + even * (smoothing / classes)
    if reduction == 1:
        return reduce(to, "sum", loss, None, False) / reduce(to, "sum", share, None, False)
    return reduced_loss(to, loss, reduction)


def _of_classes(to: Importer, logs: Value, weight: Value) -> Value:
    return reshaped(to, weight, (1, logs.shape[1], *[1] * (len(logs.shape) - 2)))


def _of_probabilities(to: Importer, logs: Value, target: Value, weight: Value | None,
                      reduction: int, smoothing: float) -> Value:
    target = as_value(to, target)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / logs.shape[1]
    if weight is not None:
        target = target * _of_classes(to, logs, weight)
    each = -reduce(to, "sum", logs * target, 1, False)
    return reduced_loss(to, each, reduction)


def of_elements(operator: str, *names: str) -> Callable[..., Value]:
    """Returns the row of a loss with attributes of these names."""
    def row(to: Importer, x: Value, target: Value, reduction: int, *numbers: float) -> Value:
        if to.is_returned and reduction in _REDUCTIONS:
            return _loss(to, operator, reduction, x, as_value(to, target),
                         **dict(zip(names, map(float, numbers))))
        apart = binary(to, "sub", x, target)
        if operator == "mse":
            return reduced_loss(to, apart * apart, reduction)
        apart = of_each(to, "abs", apart)
        beta = numbers[0] if numbers else 0
        return reduced_loss(to, times(to, _huber(to, apart, beta), 1 / beta) if beta else apart,
                        reduction)

    return row


def huber(to: Importer, x: Value, target: Value, reduction: int, delta: float) -> Value:
    apart = of_each(to, "abs", binary(to, "sub", x, target))
    return reduced_loss(to, _huber(to, apart, delta), reduction)


def _huber(to: Importer, apart: Value, delta: float) -> Value:
    """Half the square up to `delta`, and its tangent there from then on."""
    near = clamp(to, apart, None, delta)
    return near * (apart - near * 0.5)


def binary_cross_entropy_with_logits(to: Importer, x: Value, target: Value, weight: Any,
                                     pos_weight: Any, reduction: int) -> Value:
    if to.is_returned and reduction in _REDUCTIONS and weight is None and pos_weight is None:
        return _loss(to, "binary_cross_entropy_with_logits", reduction, x,
                     as_value(to, target))
    target = as_value(to, target)
    falling = of_each(to, "softplus", -x, beta=1.0, threshold=20.0)
    if pos_weight is not None:
        falling = falling * (target * (pos_weight - 1) + 1)
    each = falling + x * (1 - target)
    return reduced_loss(to, each if weight is None else each * weight, reduction)


def binary_cross_entropy(to: Importer, x: Value, target: Value, weight: Any,
                         reduction: int) -> Value:
    """The loss of probabilities. Torch limits logarithms to -100 and, in the gradient, the
    divisor to 1e-12. So the loss has no gradient here, and a sum that is 0 has it."""
    own, target = detach(to, as_value(to, x)), as_value(to, target)
    rest = 1 - own
    logs, others = (clamp(to, of_each(to, "log", one), -100.0) for one in (own, rest))
    each = -(target * logs + (1 - target) * others)
    slope = (own - detach(to, target)) / clamp(to, rest * own, 1e-12)
    each = each + slope * (x - own)
    return reduced_loss(to, each if weight is None else each * weight, reduction)


def kl_div(to: Importer, x: Value, target: Value, reduction: int, log_target: bool) -> Value:
    target = as_value(to, target)
    if log_target:
        share, logs = of_each(to, "exp", target), target
    else:  # where 0 times its logarithm is 0
        share, logs = target, of_each(to, "log", clamp(to, target, torch.finfo().tiny))
    return reduced_loss(to, share * (logs - x), reduction)


def reduced_loss(to: Importer, each: Value, reduction: int) -> Value:
    return reduce(to, _REDUCTIONS[reduction], each, None, False) if reduction else each


def _loss(to: Importer, operator: str, reduction: int, x: Value, target: Value,
          *weight: Value | None, **attributes: Any) -> Value:
    is_index = isinstance(target, Value) and target.kind == "a parameter"
    y = to.add(operator, as_value(to, x), *(() if is_index else (target,)),
               parameters=((target,) if is_index else ()) + weight,
               reduction=_REDUCTIONS[reduction], **attributes)
    return replace(y, kind="a loss", shape=())
