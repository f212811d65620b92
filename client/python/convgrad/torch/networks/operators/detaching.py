"""Ends gradients, as detach() and torch.no_grad() do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from convgrad.torch.networks.operators.values import Importer, Value, View, Wide
from convgrad.torch.networks.operators.views import as_value, wide


def detach(to: Importer, x: Value) -> Value:
    """Returns the value without its gradient, in the same memory."""
    if not isinstance(x, Value):
        raise to.refuse(f"detach of {x}", "one of a result")
    if not to.has_gradient(x.base if isinstance(x, Wide) else x):
        return x
    x = as_value(to, x)
    if isinstance(x, Wide):
        return wide(detach(to, x.base), x.sizes, x.order)
    return to.add("detach", x, shape=x.shape, view=View(("detach",), x, detach))


def results_of_region(to: Importer, results: Sequence[Any], start: int) -> list[Any]:
    """Returns what a region without gradients has returned. The memories that it made have
    numbers from `start` on."""
    holders = Counter(one.memory for one in results if isinstance(one, Value))
    found = []
    for one in results:
        y = detach(to, one) if isinstance(one, Value) else one
        is_alone = y is not one and one.memory >= start and holders[one.memory] == 1
        found.append(to.apart(y) if is_alone else y)
    return found

