"""Random numbers that a forward multiplies with: dropout of whole samples, which is stochastic
depth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from convgrad.torch.networks.operators.values import Importer, Noise, Value, text_of
from convgrad.torch.networks.operators.writes import all_of


def empty(to: Importer, *_: Any) -> Noise:
    return Noise(to.shape)


def bernoulli(to: Importer, x: Any, p: Any = None, *_: Any) -> Noise:
    if not isinstance(x, Noise) or not isinstance(p, (int, float)):
        raise to.refuse("bernoulli of a tensor's numbers", "bernoulli_(p) of an empty tensor")
    x.keep, x.divisor = float(p), 1.0
    return x


def divided(to: Importer, x: Noise, divisor: Any) -> Noise:
    if not isinstance(divisor, (int, float)):
        raise to.refuse("div of random numbers by a tensor", "by a number")
    x.divisor *= divisor
    return x


def dropped(to: Importer, x: Value, noise: Noise) -> Value:
    """Multiplies each sample with one random number, which is 0 or 1 over the divisor."""
    of_rows = (*x.shape[:1], *[1] * (len(x.shape) - 1))
    keep = noise.keep
    if keep is None or noise.divisor not in (keep, 1) or noise.shape != of_rows:
        raise to.refuse(f"mul with random numbers of {text_of(noise.shape)}",
                        "bernoulli_(p).div_(p) of one number for each sample")
    dropped = to.add("dropout", x, p=1.0 - keep, training=True, by_row=True)
    return dropped if noise.divisor == keep else to.add("mul", dropped, other=keep)


def feature_dropout(to: Importer, x: Value, p: float, training: bool) -> Value:
    """Drops whole channels."""
    if not training or p == 0:
        return x
    ones = all_of(to, (*x.shape[:2], *[1] * (len(x.shape) - 2)), 1.0)
    noise = to.add("dropout", ones, p=float(p), training=True)
    return replace(to.add("mul", x, noise), shape=x.shape)
