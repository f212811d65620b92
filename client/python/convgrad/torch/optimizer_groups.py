"""Defines the parameter groups of optimizers whose parameters are on a server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from convgrad.errors import invalid, unimplemented


class Groups(list[dict[str, Any]]):
    """An optimizer's groups. Refuses a GradScaler, which would look for tensors in them."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.startswith("torch.") and caller.endswith("grad_scaler"):
            raise unimplemented(
                "GradScaler", "an optimizer whose gradients are on the server",
                "no scaler: autocast to bfloat16 needs none; gradient_scale and skip_nonfinite "
                "of convgrad.torch.optim do what a scaler does")
        return super().__iter__()


def names_of(group: dict[str, Any]) -> list[str]:
    """Excludes parameters that the network has replaced, which no longer have a gradient."""
    return [parameter.name for parameter in group["params"] if parameter.is_current]


def check_range(name: str, value: Any, below: float) -> None:
    """Applies the check of torch's optimizers. NaN is out of every range."""
    if not 0 <= value < below:
        raise invalid("OUT_OF_RANGE", name, value, f"a number from 0 on, below {below}")
