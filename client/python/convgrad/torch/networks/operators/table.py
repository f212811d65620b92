"""Which function adds the steps of each of ATen's operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from convgrad.torch.networks.operators import (
    composed,
    elements,
    layers,
    losses,
    masks,
    moves,
    noise,
    places,
    recurrent,
    resizing,
    sums,
    tokens,
    views,
    writes,
)

# Some of which PyTorch 1.13 lacks, by which types are checked.
_TORCH: Any = torch
Function = Callable[..., Any]


def _each(names: str, function: Function) -> dict[str, Function]:
    return dict.fromkeys(names.split(), function)


_RESIZINGS: dict[str, Function] = {
    **{f"upsample_{mode}{axes}d": resizing.upsample(mode) for mode, axes in (
        ("nearest", 1), ("nearest", 2), ("nearest", 3), ("linear", 1), ("bilinear", 2),
        ("trilinear", 3), ("bicubic", 2))},
    **{name: resizing.by_matrices(name) for name in (
        "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")},
    **{f"_upsample_nearest_exact{axes}d": resizing.nearest_exact(axes) for axes in (1, 2, 3)},
}
_LAYERS: dict[str, Function] = {
    **{f"{name}{axes}d": getattr(layers, name) for axes in (1, 2, 3) for name in (
        "conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_avg_pool",
        "adaptive_max_pool")},
    **_RESIZINGS,
    "max": layers.of_two_or("maximum", layers.max_along),
    "min": layers.of_two_or("minimum", layers.min_along),
    "batch_norm": layers.batch_norm, "pad": moves.pad, "dropout": layers.dropout,
    "feature_dropout": noise.feature_dropout,
    "clone": layers.copied, **_each("alias contiguous", layers.same),
    **_each("to type_as", layers.typed),
}
_ELEMENTS: dict[str, Function] = {
    **{name: elements.pointwise(name) for name in (
        "relu", "relu6", "sigmoid", "silu", "tanh", "mish", "hardsigmoid", "hardswish", "neg",
        "abs", "exp", "log", "sin", "cos", "sqrt", "rsqrt", "reciprocal")},
    "leaky_relu": elements.with_numbers("leaky_relu", "negative_slope"),
    "softplus": elements.with_numbers("softplus", "beta", "threshold"),
    "exp2": elements.exp2, "log2": elements.log_to(2), "log10": elements.log_to(10),
    "elu": elements.elu, "gelu": elements.gelu, "hardtanh": elements.hardtanh,
    "glu": elements.glu, "log_sigmoid": elements.log_sigmoid, "selu": elements.selu,
    **_each("clamp clamp_min", masks.clamp), "clamp_max": masks.clamp_max,
    **_each("pow square", elements.power), "prelu": elements.prelu,
    "add": elements.add, "mul": elements.mul, "rsub": elements.rsub,
    **_each("sub subtract", elements.sub), **_each("div divide true_divide", elements.div),
    **{name: elements.two(name) for name in ("maximum", "minimum")},
    "addcmul": elements.plus("mul"), "addcdiv": elements.plus("div"), "lerp": composed.lerp,
    **_each("empty new_empty empty_like", noise.empty), "bernoulli": noise.bernoulli,
    "rand": noise.uniform, "floor": noise.floored,
}
_SUMS: dict[str, Function] = {
    **{name: sums.reduced(name) for name in ("mean", "sum", "amax")},
    "amin": sums.amin, **_each("linalg_vector_norm norm", sums.norm),
    "linalg_norm": sums.linalg_norm,
    "var": sums.var, "std": sums.std,
    "var_mean": sums.with_mean(sums.var), "std_mean": sums.with_mean(sums.std),
}
_VIEWS: dict[str, Function] = {
    **_each("cat concat", moves.concat),
    **_each("flatten unflatten view view_as _unsafe_view reshape reshape_as squeeze "
            "unsqueeze",
            views.view),
    **_each("split split_with_sizes", views.split),
    **_each("transpose swapaxes swapdims", views.transpose),
    **_each("t numpy_T", moves.transposed), "mT": moves.matrices_transposed,
    **_each("movedim moveaxis", moves.moved), "narrow": moves.narrow, "flip": moves.flip,
    "channel_shuffle": moves.channel_shuffle,
    **_each("expand expand_as", views.expand),
    "permute": views.permute, "slice": views.slice_of, "select": views.select,
    "unbind": views.unbind, "chunk": views.chunk, "stack": moves.stack, "roll": moves.roll,
    "pixel_shuffle": moves.pixel_shuffle, "pixel_unshuffle": moves.pixel_unshuffle,
    "tensor_split": views.tensor_split, "repeat_interleave": moves.repeat_interleave,
    **_each("repeat tile", moves.repeat), "unfold": moves.unfold,
    "im2col": moves.im2col, "col2im": moves.col2im, "index": places.index,
    "gather": places.gather, "diagonal": places.diagonal,
    "diag": places.diagonal_matrix, "triu": places.triangle(torch.triu),
    "tril": places.triangle(torch.tril),
    "index_select": moves.index_select, "embedding": moves.embedding,
    "detach": elements.detach,
}
_WRITES: dict[str, Function] = {
    "copy": writes.copy, "fill": writes.fill, "where": masks.where,
    "masked_fill": masks.masked_fill, "new_full": writes.full(2),
    **_each("full full_like", writes.full(1)),
    **_each("zero zeros new_zeros zeros_like", writes.full_of(0.0)),
    **_each("ones new_ones ones_like", writes.full_of(1.0)),
}
_MASKS: dict[str, Function] = {
    **{name: masks.compare(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"{kind}_{name}": masks.logical(name) for kind in ("logical", "bitwise")
       for name in ("and", "or", "xor")},
    **{f"__{name}__": masks.logical(name) for name in ("and", "or", "xor")},
    **_each("logical_not bitwise_not", masks.negation), "any": masks.any_of,
    "all": masks.all_true, "sign": masks.sign,
    "isnan": masks.is_nan, "isinf": masks.is_infinite, "nan_to_num": masks.nan_to_num,
}
_TOKENS: dict[str, Function] = {
    "linear": tokens.linear, "layer_norm": tokens.layer_norm, "rms_norm": tokens.rms_norm,
    "group_norm": tokens.group_norm, "instance_norm": tokens.instance_norm,
    "scaled_dot_product_attention": tokens.attention, "einsum": tokens.einsum,
    **_each("matmul mm bmm mv dot", tokens.product), **_each("addmm baddbmm", tokens.addmm),
    **{name: tokens.softmax(name) for name in ("softmax", "log_softmax")},
}
_LOSSES: dict[str, Function] = {
    "cross_entropy_loss": losses.cross_entropy, "mse_loss": losses.of_elements("mse"),
    "l1_loss": losses.of_elements("l1"), "huber_loss": losses.huber,
    **_each("nll_loss nll_loss_nd nll_loss2d", losses.nll), "kl_div": losses.kl_div,
    "smooth_l1_loss": losses.of_elements("smooth_l1", "beta"),
    "binary_cross_entropy_with_logits": losses.binary_cross_entropy_with_logits,
    "binary_cross_entropy": losses.binary_cross_entropy,
}
_COMPOSED: dict[str, Function] = {
    **{name: getattr(composed, name) for name in (
        "logsumexp", "cosine_similarity", "pairwise_distance", "triplet_margin_loss", "celu",
        "softshrink", "hardshrink", "threshold", "bilinear", "cdist", "outer")},
    "_weight_norm": composed.weight_norm,
    "cumsum": composed.accumulated("add", 0.0), "cumprod": composed.accumulated("mul", 1.0),
    **{name: recurrent.layers(name) for name in recurrent.STEPS},
    **{f"{name}_cell": recurrent.cell(name) for name in recurrent.STEPS},
}
_OPERATORS = {**_LAYERS, **_ELEMENTS, **_SUMS, **_VIEWS, **_WRITES, **_MASKS,
              **_TOKENS, **_LOSSES, **_COMPOSED}
# By overload, where others take other arguments.
_OVERLOADS: dict[str, tuple[str, ...]] = {
    name: tuple(overloads.split()) for overloads, names in {
        "": "detach_",
        "Scalar": "pow_",
        "Scalar Tensor": "masked_fill masked_fill_ div div_ divide divide_ fill fill_ lerp "
                         "lerp_",
        "ScalarOpt_dim": "norm",
        "Tensor": "index",
        "Tensor sizes": "split",
        "Tensor_Scalar Tensor_Tensor": "pow",
        "correction dim": "var std var_mean std_mean",
        "default": "linalg_vector_norm linalg_norm index_select embedding addmm baddbmm narrow "
                   "view",
        "default dim": "mean",
        "default dim dims": "squeeze",
        "default dim_IntList": "sum",
        "dim other default": "max min",
        "dtype device dtype_layout": "to",
        "float": "bernoulli_",
        "input": " ".join(recurrent.STEPS),
        "int": "softmax log_softmax select unbind transpose unflatten",
        "p": "bernoulli",
        "sections indices": "tensor_split",
        "self ScalarSelf ScalarOther Scalar": "where",
        "self_int": "repeat_interleave",
        "vec": " ".join(_RESIZINGS),
    }.items() for name in names.split()}


_OF_NOISE = frozenset(("add", "mul", "div", "divide", "true_divide", "floor", "bernoulli"))
# Where torch returns its operand itself, or perhaps a view of it, without saying so.
_SAME = frozenset(("dropout", "feature_dropout"))
_PERHAPS_VIEWS = frozenset(("reshape", "flatten", "contiguous", "alias", "to", "type_as",
                            "reshape_as", "_unsafe_view"))


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
        "aten.batch_norm", "wrap_with_autocast", "wrap_with_set_grad_enabled",
        "_set_grad_enabled")


def of_operator(target: Any) -> Function | None:
    """Returns what takes the importer and the operator's arguments; None if nothing does."""
    name = name_of(target)
    if not name.startswith("aten."):
        return None
    name = name.removeprefix("aten.")
    overloads = _OVERLOADS.get(name)
    if overloads is not None and target._overloadname not in overloads:
        return None
    return _OPERATORS.get(name) or _OPERATORS.get(name.removesuffix("_"))


