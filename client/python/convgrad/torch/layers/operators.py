"""Defines the two operators, convolution and its backward, and their derivatives.

Both are linear in each of their tensors, and a convolution's gradients are convolutions.
Therefore derivatives of any order, backward and forward, call these two operators.

For autograd and torch.func each operator is an autograd.Function. From PyTorch 2.4 on this
function calls a custom operator of torch.library, which torch.compile and torch.export don't
trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from convgrad.torch.layers import batching, kernels
from convgrad.torch.layers.layer import Layer, client_of

_TORCH: Any = torch  # untyped, because the types checked are PyTorch 1.13's
# From PyTorch 2.4 on.
_HAS_OPERATORS = hasattr(_TORCH.library, "custom_op")

Tensor = torch.Tensor
Tensors = tuple[Tensor | None, ...]

_SETTINGS = ("str client, str forward, bool transposed, int[] stride, int[] padding, "
             "int[] dilation, int[] output_padding, int groups")
_FORWARD_SCHEMA = (
    f"(Tensor input, Tensor weight, Tensor? bias, ScalarType dtype, {_SETTINGS}) -> Tensor")
_BACKWARD_SCHEMA = (
    "(Tensor grad_output, Tensor input, Tensor weight, ScalarType dtype, bool wants_input, "
    f"bool wants_weight, bool wants_bias, {_SETTINGS}) -> (Tensor, Tensor, Tensor)")


def convolution(*inputs: Any) -> Tensor:
    """Returns the output of kernels.run_forward; differentiable."""
    return _call(_Convolution, _convolution_operator, inputs)


def convolution_backward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of kernels.run_backward; differentiable."""
    return _call(_Backward, _backward_operator, inputs)


def _keep(ctx: Any, tensors: tuple[Tensor, ...], dtype: torch.dtype, layer: Layer) -> None:
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)
    ctx.set_materialize_grads(False)
    ctx.dtype = dtype
    # The server computes derivatives even if outputs are computed locally.
    ctx.layer = layer._replace(forward="remote")
    ctx.client = client_of(layer.client)  # must exist as long as the graph


