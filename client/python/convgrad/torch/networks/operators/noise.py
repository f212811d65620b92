"""Random numbers that a forward multiplies with, as in stochastic depth."""

from __future__ import annotations

from typing import Any

from convgrad.torch.networks.operators.known import all_of
from convgrad.torch.networks.operators.values import Importer, Noise, Value, text_of


def empty(to: Importer, *_: Any) -> Noise:
    return Noise(to.shape)


def bernoulli(to: Importer, x: Any, p: Any = None, *_: Any) -> Noise:
    if not isinstance(x, Noise) or not isinstance(p, (int, float)):
        raise to.refuse("bernoulli of a tensor's numbers", "bernoulli_(p) of an empty tensor")
    x.keep, x.divisor, x.users = float(p), 1.0, []
    return x


def uniform(to: Importer, *_: Any) -> Noise:
    return Noise(to.shape, raised=0.0)


def raised(to: Importer, x: Noise, by: Any, alpha: float) -> Noise:
    """Adds a number to numbers from 0 to 1, which are to be rounded down."""
    if x.raised is None or not isinstance(by, (int, float)):
        raise to.refuse("add with random numbers", "floor(rand(...) + p)")
    x.raised += alpha * by
    return x


def floored(to: Importer, x: Any) -> Noise:
    """Numbers from 0 to 1, plus p, rounded down: 1 with the probability p."""
    if not isinstance(x, Noise) or x.raised is None or not 0 <= x.raised <= 1:
        raise to.refuse("floor", "floor(rand(...) + p), with p from 0 to 1")
    x.keep, x.divisor, x.raised = x.raised, 1.0, None
    return x


def divided(to: Importer, x: Noise, divisor: Any) -> Noise:
    if not isinstance(divisor, (int, float)):
        raise to.refuse("div of random numbers by a tensor", "by a number")
    x.divisor *= divisor
    return x


def dropped(to: Importer, x: Any, noise: Noise) -> Value:
    """Multiplies each sample with one random number, which is 0 or 1 over the divisor."""
    if not isinstance(x, Value):
        raise to.refuse("mul of random numbers with no result", "div by a number")
    of_rows = (*x.shape[:1], *[1] * (len(x.shape) - 1))
    keep = noise.keep
    if keep is None or noise.divisor not in (keep, 1) or noise.shape != of_rows:
        raise to.refuse(f"mul with random numbers of {text_of(noise.shape)}",
                        "bernoulli_(p).div_(p) or floor(rand(...) + p) of one number for each "
                        "sample")
    if noise.users:
        raise to.refuse("random numbers that two results use", "numbers of its own for each")
    noise.users.append(x)
    dropped = to.add("dropout", x, p=1.0 - keep, training=True, by_row=True)
    return dropped if noise.divisor == keep else to.add("mul", dropped, other=keep)


def feature_dropout(to: Importer, x: Value, p: float, training: bool) -> Value:
    """Drops whole channels."""
    if not training or p == 0:
        return x
    ones = all_of(to, (*x.shape[:2], *[1] * (len(x.shape) - 2)), 1.0)
    noise = to.add("dropout", ones, p=float(p), training=True)
    return to.add("mul", x, noise, shape=x.shape)
