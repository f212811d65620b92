"""Tensors that follow from a call's inputs alone, such as masks of tokens, and random numbers.

If the server lacks an operator for one, the client computes it in each call, by torch, and
sends it as an input of the program. No gradient may pass through such a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_aggregate

from convgrad.torch.networks.operators import table
from convgrad.torch.networks.operators.values import plain

# Untyped, because types are checked with PyTorch 1.13, which lacks some of its names.
_TORCH: Any = torch
_DTYPES = (torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float32)
_MOST_AXES = 5  # of a program's input


@dataclass(frozen=True)
class Given:
    """A program's input that the client computes."""

    node: torch.fx.Node
    part: int | None
    """Index of the result if the node has several; else None."""
    then: Callable[[torch.Tensor], torch.Tensor] | None
    """A function of the result, which makes the input; None: the result itself."""
    until: torch.fx.Node
    """The last call that may have changed the result in place."""
    calls: tuple[torch.fx.Node, ...] = field(repr=False)
    """The calls that lead to the result, in the graph's order."""


@dataclass(frozen=True)
class Prelude:
    """Computes what a program is given besides a call's own inputs. Thread-safe."""

    placeholders: Mapping[str, str]
    """By placeholder, the call's input."""
    constants: Mapping[str, Any]
    """By placeholder, a tensor of the forward's."""
    given: Mapping[str, Given]
    """By the program's input."""

    def __call__(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Returns the program's inputs by name. Draws random numbers in the forward's order."""
        if not self.given:
            return {}
        symbols = self._symbols(inputs)
        calls = {node for one in self.given.values() for node in one.calls}
        ends: dict[torch.fx.Node, list[str]] = {}
        for name, one in self.given.items():
            ends.setdefault(one.until, []).append(name)
        device = next(iter(inputs.values())).device if inputs else torch.device("cpu")
        values: dict[torch.fx.Node, Any] = {}
        found = {}
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            for node in next(iter(calls)).graph.nodes:
                if node in calls:
                    values[node] = self._computed(node, inputs, values, symbols)
                for name in ends.get(node, ()):
                    one = self.given[name]
                    y = values[one.node] if one.part is None else values[one.node][one.part]
                    y = y.clone() if one.then is None else one.then(y.clone())
                    found[name] = y.contiguous().to(device)
        return found

    def _computed(self, node: torch.fx.Node, inputs: Mapping[str, torch.Tensor],
                  values: Mapping[torch.fx.Node, Any], symbols: Mapping[Any, int]) -> Any:
        if node.name in self.placeholders:
            x = inputs[self.placeholders[node.name]].detach()
            return x.to("cpu", torch.float32 if x.is_floating_point() else x.dtype,
                        copy=True)  # because calls may change it
        if node.op == "placeholder":
            return self.constants[node.name].tensor
        args, kwargs = map_aggregate(
            (node.args, node.kwargs), lambda one: _value_of(one, values, symbols))
        target: Any = node.target
        return target(*args, **kwargs)

    def shapes(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the program's inputs by name. Computes the inputs only if a
        shape follows from values, as that of nonzero()."""
        symbols = self._symbols(inputs)
        found = {name: _results_of(one.node)[one.part or 0].shape
                 for name, one in self.given.items()}
        if not all(_free(n) <= symbols.keys() for shape in found.values() for n in shape):
            return {name: tuple(x.shape) for name, x in self(inputs).items()}
        return {name: tuple(_number_of(n, symbols) for n in shape)
                for name, shape in found.items()}

    def _symbols(self, inputs: Mapping[str, torch.Tensor]) -> dict[Any, int]:
        """Returns the extents that the call's inputs have in place of symbols."""
        graphs = {one.node.graph for one in self.given.values()}  # one, or none
        return {symbol: n for graph in graphs for node in graph.nodes
                if node.op == "placeholder" and node.name in self.placeholders
                for symbol, n in _symbols_of(node, inputs[self.placeholders[node.name]].shape)}


class Calls:
    """Finds the calls of a graph that lead from inputs alone to a tensor. Thread-compatible."""

    def __init__(self, graph: torch.fx.Graph, placeholders: Mapping[str, str],
                 constants: Mapping[str, Any]) -> None:
        self._placeholders = placeholders
        self._constants = constants
        self._order = {one: i for i, one in enumerate(graph.nodes)}
        self._changes = _changes(graph)
        self._symbols = {symbol for one in graph.nodes if one.op == "placeholder"
                         and one.name in placeholders for symbol, _ in _symbols_of(one)}

    def leading_to(self, node: torch.fx.Node, until: torch.fx.Node,
                   ) -> tuple[torch.fx.Node, ...] | None:
        """Returns the calls that lead to what the node's result is after another call, in the
        graph's order. None if parameters or results of the server are among them, or if a
        gradient may be."""
        if not all(one.dtype in _DTYPES and one.dim() <= _MOST_AXES
                   for one in _results_of(node)):
            return None
        found: set[torch.fx.Node] = set()
        todo = [node]
        while todo:
            one = todo.pop()
            if one in found:
                continue
            number: Any = one.meta.get("val")
            if isinstance(number, (_TORCH.SymInt, _TORCH.SymFloat, int, float)):
                if not _free(number) <= self._symbols:
                    return None
                continue
            is_input = one.op == "placeholder" and one.name in self._placeholders
            # Only numbers in the forward's text, which torch copies before each use.
            is_constant = one.op == "placeholder" and one.name in self._constants and (
                self._constants[one.name].tensor is not None) and all(
                table.name_of(user.target) == "aten.lift_fresh_copy" for user in one.users)
            if not (is_input or is_constant or _is_call(one)) or any(
                    _changes_inside(user) for user in one.users):
                return None
            if is_input and number.is_floating_point() and any(
                    y.is_floating_point() for y in _results_of(node)):
                return None
            found.add(one)
            todo += [change for change in self._changes.get(base_of(one), ())
                     if self._order[change] <= self._order[until]]
            if not _takes_shapes(one):
                todo += one.all_input_nodes
            elif any(not _free(n) <= self._symbols for given in one.all_input_nodes
                     for y in _results_of(given) for n in y.shape):
                return None
        return tuple(sorted(found, key=self._order.__getitem__))


def _results_of(node: torch.fx.Node) -> list[Any]:
    value = node.meta.get("val")
    return [one for one in (value if isinstance(value, (tuple, list)) else [value])
            if isinstance(one, torch.Tensor)]


def _is_call(node: torch.fx.Node) -> bool:
    name = table.name_of(node.target)
    return node.op == "call_function" and bool(_results_of(node)) and (
        name.startswith("aten.") or name == "getitem")


def _takes_shapes(node: torch.fx.Node) -> bool:
    """Returns whether the call depends on no element of its operands, as rand_like()."""
    name = table.name_of(node.target).removeprefix("aten.")
    return name.endswith("_like") or name.startswith("new_")


def base_of(node: torch.fx.Node) -> torch.fx.Node:
    """Returns the tensor in whose memory the node's result may be."""
    while node.op == "call_function" and node.args and (
            table.place_of_result(node.target) != "apart"):
        base = node.args[0]
        if not isinstance(base, torch.fx.Node):
            break
        node = base
    return node


def _changes(graph: torch.fx.Graph) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    """Returns the calls that change a tensor in place, by the base of the tensor."""
    found: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "call_function" and table.is_in_place(node.target):
            found.setdefault(base_of(node), []).append(node)
    return found


def _changes_inside(node: torch.fx.Node) -> bool:
    """Returns whether the node is a region, as that of an autocast, with changes in place."""
    if not table.name_of(node.target).startswith("wrap_with"):
        return False
    regions = [one for one in node.all_input_nodes if one.op == "get_attr"]
    root: Any = node.graph.owning_module
    return any(bool(_changes(getattr(root, str(one.target)).graph)) for one in regions)


def _free(extent: Any) -> set[Any]:
    return set(getattr(plain(extent), "free_symbols", ()))


def _symbols_of(node: torch.fx.Node, shape: Any = None) -> list[tuple[Any, int]]:
    """Returns the symbols that are extents of an input, with the extents of this shape."""
    extents = [plain(n) for n in node.meta["val"].shape]
    return [(n, shape[i] if shape is not None else 0) for i, n in enumerate(extents)
            if getattr(n, "is_symbol", False)]


def _value_of(argument: Any, values: Mapping[torch.fx.Node, Any],
              symbols: Mapping[Any, int]) -> Any:
    if not isinstance(argument, torch.fx.Node):
        return argument
    if argument in values:
        return values[argument]
    value = argument.meta["val"]
    if isinstance(value, torch.Tensor):  # of which only the shape matters
        sizes, strides = ([_number_of(n, symbols) for n in one]
                          for one in (value.shape, value.stride()))
        return torch.empty_strided(sizes, strides, dtype=value.dtype)  # in torch's layout
    return _number_of(value, symbols)


def _number_of(value: Any, symbols: Mapping[Any, int]) -> Any:
    expression = plain(value)
    if not hasattr(expression, "subs"):
        return expression
    number = expression.subs(dict(symbols))
    return int(number) if number.is_integer else float(number)
