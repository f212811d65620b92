"""Declares a model's tensors as inputs and parameters of a program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from convgrad.programs import Program
from convgrad.torch.networks.exporting import Exported
from convgrad.torch.networks.operators.known import Known
from convgrad.torch.networks.operators.memories import Memories
from convgrad.torch.networks.operators.values import Importer, Value

# Steps that keep positive numbers positive.
_MEANS = ("avg_pool", "adaptive_avg_pool", "mean", "flatten", "reshape", "permute")
# The server's float32 has no smaller numbers without a loss.
_LEAST = torch.finfo(torch.float32).tiny


class Declared(Importer):
    """Has the program and its values for a model's tensors. Owned by one thread."""

    def __init__(self, model: Any, exported: Exported) -> None:
        self._memories = Memories()
        self._kept: dict[int, Value] = {}
        self.constants: dict[str, torch.Tensor] = {}
        """Parameters of the program that the model doesn't have."""
        self._constants: dict[str, Value] = {}
        self.program = Program()
        self._values = {
            name: Value(self.program.input(name), self._memories.new(), kind="an input")
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
                      shape=tuple(tensor.shape), dtype=tensor.dtype)
        self._kept[found.memory] = found
        return found

    def constant(self, tensor: torch.Tensor) -> Value:
        name = Known(tensor).name
        if name not in self.constants:
            self.constants[name] = tensor.clone()
            self._constants[name] = self._declare(name, tensor)
        return self._constants[name]

    def is_ones(self, value: Value) -> bool:
        return value.name in self.constants and bool((self.constants[value.name] == 1).all())

    def is_positive(self, value: Value) -> bool:
        """Returns whether the value is a clamp to more than 0, or powers or means of one."""
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

    def apart(self, value: Value) -> Value:
        return self._memories.apart(self, value)
