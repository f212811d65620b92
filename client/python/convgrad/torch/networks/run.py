"""Runs a remote network, and adds a node to torch's graph whose backward the server computes.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from convgrad import layouts
from convgrad.client_base import ClientBase
from convgrad.errors import bad_reply, invalid, unimplemented
from convgrad.networks import Run, gradient_name
from convgrad.shapes import padded
from convgrad.torch.layers.functional import autocast_dtype
from convgrad.torch.networks.importing import Variant
from convgrad.torch.networks.state import RemoteState
from convgrad.torch.tensors import to_array, to_tensor
from convgrad.tracebacks import short_traceback

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}

_TORCH: Any = torch
Tensor = torch.Tensor


@dataclass(frozen=True)
class Forward:
    """A forward that can be sent."""

    network: RemoteState
    variant: Variant
    inputs: dict[str, Tensor]
    compute_dtype: str

    def outputs(self) -> tuple[Tensor, ...]:
        """Runs the program and returns its outputs, which require gradients as in torch."""
        trains = bool(self.variant.trainable)
        if not torch.is_grad_enabled() or all(self.are_constant()):
            return self.run("")
        # A view has a graph node, which tells the backward whether torch wants gradients of
        # parameters.
        leaf = torch.empty(0, requires_grad=trains)
        outputs: tuple[Tensor, ...] = _Differentiable.apply(
            self, leaf.view_as(leaf), *self.inputs.values())
        nodes: set[Any] = {y.grad_fn for y in outputs} - {None}
        for node in nodes:
            node.outputs = [weakref.ref(y) for y in outputs]
        return outputs

    def are_constant(self) -> list[bool]:
        """Returns, for each output, whether it depends on nothing that requires a gradient."""
        wanted = {name for name, x in self.inputs.items() if x.requires_grad}
        wanted.update(self.variant.trainable)
        return [wanted.isdisjoint(sources) for sources in self.variant.sources.values()]

    def run(self, tape: str) -> tuple[Tensor, ...]:
        network = self.network
        network.tapes.drop_dead()
        network.draw_seed(self.variant)
        with self.variant.naming_steps():
            run = network.pipeline.call(
                network.session.run, self.variant.name,
                inputs_of(self.variant, self.inputs, self.compute_dtype,
                          network.session.client), tape=tape,
                compute_dtype=self.compute_dtype,
                change=self.variant.program.is_training,
                fast=network.fast, recompute=network.recompute,
                averaged=network.reads_averages)
        like = next(iter(self.inputs.values()), torch.empty(0))
        return tuple(taken(run, name, like) for name in self.variant.sources)


class _Differentiable(torch.autograd.Function):
    """Takes the run, a token that stands for all parameters, and the input tensors."""

    @staticmethod
    def forward(ctx: Any, call: Forward, token: Tensor,
                *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.network, ctx.variant = call.network, call.variant
        tape = call.network.tapes.new_name()
        token = call.network.tapes.token(tape, call.variant)
        ctx.inputs = [(name, x.dtype, x.device, x.shape) for name, x in call.inputs.items()]
        try:
            outputs = call.run(tape)
        except BaseException:  # Ctrl-C, too; the traceback would keep the token
            del token
            raise
        ctx.mark_non_differentiable(
            *(y for y, is_constant in zip(outputs, call.are_constant()) if is_constant))
        # torch frees saved tensors when no backward can follow; that drops the tape.
        ctx.save_for_backward(token)
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    @short_traceback
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise unimplemented("create_graph", "derivatives of a remote network's gradients",
                                "create_graph=False, or convgrad.torch.offload")
        # If an earlier backward freed the graph, this raises torch's error.
        (token,) = ctx.saved_tensors
        network: RemoteState = ctx.network
        variant: Variant = ctx.variant
        tape = network.tapes.find(token, variant)
        given = {name: gradient.float() for name, gradient in zip(
            variant.sources, gradients) if gradient is not None}
        _check_watched(ctx, given)
        sources = variant.sources_of(given)
        wanted = [name for (name, *_), needs in zip(ctx.inputs, ctx.needs_input_grad[2:])
                  if needs and name in sources]
        parameters: list[str] = []
        if ctx.needs_input_grad[1] and _TORCH._C._will_engine_execute_node(
                ctx.next_functions[0][0]):
            parameters = _trained(network, variant, sources)
        found: list[Tensor | None] = [None] * len(ctx.inputs)
        if wanted or parameters:
            run = network.run_backward(tape, arrays_of(given), wanted, parameters,
                                       set(variant.trainable).difference(parameters))
            for i, (name, dtype, device, shape) in enumerate(ctx.inputs):
                if run is not None and name in wanted:
                    like = torch.empty(0, device=device)
                    found[i] = taken(run, gradient_name(name), like).to(dtype).reshape(shape)
        return None, None, *found


def _check_watched(ctx: Any, given: Mapping[str, Tensor]) -> None:
    """Raises Unimplemented if a hook or retain_grad() would see the gradient of an output
    without what reaches it by way of another output, which the server adds."""
    for name, reference in zip(ctx.variant.sources, getattr(ctx, "outputs", ())):
        y = reference()
        if y is not None and y.grad_fn is ctx and (y.retains_grad or y._backward_hooks) and (
                name in ctx.variant.sources_of(given.keys() - {name})):
            raise unimplemented(
                f"outputs.{name}", "a hook or retain_grad() of an output from which the model "
                "computes another one", "a model that ends with it, before a head of your own")


def _trained(network: RemoteState, variant: Variant, sources: set[str]) -> list[str]:
    """Returns the parameters among the sources whose gradients torch would add now."""
    trained, frozen = list[str](), list[str]()
    for name in variant.trainable:
        if name in sources:
            parameter = network.parameter(name)
            is_trained = parameter is not None and parameter.requires_grad
            (trained if is_trained else frozen).append(name)
    # The server adds the gradients of all parameters or of none. run_backward() drops the
    # gradients of frozen parameters, unless they were added to existing ones.
    changed = [name for name in frozen
               if trained and name in network.kept_gradients.names()]
    if changed:
        raise unimplemented(
            f"parameters.{changed[0]}.requires_grad",
            "False since the forward, beside others that get gradients, and a gradient",
            "requires_grad_(False) before the forward, or zero_grad() before the backward")
    return trained


def compute_dtype_of(inputs: Mapping[str, Tensor], default: torch.dtype) -> str:
    """Returns the dtype of activations: autocast's if it is on, otherwise `default`."""
    dtype = next((autocast_dtype(tensor) for tensor in inputs.values()), None)
    if dtype is not None and dtype not in DTYPES:
        raise invalid("DTYPE_MISMATCH", "autocast", dtype, "torch.bfloat16")
    return DTYPES[dtype or default]


