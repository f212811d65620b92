"""Checks what a forward gives a program's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx

from convgrad.errors import Unimplemented
from convgrad.torch.layers.functional import autocast_dtype
from convgrad.torch.networks.operators.values import Importer, Value, Wide, text_of

# Untyped, because types are checked with PyTorch 1.13, which lacks some of its names.
_TORCH: Any = torch
_COMPUTED = (None, torch.float32, torch.bfloat16, torch.bool)
_OF_DATA = "a number that depends on the batch or on data"
_SAME = "a number that is the same in each call"
_MOVES = ("flatten", "reshape", "permute", "slice", "select", "expand", "concat")


def check_autocast(to: Importer, device: str, dtype: Any, is_enabled: bool) -> None:
    """Raises Unimplemented for an autocast in a forward that isn't as the one around it."""
    if device == "cpu" and autocast_dtype(torch.empty(0)) != (dtype if is_enabled else None):
        raise to.refuse("autocast inside a forward", "the one around the whole network")


def check_operands(to: Importer, operator: str, operands: Sequence[Any],
                   parameters: Sequence[Any]) -> None:
    """Raises Unimplemented unless a step can have the operands and the dtype of the call under
    way. None is an omitted operand."""
    # Autocast calls in bf16. Masks are of ones and zeros. Integers may only be moved, except
    # sums of masks.
    if to.dtype not in _COMPUTED and operator not in (*_MOVES, "sum", "clamp"):
        raise to.refuse(f"{operator} in {to.dtype}", "torch.float32")
    for i, operand in enumerate((*operands, *parameters)):
        is_parameter = i >= len(operands)
        if operand is None:
            continue
        if hasattr(operand, "free_symbols"):
            raise to.refuse(f"{operator} with {_OF_DATA}", _SAME)
        if not isinstance(operand, Value):
            raise to.refuse(f"{operator} with {operand}", "tensors alone")
        if isinstance(operand, Wide):
            raise to.refuse(f"{operator} of {text_of(operand.shape)}", "at most six axes")
        if operand.kind == "a loss":
            raise to.refuse(f"{operator} of a loss", "a loss that the forward returns")
        if is_parameter != (operand.kind == "a parameter"):
            raise to.refuse(f"{operator} with {operand.kind}, {operand.name}",
                            f"a parameter as operand {i}" if is_parameter
                            else "inputs and results of other operators")


def check_attributes(to: Importer, operator: str, attributes: Mapping[str, Any]) -> None:
    """Raises Unimplemented for an attribute that depends on the batch."""
    for name, value in attributes.items():
        parts = value if isinstance(value, (tuple, list)) else [value]
        if not all(isinstance(one, (bool, int, float, str)) for one in parts):
            raise to.refuse(f"{operator} with a {name} that depends on the batch",
                            "a number that is the same for each batch")


def refusal_of(to: Importer, node: torch.fx.Node, error: Exception) -> Unimplemented:
    """Returns the error, or what stands for it if an argument of the call has no value yet.

    Errors: TypeError that has another reason.
    """
    if isinstance(error, Unimplemented):
        return error
    if any(isinstance(given.meta.get("val"), (_TORCH.SymInt, _TORCH.SymFloat))
           for given in node.all_input_nodes):
        return to.refuse(f"{node.target} with {_OF_DATA}", _SAME)
    raise error