def _keep_convolution(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    input, weight, bias, dtype, *settings = inputs
    _keep(ctx, (input, weight), dtype, Layer(*settings))
    ctx.bias_dtype = None if bias is None else bias.dtype


def _gradients_of_operands(ctx: Any, grad_output: Tensor | None) -> Tensors:
    gradients: list[Tensor | None] = [None] * (4 + len(ctx.layer))
    wanted = ctx.needs_input_grad[:3]
    if grad_output is not None and any(wanted):
        found = convolution_backward(grad_output, *ctx.saved_tensors, ctx.dtype, *wanted,
                                     *ctx.layer)
        gradients[:3] = (g if w else None for g, w in zip(found, wanted))
        if wanted[2]:
            gradients[2] = found[2].to(ctx.bias_dtype)
    return tuple(gradients)


def _tangent_of_output(ctx: Any, *tangents: Tensor | None) -> Tensor | None:
    return _change_of_output(ctx, *ctx.saved_tensors, *tangents[:3])


def _change_of_output(ctx: Any, input: Tensor, weight: Tensor, to_input: Tensor | None,
                      to_weight: Tensor | None, to_bias: Tensor | None) -> Tensor | None:
    """Returns the change of the output if `to_*` are added to the operands."""
    settings, changes = (ctx.dtype, *ctx.layer), []
    if to_input is not None:
        changes.append(convolution(to_input, weight, to_bias, *settings))
    elif to_bias is not None:
        shape = ctx.layer.output_shape(input.shape, weight.shape)
        channels = to_bias.to(ctx.dtype).reshape(-1, *[1] * ctx.layer.rank)
        changes.append(channels.expand(shape))
    if to_weight is not None:
        changes.append(convolution(input, to_weight, None, *settings))
    return sum(changes[1:], changes[0]) if changes else None


def _keep_backward(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
    _keep(ctx, inputs[:3], inputs[3], Layer(*inputs[7:]))
    ctx.wanted = inputs[4:7]


def _gradients_of_gradients(ctx: Any, *cotangents: Tensor | None) -> Tensors:
    """`cotangents` belong to the gradients of input, weight and bias."""
    grad_output, input, weight = ctx.saved_tensors
    to_input, to_weight, to_bias = (
        c if wanted else None for c, wanted in zip(cotangents, ctx.wanted))
    gradients: list[Tensor | None] = [None] * (7 + len(ctx.layer))
    if ctx.needs_input_grad[0]:
        gradients[0] = _change_of_output(ctx, input, weight, to_input, to_weight, to_bias)
    wanted = (ctx.needs_input_grad[1] and to_weight is not None,
              ctx.needs_input_grad[2] and to_input is not None, False)
    if any(wanted):
        found = _run_backward(ctx, grad_output, to_input, to_weight, wanted)
        gradients[1:3] = (g if w else None for g, w in zip(found[:2], wanted))
    return tuple(gradients)


def _run_backward(ctx: Any, grad_output: Tensor, input: Tensor | None, weight: Tensor | None,
                  wanted: tuple[bool, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns gradients. A missing operand is replaced by the saved one, for its shape."""
    _, kept_input, kept_weight = ctx.saved_tensors
    return convolution_backward(
        grad_output, kept_input if input is None else input,
        kept_weight if weight is None else weight, ctx.dtype, *wanted, *ctx.layer)


def _tangents_of_gradients(ctx: Any, *tangents: Tensor | None) -> Tensors:
    to_grad_output, to_input, to_weight = tangents[:3]
    by_operands = (ctx.wanted[0] and to_weight is not None,
                   ctx.wanted[1] and to_input is not None, False)
    like = kernels.fake_backward(*ctx.saved_tensors, ctx.dtype, *ctx.wanted, *ctx.layer)
    found = [torch.zeros_like(gradient) for gradient in like]
    for grad_output, input, weight, wanted in (
            (to_grad_output, None, None, ctx.wanted),
            (ctx.saved_tensors[0], to_input, to_weight, by_operands)):
        if grad_output is not None and any(wanted):
            changes = _run_backward(ctx, grad_output, input, weight, wanted)
            found = [f + c if w else f for f, c, w in zip(found, changes, wanted)]
    return tuple(found)


def _make_function(operator: Callable[..., Any], keep: Any, **methods: Any) -> Any:
    """Returns the autograd.Function that computes `operator`."""

    def forward(*inputs: Any) -> Any:
        return operator(*inputs)

    def forward_and_keep(ctx: Any, *inputs: Any) -> Any:
        output = operator(*inputs)
        keep(ctx, inputs, output)
        return output

    if hasattr(torch.autograd.Function, "setup_context"):  # PyTorch 2
        methods |= {"forward": forward, "setup_context": keep}
    else:
        methods["forward"] = forward_and_keep
    return type("Function", (torch.autograd.Function,),
                {name: staticmethod(method) for name, method in methods.items()})


def _make_operator(name: str, schema: str, kernel: Any, fake: Any, **derivatives: Any) -> Any:
    """Returns the operator for PyTorch's graphs, or `kernel` if PyTorch supports none."""
    if not _HAS_OPERATORS:
        return kernel
    operator = _TORCH.library.custom_op(f"convgrad::{name}", kernel, mutates_args=(),
                                        schema=schema)
    operator.register_fake(fake)
    operator.register_autograd(derivatives["backward"], setup_context=derivatives["keep"])
    return operator


_CONVOLUTION_DERIVATIVES: dict[str, Any] = dict(
    keep=_keep_convolution, backward=_gradients_of_operands, jvp=_tangent_of_output,
    vmap=batching.map_convolution(convolution))
_BACKWARD_DERIVATIVES: dict[str, Any] = dict(
    keep=_keep_backward, backward=_gradients_of_gradients, jvp=_tangents_of_gradients,
    vmap=batching.map_backward(convolution_backward))
_convolution_operator = _make_operator(
    "convolution", _FORWARD_SCHEMA, kernels.run_forward, kernels.fake_forward,
    **_CONVOLUTION_DERIVATIVES)
_backward_operator = _make_operator(
    "convolution_backward", _BACKWARD_SCHEMA, kernels.run_backward, kernels.fake_backward,
    **_BACKWARD_DERIVATIVES)
_Convolution = _make_function(_convolution_operator, **_CONVOLUTION_DERIVATIVES)
_Backward = _make_function(_backward_operator, **_BACKWARD_DERIVATIVES)


def _call(function: Any, operator: Any, inputs: tuple[Any, ...]) -> Any:
    # The compiler needs only the operator, and uses its registered derivatives.
    if _HAS_OPERATORS and _TORCH.compiler.is_compiling():
        return operator(*inputs)
    return function.apply(*inputs)