def inputs_of(variant: Variant, tensors: Mapping[str, Tensor], compute_dtype: str,
              client: ClientBase) -> dict[str, Any]:
    """Returns the model's inputs as those of a run. In bf16, a convolution rounds its images
    first. Rounding them here gives the same bits and halves the bytes that are sent. NumPy does
    it, because PyTorch's threads may spin after a loop, on the cores of a server on this host.

    Errors: InvalidArgument for integers that bf16 doesn't have, if it computes in bf16.
    """
    arrays = {name: _input_of(name, array, name in variant.indices, compute_dtype)
              for name, array in arrays_of(tensors).items()}
    if compute_dtype == "bf16":
        for name in variant.images & tensors.keys():
            array, x = arrays[name], tensors[name]
            if x.dtype == torch.float32 and not (x.requires_grad or client.shares(array)):
                arrays[name] = array.astype(layouts.DTYPES["bf16"])
    return arrays


def _input_of(name: str, array: np.ndarray[Any, Any], is_index: bool,
              compute_dtype: str) -> np.ndarray[Any, Any]:
    """Returns an input in a shape and dtype of programs. Converts integers to float32, as the
    forward does: no step takes them otherwise."""
    if is_index:
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    if array.dtype.kind == "i" or array.dtype.itemsize > 2 and array.dtype.kind == "u":
        integers, array = array, array.astype(np.float32)
        rounded = array.astype(layouts.DTYPES[compute_dtype]).astype(np.float32)
        wrong = np.flatnonzero(rounded != array)
        if len(wrong):
            raise invalid("OUT_OF_RANGE", f"inputs.{name}", integers.flat[wrong[0]],
                          f"integers that {compute_dtype} has, or float32 as compute dtype")
    return array.reshape(padded(array.shape))


def arrays_of(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: to_array(tensor) for name, tensor in tensors.items()}


def taken(run: Run, name: str, like: Tensor) -> Tensor:
    if name not in run.values:
        raise bad_reply(name, "nothing", "a tensor")
    return to_tensor(run.values[name], like)
