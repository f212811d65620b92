"""From a model's graph to a program.

The calls are followed in their order. A tensor is the program's value that it holds, and
the memory that torch would keep it in: what changes memory in place gives all tensors in
it another value.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx
from torch import nn
from torch.fx.node import map_aggregate

from convgrad.errors import Unimplemented
from convgrad.programs import Attribute, Program
from convgrad.torch.networks import operator_table
from convgrad.torch.networks.refusals import named, refuse
from convgrad.torch.networks.steps import Size, Value
from convgrad.torch.networks.tracing import line_of, module_path, place_of, trace


@dataclass(frozen=True)
class Output:
    """Stands for one of a program's outputs where a forward returns it."""

    index: int


def filled(structure: Any, outputs: Sequence[Any]) -> Any:
    """Returns what a forward returns, with outputs for what stands for them."""
    if isinstance(structure, Output):
        return outputs[structure.index]
    if isinstance(structure, dict):
        return {key: filled(value, outputs) for key, value in structure.items()}
    if not isinstance(structure, (tuple, list)):
        return structure
    items = [filled(value, outputs) for value in structure]
    if isinstance(structure, list):
        return items
    return type(structure)(*items) if hasattr(structure, "_fields") else tuple(items)


@dataclass(frozen=True)
class Imported:
    """A model's forward as a program, in the modes that the model's modules are in."""

    program: Program
    inputs: tuple[str, ...]
    """Those arguments that the outputs depend on."""
    outputs: Any
    """What the forward returns, with Output for each tensor."""
    trainable: tuple[str, ...]
    """Parameters whose gradients a backward gives."""
    sources: tuple[frozenset[str], ...]
    """For each output of the program, the inputs and parameters that it depends on."""
    places: Mapping[str, str]
    """By the step's name, the module and the line of a forward that it comes from."""


@dataclass(frozen=True)
class Loss:
    """A loss at a program's end: "cross_entropy" or "mse", with its attributes."""

    operator: str
    attributes: tuple[tuple[str, Attribute], ...] = ()


TARGET = "target"


def import_model(model: nn.Module, inputs: Sequence[str], constants: Mapping[str, Any],
                 loss: Loss | None = None) -> Imported:
    """Takes the model apart. With `loss` its result is the first output, and TARGET an input.

    Errors: Unimplemented naming module and operator.
    """
    importer = _Importer(model, inputs, constants)
    outputs = importer.follow(trace(model, constants))
    program = importer.program
    found: list[str] = []
    if loss is not None:
        if not isinstance(outputs, Value):
            raise refuse("forward", "several outputs",
                         f"one, for the server to compute {loss.operator} of")
        target = program.input(TARGET, is_index=loss.operator == "cross_entropy")
        found.append(program.step(loss.operator, outputs.name, target, name="loss",
                                  attributes=dict(loss.attributes)))

    def place(value: Any) -> Any:
        if isinstance(value, (Size, Stale)):
            raise refuse("forward", f"{value} among what it returns", "tensors")
        if not isinstance(value, Value):
            return value
        if value.kind != "a result":
            raise refuse("forward", f"{value.kind}, {value.name}, among what it returns",
                         "results of operators")
        if value.name not in found:
            found.append(value.name)
        return Output(found.index(value.name))

    structure = map_aggregate(outputs, place)
    program.output(*found)
    program.prune()
    message = program.message
    return Imported(program, tuple(entry.name for entry in message.inputs), structure,
                    tuple(p.name for p in message.parameters if not p.fixed),
                    _sources_of(message), importer.places)


def _sources_of(message: Any) -> tuple[frozenset[str], ...]:
    found = {entry.name: frozenset([entry.name])
             for entry in (*message.inputs, *message.parameters)}
    for step in message.steps:
        found[step.result] = frozenset().union(*(found[name] for name in step.operands if name))
    return tuple(found[name] for name in message.outputs)


@dataclass(frozen=True)
class Stale:
    """A view of memory that was changed in place by way of another one."""

    name: str


