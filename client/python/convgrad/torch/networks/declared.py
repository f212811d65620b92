"""Declares a model's tensors as inputs and parameters of a program."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from convgrad.errors import Unimplemented
from convgrad.importers.steps import WITHOUT_GRADIENT
from convgrad.programs import Program
from convgrad.torch.networks.forwards.exporting import Exported
from convgrad.torch.networks.operators import elements, table, tokens, views
from convgrad.torch.networks.operators.given import Calls, Given, Prelude, base_of
from convgrad.torch.networks.operators.known import Known, all_of, as_numbers
from convgrad.torch.networks.operators.memories import Memories
from convgrad.torch.networks.operators.values import (
    INDICES,
    Importer,
    Noise,
    Value,
    plain,
)

# Steps that keep positive numbers positive.
_MEANS = ("avg_pool", "adaptive_avg_pool", "mean", "flatten", "reshape", "permute")
# The least number that float32 has with all of its bits.
_LEAST = torch.finfo(torch.float32).tiny


class Declared(Importer):
    """Has the program and its values for a model's tensors. Owned by one thread."""

    # Functions that the operators of Value, such as +, call.
    of_each, binary = elements.of_each, elements.binary
    reshaped, permuted, expanded = views.reshaped, views.permute, views.expanded
    value, product = views.as_value, tokens.product

    def __init__(self, model: Any, exported: Exported) -> None:
        self._own = weakref.proxy(self)  # values' importer
        self._exported = exported
        self._node: Any = None
        self._env: dict[torch.fx.Node, Any] = {}
        self._given: dict[str, Given] = {}
        self._sent: set[torch.fx.Node] = set()  # bases of tensors that the client computes
        self._memories = Memories()
        self._kept: dict[int, Value] = {}
        self.constants: dict[str, torch.Tensor] = {}
        """Parameters of the program that the model doesn't have."""
        self._constants: dict[str, Value] = {}
        self.program = Program()
        self._values = {
            name: Value(self.program.input(name), self._memories.new(), kind="an input",
                        to=self._own)
            for name in exported.inputs.values()}
        self._with_gradient = set(self._values)
        # By the tensor's id; a tied parameter has the first of its names.
        by_tensor = {
            id(tensor): self._declare(name, tensor)
            for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        self._parameters = {
            name: by_tensor[id(tensor)] for name, tensor in (
                *model.named_parameters(remove_duplicate=False),
                *model.named_buffers(remove_duplicate=False))}

    def _declare(self, name: str, tensor: torch.Tensor) -> Value:
        self.program.parameter(
            name, tuple(tensor.shape), fixed=not tensor.requires_grad,
            dtype="i64" if tensor.dtype == torch.int64 else "f32")
        if tensor.requires_grad:
            self._with_gradient.add(name)
        found = Value(name, self._memories.new(), kind="a parameter",
                      shape=tuple(tensor.shape), dtype=tensor.dtype, to=self._own)
        self._kept[found.memory] = found
        return found

    def constant(self, tensor: torch.Tensor) -> Value:
        name = Known(tensor).name
        if name not in self.constants:
            self.constants[name] = tensor.clone()
            self._constants[name] = self._declare(name, tensor)
        return self._constants[name]

    def constant_of(self, known: Known) -> Value:
        """Returns a fixed parameter for a tensor that the call under way takes."""
        tensor = as_numbers(self._node.target, known.tensor)
        if tensor.dtype not in (torch.float32, torch.int64):
            raise self.refuse(known, "torch.float32")
        found = self.constant(tensor)
        return replace(found, dtype=torch.bool) if known.tensor.dtype == torch.bool else found

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(map(plain, self._node.meta["val"].shape))

    @property
    def dtype(self) -> Any:
        return getattr(self._node.meta.get("val"), "dtype", None)

    def like(self, extent: Any) -> Value:
        for value in self._env.values():
            if isinstance(value, Value) and value.kind != "a parameter" and (
                    value.dtype not in INDICES and value.shape[:1] == (extent,)):
                return value
        raise self.refuse(f"a tensor with {extent} as its first extent", "a value's batch")

    @property
    def prelude(self) -> Prelude:
        """What the client computes for the inputs that the program has."""
        names = {one.name for one in self.program.message.inputs}
        return Prelude(self._exported.inputs, self._exported.constants, {
            name: one for name, one in self._given.items() if name in names})

    @functools.cached_property
    def _calls(self) -> Calls:
        exported = self._exported
        return Calls(exported.nodes[0].graph, exported.inputs, exported.constants)

    def given(self, node: torch.fx.Node, then: Callable[..., torch.Tensor] | None = None
              ) -> Any:
        """Returns inputs in place of the node's results, which the client computes and sends,
        as they are at the call under way. None if they don't follow from inputs alone."""
        until, graph = self._node, self._exported.nodes[0].graph
        calls = self._calls.leading_to(node, until) if not self._exported.change and (
            node.graph is until.graph is graph) else None
        drawn = [self._env[one] for one in calls or () if isinstance(self._env.get(one), Noise)]
        if calls is None or any(isinstance(one, Value) for it in drawn for one in it.users):
            return None
        for one in drawn:
            one.users.append(node)
        results = node.meta["val"]
        self._sent.add(base_of(node))

        def declared(result: torch.Tensor, part: int | None) -> Value:
            name = self.program.free_name(node.name if part is None else f"{node.name}_{part}")
            self._given[self.program.input(name)] = Given(node, part, then, until, calls)
            return Value(name, self._memories.new(), kind="an input",
                         shape=tuple(map(plain, result.shape)), dtype=result.dtype,
                         time=self._memories.time, to=self._own)

        if isinstance(results, torch.Tensor):
            return declared(results, None)
        return [declared(one, i) for i, one in enumerate(results)]

    def given_instead(self, node: torch.fx.Node) -> Any:
        """Returns given() of a call. If the call changes a tensor in place, all tensors in the
        same memory become inputs."""
        if not table.is_in_place(node.target):
            return self.given(node)
        base = base_of(node)
        sent = {one: self.given(one) for one in (*self._env, node) if base_of(one) is base}
        if any(one is None for one in sent.values()):
            return None
        self._env.update(sent)
        return sent[node]

    def sent(self, value: Value, then: Callable[..., torch.Tensor]) -> Value | None:
        for node in self._node.all_input_nodes:
            found = self._env.get(node)
            if isinstance(found, Known):
                found = self._constants.get(found.name)
            if found is value:
                return self.given(node, then)
        return None

    def is_range(self, value: Any, extent: Any) -> bool:
        if isinstance(value, Known):
            own = value.tensor
            return own.dtype == torch.int64 and own.dim() == 1 and own.tolist() == list(
                range(len(own))) and len(own) == extent
        one = self._given.get(value.name) if isinstance(value, Value) else None
        return one is not None and str(one.node.target) == "aten.arange.default" and (
            value.shape == (extent,))

    @property
    def is_returned(self) -> bool:
        return all(user.op == "output" for user in self._node.users)

    def is_ones(self, value: Value) -> bool:
        return value.name in self.constants and bool((self.constants[value.name] == 1).all())

    def is_positive(self, value: Value) -> bool:
        steps, name = {step.result: step for step in self.program.message.steps}, value.name
        while name in steps:
            step = steps[name]
            if step.operator == "clamp":
                return any(one.name == "min" for one in step.attributes) and all(
                    one.number >= _LEAST for one in step.attributes)
            if step.operator == "exp":  # others than powers may give 0
                for operator in ("mul", "log"):
                    step = steps.get(step.operands[0], step)
                    if step.operator != operator:
                        return False
            elif step.operator not in _MEANS or any(
                    one.name == "divisor_override" for one in step.attributes):
                return False
            name = step.operands[0]
        return False

    def indices(self, value: Value) -> Value:
        if value.kind != "an input":
            return value
        for entry in self.program.message.inputs:
            entry.is_index |= entry.name == value.name
        return replace(value, kind="a parameter")

    def has_gradient(self, value: Value) -> bool:
        return value.name in self._with_gradient

    def passes_gradient(self, operator: str, *operands: Any) -> bool:
        """Returns whether a backward may give a step's result a gradient that it passes on."""
        return operator not in WITHOUT_GRADIENT and any(
            one is not None and self.has_gradient(one) for one in operands)

    def filled(self, argument: Any) -> Any:
        """Returns zeros in place of a tensor that torch.empty made, because a forward doesn't
        depend on its elements. Returns other arguments unchanged."""
        if not isinstance(argument, Noise) or not argument.is_empty or (
                table.is_random(self._node.target)):
            return argument
        found = self.apart(all_of(self, argument.shape, 0.0))
        self._env.update(dict.fromkeys(
            [node for node, one in self._env.items() if one is argument], found))
        return found

    def apart(self, value: Value) -> Value:
        return self._memories.apart(self, value)

    def changed(self, parameter: Value) -> Unimplemented:
        return self.refuse(f"'{parameter.name.rpartition('.')[2]}', which its forward changes",
                           "a forward that changes running statistics of BatchNorm alone")