def takes_noise(target: Any) -> bool:
    """Returns whether the operator's function takes random numbers of the server's."""
    return name_of(target).removeprefix("aten.").removesuffix("_") in _OF_NOISE


def arguments_of(target: Any, args: Any, kwargs: Any) -> list[Any]:
    """Returns all arguments in the schema's order, but those about memory and devices."""
    found = []
    for i, argument in enumerate(target._schema.arguments):
        if argument.name in ("layout", "device", "pin_memory", "memory_format"):
            continue
        found.append(args[i] if i < len(args) else kwargs.get(
            argument.name, argument.default_value))
    return found


def place_of_result(target: Any) -> str:
    """Returns where torch has the result: "a view" of the first operand, "the same", "apart",
    or "perhaps apart", if the operand's layout decides."""
    name = name_of(target).removeprefix("aten.")
    if name in _SAME:
        return "the same"
    if name in _PERHAPS_VIEWS:
        return "perhaps apart"
    schema = getattr(target, "_schema", None)
    is_view = schema is None or any(one.alias_info for one in schema.returns)
    return "a view" if is_view else "apart"


def changes_shape(target: Any) -> bool:
    """Returns whether the operator changes its first operand's shape, but no element."""
    return _TORCH.Tag.inplace_view in getattr(target, "tags", ())


def is_in_place(target: Any) -> bool:
    """Returns whether the operator changes its first operand."""
    schema = getattr(target, "_schema", None)
    return schema is not None and schema.is_mutable
