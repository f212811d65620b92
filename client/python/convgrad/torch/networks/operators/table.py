"""Lists the function that adds the steps of each of ATen's operators."""

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
)

# Untyped, because types are checked with PyTorch 1.13, which lacks some of its functions.
_TORCH: Any = torch
Function = Callable[..., Any]


def _each(names: str, function: Function) -> dict[str, Function]:
    return dict.fromkeys(names.split(), function)


def _own(module: Any, names: str) -> dict[str, Function]:
    """Returns the module's functions with these names, which are their operators'."""
    return {name: getattr(module, name) for name in names.split()}


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
    **_RESIZINGS, **_own(layers, "batch_norm dropout"),
    "max": layers.of_two_or("maximum", layers.max_along),
    "min": layers.of_two_or("minimum", layers.min_along),
    "pad": moves.pad, "feature_dropout": noise.feature_dropout,
    "clone": layers.copied, **_each("alias contiguous", layers.same),
    **_each("to type_as", layers.typed),
}
_ELEMENTS: dict[str, Function] = {
    **{name: elements.pointwise(name) for name in (
        "relu", "relu6", "sigmoid", "silu", "tanh", "mish", "hardsigmoid", "hardswish", "neg",
        "abs", "exp", "log", "sin", "cos", "sqrt", "rsqrt", "reciprocal")},
    **_own(elements, "exp2 elu hardtanh glu log_sigmoid prelu add mul rsub"),
    "gelu": elements.pointwise("gelu", "approximate"),
    "leaky_relu": elements.pointwise("leaky_relu", "negative_slope"),
    "softplus": elements.pointwise("softplus", "beta", "threshold"),
    "log2": elements.log_to(2), "log10": elements.log_to(10),
    **_each("clamp clamp_min", masks.clamp), "clamp_max": masks.clamp_max,
    **_each("pow square", elements.power),
    **_each("sub subtract", elements.sub), **_each("div divide true_divide", elements.div),
    **{name: elements.two(name) for name in ("maximum", "minimum")},
    "addcmul": elements.plus("mul"), "addcdiv": elements.plus("div"), "lerp": composed.lerp,
    **_each("empty new_empty empty_like", noise.empty), "bernoulli": noise.bernoulli,
    "rand": noise.uniform, "floor": noise.floored,
}
_SUMS: dict[str, Function] = {
    **{name: sums.reduced(name) for name in ("mean", "sum", "amax")},
    **_own(sums, "amin linalg_norm var std"), **_each("linalg_vector_norm norm", sums.norm),
    "var_mean": sums.with_mean(sums.var), "std_mean": sums.with_mean(sums.std),
}
_VIEWS: dict[str, Function] = {
    **_own(moves, "channel_shuffle col2im embedding flip im2col index_select narrow "
                  "pixel_shuffle pixel_unshuffle roll stack unfold"),
    **_own(views, "chunk permute select unbind"), **_own(places, "diagonal gather index"),
    **_each("flatten unflatten view view_as _unsafe_view reshape reshape_as squeeze "
            "unsqueeze", views.view),
    **_each("split split_with_sizes", views.split),
    **_each("transpose swapaxes swapdims", views.transpose),
    **_each("t numpy_T", moves.transposed), "mT": moves.matrices_transposed,
    **_each("cat concat", moves.concat), **_each("movedim moveaxis", moves.moved),
    **_each("expand expand_as", views.expand), **_each("repeat tile", moves.repeat),
    "slice": views.slice_of, "diag": places.diagonal_matrix, "detach": elements.detach,
    "triu": places.triangle(torch.triu), "tril": places.triangle(torch.tril),
}
_WRITES: dict[str, Function] = {
    **_own(masks, "copy fill where masked_fill index_put"),
    **_each("full full_like", masks.full(1)), "new_full": masks.full(2),
    **_each("zero zeros new_zeros zeros_like", masks.full_of(0.0)),
    **_each("ones new_ones ones_like", masks.full_of(1.0)),
}
_MASKS: dict[str, Function] = {
    **{name: masks.compare(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"{kind}{name}{end}": masks.logical(name) for name in ("and", "or", "xor")
       for kind, end in (("logical_", ""), ("bitwise_", ""), ("__", "__"))},
    **_each("logical_not bitwise_not", masks.negation), **_own(masks, "sign nan_to_num"),
    "any": masks.any_of, "all": masks.all_true, "isnan": masks.is_nan,
    "isinf": masks.is_infinite,
}
_TOKENS: dict[str, Function] = {
    **_own(tokens, "linear layer_norm rms_norm group_norm instance_norm einsum"),
    "scaled_dot_product_attention": tokens.attention,
    **_each("matmul mm bmm mv dot", tokens.product), **_each("addmm baddbmm", tokens.addmm),
    **{name: tokens.softmax(name) for name in ("softmax", "log_softmax")},
}
_LOSSES: dict[str, Function] = {
    **_own(losses, "kl_div binary_cross_entropy_with_logits binary_cross_entropy"),
    "cross_entropy_loss": losses.cross_entropy, "mse_loss": losses.of_elements("mse"),
    "l1_loss": losses.of_elements("l1"), "huber_loss": losses.huber,
    **_each("nll_loss nll_loss_nd nll_loss2d", losses.nll),
    "smooth_l1_loss": losses.of_elements("smooth_l1", "beta"),
}
_COMPOSED: dict[str, Function] = {
    **_own(composed, "logsumexp cosine_similarity pairwise_distance triplet_margin_loss celu "
                     "softshrink hardshrink threshold bilinear cdist"),
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
        "self ScalarSelf ScalarOther Scalar": "where",
        "vec": " ".join(_RESIZINGS),
    }.items() for name in names.split()}


_OF_NOISE = frozenset(("add", "mul", "div", "divide", "true_divide", "floor", "bernoulli"))
# Operators that may return the operand itself, or a view of it. Their schemas don't say so.
_SAME = frozenset(("dropout", "feature_dropout"))
_PERHAPS_VIEWS = frozenset(("reshape", "flatten", "contiguous", "alias", "to", "type_as",
                            "reshape_as", "ravel", "_unsafe_view"))


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
