"""Provides functions that read the nodes of an exported graph."""

from __future__ import annotations

import copy
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch import nn
from torch.fx.node import map_aggregate

from convgrad.torch.networks.forwards.watching import INSIDE, LINE
from convgrad.torch.networks.operators import table
from convgrad.torch.networks.operators.values import plain
from convgrad.torch.networks.refusals import named

MODEL = "model"
"""The model's name in the exported module."""
_SAME = ("aten.alias", "aten.contiguous", "aten.slice")
_SLICE = re.compile(r"\.slice\([^)]*\)")
_FRAME = re.compile(r'^\s*File "([^"]*)", line (\d+)', re.MULTILINE)


def module_path(node: torch.fx.Node) -> str:
    """Returns the path of the module whose forward made the call."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]).partition("@")[0] if stack else ""
    # The modules of a slice of an nn.Sequential have the same names as in the whole.
    path = _SLICE.sub("", path)
    return path[len(MODEL) + 1:] if path.startswith(f"{MODEL}.") else ""


def line_of(node: torch.fx.Node) -> str:
    """Returns file and line of the user's code that made the call; "" if there is none."""
    noted = (node.meta.get("custom") or {}).get(LINE)
    if noted is not None:
        return str(noted)
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return next((f"{file}:{line}" for file, line in reversed(frames)
                 if not file.startswith(INSIDE)), "")


def place_of(model: nn.Module, node: torch.fx.Node) -> str:
    """Returns module, file and line of the forward that made the call."""
    path = module_path(node)
    module = f"model.{named(model, path)}" if path else named(model, "")
    line = line_of(node)
    return f"{module}, {line}" if line else module


def step_name(model: nn.Module, node: torch.fx.Node) -> str:
    """Returns the path of a layer of torch's, otherwise the operator's name."""
    path = module_path(node)
    is_layer = path and type(model.get_submodule(path)).__module__.startswith("torch.nn.")
    name = re.sub(r"\W", "_", path) if is_layer else table.name_of(
        node.target).rpartition(".")[2].strip("_")
    return f"_{name}" if name[0].isdigit() else name


def needed(nodes: Sequence[torch.fx.Node]) -> set[torch.fx.Node]:
    """Returns the nodes of tensors that the results depend on, and those with side effects."""
    found: set[torch.fx.Node] = set()
    for node in reversed(nodes):
        acts = node.op == "output" or table.acts(node.target)
        if acts or node in found:
            found.add(node)
            found.update(filter(_is_of_tensors, node.all_input_nodes))
    return found


def calls_of_one(nodes: Sequence[torch.fx.Node], root: nn.Module) -> list[Any]:
    """Returns the calls that needed() finds, with arguments and shapes as for a batch of 1.
    Leaves out what returns its operand or, as the layout decides, a copy of it."""
    names: dict[torch.fx.Node, str] = {}
    wanted = needed(nodes)

    def given(argument: Any) -> Any:
        value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument
        number = getattr(plain(value), "subs", None)
        if number is not None:
            return int(number({symbol: 1 for symbol in plain(value).free_symbols}))
        return names.get(argument, value) if isinstance(argument, torch.fx.Node) else value

    def shapes(node: Any) -> list[Any]:
        value = node.meta.get("val")
        return [(one.dtype, [given(n) for n in one.shape])
                for one in (value if isinstance(value, (tuple, list)) else [value])
                if isinstance(one, torch.Tensor)]

    found: list[Any] = []
    for node in nodes:
        if node not in wanted:
            continue
        if node.op == "get_attr":
            region = getattr(root, str(node.target))
            found.append(calls_of_one(list(region.graph.nodes), region))
        results = shapes(node)
        if table.name_of(node.target) in _SAME and results == shapes(node.args[0]):
            names[node] = names[node.args[0]]  # type: ignore[index]
            continue
        names[node] = f"%{len(found)}"
        found.append((node.op, node.target, map_aggregate((node.args, node.kwargs), given),
                      results))
    return found


def _is_of_tensors(node: torch.fx.Node) -> bool:
    """Returns whether the node is a tensor, or several, not a number computed from shapes."""
    return node.op == "get_attr" or isinstance(
        node.meta.get("val"), (torch.Tensor, tuple, list))


def mapped(function: Callable[[Any], Any], structure: Any) -> Any:
    """Returns a dict, list or tuple like this one, with the function's result of each item."""
    if isinstance(structure, dict):
        # An OrderedDict's class may have its items as attributes, too.
        found = copy.copy(structure) if isinstance(structure, OrderedDict) else {}
        for key, one in structure.items():
            found[key] = function(one)
        return found
    items = [function(one) for one in structure]
    if isinstance(structure, list):
        return items
    return type(structure)(*items) if hasattr(structure, "_fields") else tuple(items)
