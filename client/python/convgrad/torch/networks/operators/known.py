"""Tensors that a forward makes of numbers alone, as masks. The importer computes them by torch,
once, and the session keeps those that steps use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.node import map_aggregate

from convgrad.programs import name_of_constant
from convgrad.torch.networks.operators.values import INDICES, Importer, Value, text_of
from convgrad.torch.networks.operators.views import as_value, expanded

_MADE = frozenset(("zeros", "ones", "full", "arange", "linspace", "eye", "scalar_tensor"))
_MADE_LIKE = frozenset(("new_zeros", "new_ones", "new_full", "zeros_like", "ones_like",
                        "full_like"))
_OF_MASKS = frozenset(("where", "masked_fill", "masked_fill_", "scaled_dot_product_attention"))
_OF_PLACES = frozenset(("index", "index_select", "embedding", "gather", "cross_entropy_loss",
                        "nll_loss", "nll_loss_nd", "nll_loss2d"))
_MOST_BYTES = 2**26
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.layout, torch.device,
          torch.memory_format)


@dataclass(frozen=True)
class Known:
    """A tensor with its values. What changes it in place changes all views of it."""

    tensor: torch.Tensor

    @property
    def name(self) -> str:
        """Returns the name that a program has for it, which follows from its values."""
        return name_of_constant(self.tensor.contiguous().numpy())

    @property
    def memory(self) -> int:
        """Equal for views of one another."""
        tensor: Any = self.tensor
        return int(tensor.untyped_storage().data_ptr())

    def __str__(self) -> str:
        return f"a constant of {text_of(self.tensor.shape)}, {self.tensor.dtype}"


def takes_known(target: Any, tensor: torch.Tensor) -> bool:
    """Returns whether the operator takes the constant itself: places, or booleans that
    broadcast to its other operands."""
    name = str(target).partition(".")[2].partition(".")[0]
    return name == "index" or tensor.dtype == torch.bool and name in _OF_MASKS


def as_numbers(target: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Returns integers and masks as floats, unless the operator takes them as places."""
    name = str(target).partition(".")[2].partition(".")[0]
    is_whole = tensor.dtype in (*INDICES, torch.bool)
    return tensor.float() if is_whole and name not in _OF_PLACES else tensor


def computed(to: Importer, node: torch.fx.Node, name: str, args: Any, kwargs: Any) -> Any:
    """Returns the node's result with Known for each tensor; None if it depends on a value.

    Requires: an operator that draws no random numbers.
    """
    if not name.startswith("aten."):
        return None
    target: Any = node.target
    name = name.removeprefix("aten.")
    if name == "expand" and _is_mask_for_each(node, args):
        args = (args[0], [1, *args[1][1:]])
    is_made = name in _MADE
    if name in _MADE_LIKE and args:
        shape = tuple(getattr(args[0], "shape", ()))
        if name.endswith("_like") and not all(isinstance(n, int) for n in shape):
            return None
        like = torch.empty(shape if name.endswith("_like") else (), dtype=to.dtype)
        args, is_made = (like, *args[1:]), True
    if not is_made and not holds(Known, (args, kwargs)):
        return None
    given, named = map_aggregate((args, kwargs), lambda argument: (
        argument.tensor if isinstance(argument, Known) else argument))
    if "device" in named:
        named = {**named, "device": torch.device("cpu")}
    # Nothing may follow from an input, a parameter or the batch.
    if not all(isinstance(one, (*_PLAIN, torch.Tensor)) for one in _leaves((given, named))):
        return None
    if is_made and torch.Size(n for n in to.shape).numel() * 8 > _MOST_BYTES:
        raise to.refuse(f"a constant of {text_of(to.shape)}", f"at most {_MOST_BYTES} bytes")
    with torch.no_grad():
        return _as_known(target(*given, **named))


def _is_mask_for_each(node: torch.fx.Node, args: Any) -> bool:
    """Returns whether attention alone uses a mask that is repeated for each sample."""
    x, sizes = args[0], args[1]
    return isinstance(x, Known) and x.tensor.dtype == torch.bool and (
        x.tensor.dim() == len(sizes)) and x.tensor.shape[:1] == (1,) and (
        not isinstance(sizes[0], int)) and all(
        str(user.target).startswith("aten.scaled_dot_product_attention.")
        for user in node.users)


def all_of(to: Importer, shape: tuple[Any, ...], number: Any) -> Value:
    """Returns a value that has a number everywhere."""
    return expanded(to, as_value(to, one_of(to, shape, number)), shape)


def one_of(to: Importer, shape: tuple[Any, ...], number: Any) -> Value:
    """Returns a fixed parameter with the number, which can be expanded to the shape."""
    if to.dtype != torch.float32 or not isinstance(number, (bool, int, float)):
        raise to.refuse(f"a constant of {text_of(shape)} in {to.dtype}",
                        "torch.float32, or a shape without the batch")
    return to.constant(torch.full([1] * len(shape), float(number)))


def holds(kind: type, arguments: Any) -> bool:
    """Returns whether an argument, or a part of one, is of this kind."""
    return any(isinstance(one, kind) for one in _leaves(arguments))


def _leaves(arguments: Any) -> list[Any]:
    found: list[Any] = []
    map_aggregate(arguments, found.append)
    return found


def _as_known(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return Known(result)
    return [Known(one) for one in result] if isinstance(result, (list, tuple)) else result
