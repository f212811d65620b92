"""Follows the calls of a model's graph, in their order.

A tensor is the program's value that it holds, and the memory that torch would keep it in:
what changes memory in place gives all tensors in it another value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_aggregate

from convgrad.errors import Unimplemented
from convgrad.programs import Attribute
from convgrad.torch.networks import checks
from convgrad.torch.networks.declared import Declared
from convgrad.torch.networks.forwards import graphs
from convgrad.torch.networks.forwards.exporting import DROPOUT, Exported
from convgrad.torch.networks.operators import table
from convgrad.torch.networks.operators.given import base_of
from convgrad.torch.networks.operators.implicit import IMPLICIT
from convgrad.torch.networks.operators.known import Known, computed, holds, takes_known
from convgrad.torch.networks.operators.memories import results_of_region
from convgrad.torch.networks.operators.values import (
    INDICES,
    Constant,
    Empty,
    Noise,
    Unknown,
    Value,
    View,
    Wide,
    plain,
    text_of,
)
from convgrad.torch.networks.refusals import Refusals, named, refuse


class Importer(Declared):
    """Follows a graph's calls and makes a program of them. Owned by one thread."""

    def __init__(self, model: Any, exported: Exported) -> None:
        super().__init__(model, exported)
        self._model = model
        self._lent: dict[int, torch.Tensor] = {}  # constants that values are views of
        self._counts: dict[str, tuple[Value, Unimplemented]] = {}
        self._refusals = Refusals()
        self.counted: list[str] = []
        """Steps that update running statistics."""
        self.places: dict[str, str] = {}
        self._start = 0  # of memories within the region without gradients under way

    def follow(self) -> list[Value]:
        """Returns the tensors that the forward returns.

        Errors: Unimplemented naming all calls that programs don't have.
        """
        results = self._run(self._exported.nodes)
        for _, error in self._counts.values():
            self._refusals.add(error)
        self._refusals.check()
        return results

    def _run(self, nodes: Sequence[torch.fx.Node]) -> list[Any]:
        wanted = graphs.needed(nodes)
        for node in nodes:
            self._node = node
            if node.op == "output":
                return [self._output(argument) for argument in node.args[0]]  # type: ignore
            if node not in wanted or node in self._env:
                continue
            try:
                self._env[node] = self._evaluate(node)
            except (Unimplemented, TypeError) as error:
                self._env[node] = self._instead(node, error)
        raise AssertionError("a graph without output")

    def _instead(self, node: torch.fx.Node, error: Unimplemented | TypeError) -> Any:
        """Returns inputs that the client computes, where programs have no step."""
        found = self.given_instead(node)
        if found is not None:
            return found
        drawn = [one for one in node.all_input_nodes if isinstance(self._env.get(one), Noise)]
        sent = [self.given(one) for one in drawn]
        if drawn and all(one is not None for one in sent):
            self._env.update(zip(drawn, sent))
            try:
                return self._evaluate(node)
            except (Unimplemented, TypeError) as again:
                error = again
        self._refusals.add(checks.refusal_of(self, node, error))
        return Unknown()

    def _output(self, argument: Any) -> Any:
        try:
            found = self._look_up(argument)
            if not isinstance(found, (Value, Unknown)):
                raise self.refuse(f"{found} among what it returns", "results of operators")
            if isinstance(found, Wide):
                raise self.refuse(f"a result of {text_of(found.shape)}", "at most six axes")
            return found
        except Unimplemented as error:
            self._refusals.add(error)
            return Unknown()

    def _look_up(self, arguments: Any) -> Any:
        def find(argument: Any) -> Any:
            if not isinstance(argument, torch.fx.Node):
                return plain(argument)
            found = self._env[argument] if argument in self._env else plain(
                argument.meta["val"])
            if isinstance(found, Value):
                found = self._env[argument] = self._memories.now(self, found)
            return self.filled(found)

        return map_aggregate(arguments, find)

    def _evaluate(self, node: torch.fx.Node) -> Any:
        if node.op == "placeholder":
            return self._placeholder(node.name)
        if node.op == "get_attr":
            return getattr(self._exported.root, str(node.target))
        target: Any = node.target
        args, kwargs = self._look_up(node.args), self._look_up(node.kwargs)
        name = table.name_of(target)
        if name == "wrap_with_autocast":
            checks.check_autocast(self, *args[:3])
            return self._inline(args[4], args[5:])
        if name == "wrap_with_set_grad_enabled":
            return self._region(args[0], args[1], args[2:])
        if name == "getitem" and isinstance(args[0], list):
            return args[0][args[1]]
        if name == "aten.lift_fresh_copy" and isinstance(args[0], Constant) and (
                args[0].tensor is not None):  # numbers in the forward's text
            return Known(args[0].tensor.clone())
        changed = args[0] if args and table.is_in_place(target) else None
        if isinstance(changed, Value) and changed.memory in self._kept and (
                name != "aten.add_" or self.dtype != torch.int64):
            raise self.changed(self._kept[changed.memory])
        if self._sent and table.is_in_place(target) and base_of(self._node) in self._sent:
            raise self.refuse(f"{name} of what the client computes",
                              "a change that follows from inputs alone")
        if isinstance(changed, Value) and changed.memory < self._start and (
                changed.memory not in self._kept):
            raise self.refuse(f"{name} under torch.no_grad() of a tensor from outside of it",
                              "a change with gradients, or a copy")
        function = table.of_operator(target)
        is_unknown = holds(Unknown, (args, kwargs))
        known = None if is_unknown or table.is_random(target) else computed(
            self, self._node, name, args, kwargs)
        if known is not None:
            if isinstance(changed, Known) and changed.memory in self._lent:
                raise self.refuse(f"{name} of {changed}", "constants that no view changes")
            return known
        if isinstance(changed, Known):
            raise self.refuse(f"{name} of {changed}", "constants that no result changes")
        if isinstance(self._node.meta.get("val"), torch.Tensor) and 0 in self.shape:
            return Empty(self.shape)
        if function is None:
            if is_unknown and name == "getitem":
                return Unknown()
            if table.is_random(target) and not holds(Value, (args, kwargs)):
                raise self.refuse(f"{name}, random numbers", DROPOUT)
            raise self.refuse(name, "an operator that programs have")
        if is_unknown:
            self.take_count()
            return Unknown()
        given = [map_aggregate(argument, self._with_constants)
                 for argument in table.arguments_of(target, args, kwargs)]
        if holds(Noise, given) and not table.takes_noise(target):
            raise self.refuse(f"{name} of random numbers", "a product with them")
        if isinstance(given[0], Noise) and not table.is_in_place(target):
            given[0] = replace(given[0])
        return self._placed(target, given, function(self, *given))

    def _placed(self, target: Any, given: Sequence[Any], result: Any) -> Any:
        """Returns a call's result in the memory where torch would have it."""
        if isinstance(result, list):
            return [self._placed(target, given, one) for one in result]
        if not isinstance(result, Value):
            return result
        if isinstance(self._node.meta["val"], torch.Tensor):
            is_own = self.dtype in (*INDICES, torch.bool) or result.dtype == torch.bool
            result = replace(result, shape=self.shape,
                             dtype=self.dtype if is_own else result.dtype)
        if table.is_in_place(target):
            if table.changes_shape(target):
                self._memories.check_alone(self, given[0])
            return self._memories.change(self, given[0], result)
        place, of = table.place_of_result(target), given[0]
        if place == "apart" or not isinstance(of, Value):
            return self._memories.apart(self, result)
        self._memories.share(of)
        if place == "perhaps apart" or place == "a view" and (
                result.memory != of.memory or IMPLICIT in self._node.meta):
            return self._memories.perhaps_apart(self, result, of)
        return result

    def _with_constants(self, argument: Any) -> Any:
        """Returns a number or a fixed parameter for a known tensor, and others as they are."""
        if isinstance(argument, Constant):
            raise self.refuse(argument, "a parameter or a buffer")
        if not isinstance(argument, Known):
            return argument
        tensor = argument.tensor
        if tensor.numel() and takes_known(self._node.target, tensor):
            return argument
        if not tensor.dim():
            return tensor.item()
        if not tensor.numel():
            return Empty(tuple(tensor.shape))
        if table.place_of_result(self._node.target) != "apart":
            self._lent[argument.memory] = tensor
        return self.constant_of(argument)

    def _inline(self, module: Any, args: Sequence[Any]) -> list[Any]:
        outer, nodes = self._node, list(module.graph.nodes)
        self._env.update(zip((node for node in nodes if node.op == "placeholder"), args))
        results = self._run(nodes)
        self._node = outer
        return results

    def _region(self, is_enabled: bool, module: Any, args: Sequence[Any]) -> list[Any]:
        """Follows what a forward does under torch.no_grad() or torch.enable_grad()."""
        if is_enabled:
            if self._start:
                raise self.refuse("torch.enable_grad() under torch.no_grad()",
                                  "one of them in a forward")
            return self._inline(module, args)
        before, self._start = self._start, self._memories.new()
        start = self._start
        try:
            results = self._inline(module, args)
        finally:
            self._start = before
        return results_of_region(self, results, start)

    def _placeholder(self, name: str) -> Any:
        exported = self._exported
        if name in exported.constants:
            return exported.constants[name]
        found = (self._values[exported.inputs[name]] if name in exported.inputs
                 else self._parameters[exported.tensors[name]])
        return replace(found, shape=self.shape, dtype=self.dtype)

    # The methods that the table's functions call; operators.values.Importer documents them.

    def refuse(self, found: object, expected: str) -> Unimplemented:
        return refuse(named(self._model, graphs.module_path(self._node)), found, expected,
                      graphs.line_of(self._node))

    def add(self, operator: str, *operands: Any, shape: tuple[Any, ...] = (),
            parameters: Sequence[Any] = (), view: View | None = None,
            **attributes: Attribute | None) -> Value:
        if view is not None and view.base.is_places:
            return replace(view.base, shape=shape, views=(*view.base.views, view))
        checks.check_operands(self, operator, operands, parameters)
        given = {key.rstrip("_"): value for key, value in attributes.items()
                 if value is not None}
        checks.check_attributes(self, operator, given)
        name = self.program.step(
            operator, *(operand and operand.name for operand in (*operands, *parameters)),
            name=graphs.step_name(self._model, self._node), attributes=given)
        self.places[name] = graphs.place_of(self._model, self._node)
        if self.passes_gradient(operator, *operands, *parameters):
            self._with_gradient.add(name)
        if operator == "batch_norm" and attributes["training"] and parameters[2] is not None:
            self.counted.append(name)
        y = Value(name, self._memories.new(), shape=shape, time=self._memories.time,
                  to=self._own)
        return y if view is None else replace(
            y, memory=view.base.memory, branch=view.base.branch, views=(*view.base.views, view))

    def count_batch(self, batches: Value) -> Value:
        if not table.is_in_place(self._node.target):
            raise self.refuse(f"add with a parameter, {batches.name}",
                              "results of other operators")
        path = graphs.module_path(self._node)
        if path in self._counts:
            raise self.changed(batches)
        self._counts[path] = batches, self.changed(batches)
        return batches

    def take_count(self) -> Value | None:
        return self._counts.pop(graphs.module_path(self._node), (None, None))[0]
