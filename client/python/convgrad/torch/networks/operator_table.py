"""Which function of steps.py each of ATen's operators leads to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from convgrad.torch.networks import steps, tokens, views

# Some of which PyTorch 1.13 lacks, by which types are checked.
_TORCH: Any = torch
Function = Callable[..., Any]

_OPERATORS: dict[str, Function] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), steps.conv),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
                    steps.conv_transpose),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"), steps.max_pool),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), steps.avg_pool),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
                    steps.adaptive_avg_pool),
    **{name: steps.pointwise(name) for name in ("relu", "relu6", "sigmoid", "silu", "tanh")},
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
                    steps.upsample_nearest),
    **dict.fromkeys(("cat", "concat"), views.concat),
    **dict.fromkeys(("flatten", "unflatten", "view", "_unsafe_view", "reshape", "squeeze",
                     "unsqueeze"), views.view),
    **dict.fromkeys(("split", "split_with_sizes"), views.split),
    **dict.fromkeys(("transpose", "swapaxes"), views.transpose),
    **dict.fromkeys(("t", "numpy_T"), views.transposed),
    **dict.fromkeys(("matmul", "mm", "bmm"), tokens.matmul),
    **{name: tokens.softmax(name) for name in ("softmax", "log_softmax")},
    "permute": views.permute, "slice": views.slice_of, "select": views.select,
    "unbind": views.unbind, "chunk": views.chunk, "stack": views.stack,
    "expand": views.expand, "roll": views.roll, "pixel_shuffle": views.pixel_shuffle,
    "layer_norm": tokens.layer_norm, "rms_norm": tokens.rms_norm,
    "group_norm": tokens.group_norm, "scaled_dot_product_attention": tokens.attention,
    "square": tokens.square, "pow": tokens.square,
    **dict.fromkeys(("alias", "contiguous"), steps.contiguous),
    **dict.fromkeys(("empty", "new_empty", "empty_like"), steps.empty),
    "upsample_bilinear2d": steps.upsample_bilinear, "linear": steps.linear,
    "batch_norm": steps.batch_norm, "leaky_relu": steps.leaky_relu,
    "hardtanh": steps.hardtanh, "dropout": steps.dropout, "mean": steps.mean,
    "add": steps.add, "mul": steps.mul, "div": steps.div, "bernoulli": steps.bernoulli,
    "clone": steps.copied, "to": steps.converted,
}
# By overload, where others take other arguments.
_OVERLOADS: dict[str, tuple[str, ...]] = {
    "to": ("dtype",), "softmax": ("int",), "log_softmax": ("int",), "select": ("int",),
    "split": ("Tensor", "sizes"), "unbind": ("int",), "pow": ("Tensor_Scalar",),
    "pow_": ("Scalar",), "transpose": ("int",), "squeeze": ("default", "dim", "dims"),
    "unflatten": ("int",), "mean": ("dim", "default"), "upsample_nearest1d": ("vec",),
    "upsample_nearest2d": ("vec",), "upsample_nearest3d": ("vec",),
    "upsample_bilinear2d": ("vec",), "bernoulli": ("p",), "bernoulli_": ("float",),
    "div": ("Tensor", "Scalar"), "div_": ("Tensor", "Scalar"),
}


def name_of(target: Any) -> str:
    """Returns the operator's name without its overload, as "aten.relu_"."""
    packet = getattr(target, "overloadpacket", None)
    if packet is None:
        return str(getattr(target, "__name__", target))
    return f"{target.namespace}.{packet.__name__}"


def is_random(target: Any) -> bool:
    return _TORCH.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def acts(target: Any) -> bool:
    """Returns whether the operator changes something, whatever becomes of its result."""
    return is_in_place(target) or is_random(target) or name_of(target) in (
        "aten.batch_norm", "wrap_with_autocast")


def of_operator(target: Any) -> Function | None:
    """Returns what takes the importer and the operator's arguments; None if nothing does."""
    name = name_of(target)
    if not name.startswith("aten."):
        return None
    name = name.removeprefix("aten.")
    overloads = _OVERLOADS.get(name)
    if overloads is not None and target._overloadname not in overloads:
        return None
    return _OPERATORS.get(name.removesuffix("_"))


def arguments_of(target: Any, args: Any, kwargs: Any) -> list[Any]:
    """Returns all arguments in the schema's order, but those about memory and devices."""
    found = []
    for i, argument in enumerate(target._schema.arguments):
        if argument.name in ("layout", "device", "pin_memory", "memory_format"):
            continue
        found.append(args[i] if i < len(args) else kwargs.get(
            argument.name, argument.default_value))
    return found


def is_in_place(target: Any) -> bool:
    """Returns whether the operator changes its first operand."""
    schema = getattr(target, "_schema", None)
    return schema is not None and schema.is_mutable