class _Importer:
    """One import. Owned by one thread."""

    def __init__(self, model: nn.Module, inputs: Sequence[str],
                 constants: Mapping[str, Any]) -> None:
        self._model = model
        self._constants = constants
        self._memory = itertools.count()
        self._branches = itertools.count(1)
        self._env: dict[torch.fx.Node, Any] = {}
        self._node: torch.fx.Node | None = None
        self.program = Program()
        self.places: dict[str, str] = {}
        self._values = {
            name: Value(self.program.input(name), next(self._memory), kind="an input")
            for name in inputs}
        # By the tensor's id; a tied parameter has the first of its names.
        self._parameters = {
            id(tensor): self._declare(name, tensor)
            for name, tensor in (*model.named_parameters(), *model.named_buffers())}

    def _declare(self, name: str, tensor: torch.Tensor) -> Value:
        self.program.parameter(
            name, tuple(tensor.shape), fixed=not tensor.requires_grad,
            dtype="i64" if tensor.dtype == torch.int64 else "f32")
        return Value(name, next(self._memory), kind="a parameter")

    def follow(self, graph: torch.fx.Graph) -> Any:
        """Returns what the forward returns."""
        for node in graph.nodes:
            self._node = node
            args, kwargs = self._look_up(node.args), self._look_up(node.kwargs)
            if node.op == "output":
                return args[0]
            self._env[node] = self._evaluate(node, args, kwargs)
        raise AssertionError("a graph without output")

    def _look_up(self, arguments: Any) -> Any:
        def find(argument: Any) -> Any:
            found = self._env[argument] if isinstance(argument, torch.fx.Node) else argument
            if isinstance(found, Stale):
                raise self.refuse(f"{found.name}, a view of a tensor changed in place since",
                                  "no use of it after that")
            return found

        return map_aggregate(arguments, find)

    def _evaluate(self, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        if node.op == "placeholder":
            return self._placeholder(str(node.target))
        if node.op == "get_attr":
            return self._attribute(str(node.target))
        if node.op == "call_module":
            module = self._model.get_submodule(str(node.target))
            function = operator_table.of_module(module)
            args = (module, *args)
        elif _is_constant((args, kwargs)) and node.op == "call_function":
            assert callable(node.target)
            return node.target(*args, **kwargs)
        else:
            function = operator_table.of_function(node.target)
        if function is None:
            raise self.refuse(_name_of(node.target) if node.op != "call_module" else
                              f"{type(module).__module__}.{type(module).__name__}",
                              "an operator that programs have")
        try:
            bound = inspect.signature(function).bind(self, *args, **kwargs)
        except TypeError as error:  # an argument of torch's that programs don't know
            raise self.refuse(f"{_name_of(node.target)} with arguments other than that",
                              str(error)) from error
        result = function(*bound.args, **bound.kwargs)
        if bound.arguments.get("inplace") or operator_table.is_in_place(node, args):
            return self._overwrite(args[1] if node.op == "call_module" else args[0], result)
        return result

    def _placeholder(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        # torch.fx numbers the arguments that it takes for constants.
        plain = name if name in self._constants else name.rpartition("_")[0]
        return self._constants[plain]

    def _attribute(self, path: str) -> Any:
        found: Any = self._model
        for name in path.split("."):
            found = getattr(found, name)
        if not isinstance(found, torch.Tensor):
            return found
        if id(found) not in self._parameters:
            raise self.refuse(f"{path}, a tensor that is neither parameter nor buffer",
                              "a parameter or a buffer")
        return self._parameters[id(found)]

    def _overwrite(self, old: Value, new: Value) -> Value:
        """Gives all tensors that are `old` the value `new`, and returns it in old's memory."""
        if new.name == old.name:
            return old
        new = replace(new, memory=old.memory, branch=old.branch)
        for node, value in self._env.items():
            if not isinstance(value, Value) or value.memory != old.memory:
                continue
            is_same = (value.name, value.branch) == (old.name, old.branch)
            self._env[node] = new if is_same else Stale(value.name)
        return new

    # What operator_table's functions use.

    def refuse(self, found: object, expected: str) -> Unimplemented:
        """Returns the error that names the module under way, and the line of its forward."""
        assert self._node is not None
        path = module_path(self._node)
        error = refuse(named(self._model.get_submodule(path), path), found, expected)
        line = line_of(self._node)
        if line:
            error.message += f"; see {line}"
        return error

    def users(self) -> list[tuple[torch.fx.Node, nn.Module | None]]:
        """Returns the calls that use the result under way, with their modules."""
        assert self._node is not None
        return [(user, self._model.get_submodule(str(user.target))
                 if user.op == "call_module" else None) for user in self._node.users]

    def parameter(self, tensor: torch.Tensor | None) -> Value | None:
        return None if tensor is None else self._parameters[id(tensor)]

    def add(self, operator: str, *operands: Any, parameters: Sequence[Any] = (),
            view_of: Value | None = None, **attributes: Attribute | None) -> Value:
        """Adds a step of these operands, then parameters. Attributes that are None are left
        out."""
        for operand in operands:
            self._check_operand(operator, operand)
        for i, parameter in enumerate(parameters, len(operands)):
            self._check_operand(operator, parameter, parameter_at=i)
        assert self._node is not None
        name = self.program.step(
            operator, *(operand and operand.name for operand in (*operands, *parameters)),
            name=self._node.name,
            attributes={key: value for key, value in attributes.items() if value is not None})
        self.places[name] = place_of(self._model, self._node)
        return Value(name, next(self._memory) if view_of is None else view_of.memory)

    def copy(self, value: Value) -> Value:
        """Returns the same value in memory of its own."""
        return replace(value, memory=next(self._memory))

    def branch(self, value: Value) -> Value:
        """Returns the same value, in the same memory or in a copy."""
        return replace(value, branch=next(self._branches))

    def _check_operand(self, operator: str, operand: Any,
                       parameter_at: int | None = None) -> None:
        if operand is None:
            return
        if not isinstance(operand, Value):
            raise self.refuse(f"{operator} with {operand!r}", "tensors alone")
        if (parameter_at is not None) != (operand.kind == "a parameter"):
            raise self.refuse(f"{operator} with {operand.kind}, {operand.name}",
                              "inputs and results of other operators" if parameter_at is None
                              else f"a parameter as operand {parameter_at}")


def _is_constant(arguments: Any) -> bool:
    found = []

    def look(argument: Any) -> Any:
        found.append(isinstance(argument, (Value, Size)))
        return argument

    map_aggregate(arguments, look)
    return not any(found)


def _name_of(target: Any) -> str:
    if isinstance(target, str):
        return f"Tensor.{target}"
    module = getattr(target, "__module__", None) or "torch"
    return f"{module}.{getattr(target, '__name__', target)}"
