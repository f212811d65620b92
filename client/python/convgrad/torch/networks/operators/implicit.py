"""Operators that torch itself makes of others, such as hstack of cat."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.fx.node import map_aggregate

from convgrad.torch.networks.operators import table
from convgrad.torch.networks.operators.tokens import is_of_two

# Untyped, because types are checked with PyTorch 1.13, which lacks some of its names.
_TORCH: Any = torch
IMPLICIT = "convgrad_implicit"
"""Marks a call that torch makes for an operator which may copy. The call's result may be a view
with one layout, and a copy with another one."""
_OF_PLACE = ("nn_module_stack", "custom", "stack_trace")


def expand(module: Any) -> None:
    """Puts the calls that torch makes of an operator in its place in a graph and in those of
    its regions, if programs have no row for the operator, but rows for these calls."""
    for region in module.children():
        if isinstance(region, torch.fx.GraphModule):
            expand(region)
    for node in list(module.graph.nodes):
        inner = _calls_of(node)
        if inner is None:
            continue
        with module.graph.inserting_before(node):
            found = _copied(module.graph, node, inner)
        if isinstance(found, torch.fx.Node):
            node.replace_all_uses_with(found)
        for user in list(node.users):  # getitem
            user.replace_all_uses_with(found[user.args[1]])
            module.graph.erase_node(user)
        module.graph.erase_node(node)


def _copied(graph: Any, node: torch.fx.Node, inner: Any) -> Any:
    """Copies the inner graph's calls to where nodes are being inserted, and returns what stands
    for the node's results."""
    marks = {key: node.meta[key] for key in _OF_PLACE if key in node.meta}
    if table.place_of_result(node.target) != "a view":
        marks[IMPLICIT] = True
    given, copies = iter(node.all_input_nodes), dict[Any, Any]()
    for one in inner.nodes:
        if one.op == "output":
            return map_aggregate(one.args[0], lambda result: copies[result])
        copies[one] = next(given) if one.op == "placeholder" else graph.node_copy(
            one, lambda operand: copies[operand])
        if one.op != "placeholder":
            copies[one].meta.update(marks)
    raise AssertionError("a graph without output")


def _calls_of(node: torch.fx.Node) -> Any:
    """Returns the graph of the calls, with a placeholder for each operand that is a node. None
    if torch makes no calls of the operator, or some for which programs have no row."""
    target: Any = node.target
    if node.op != "call_function" or not hasattr(target, "_can_decompose") or (
            _has_row(node) or not target._can_decompose()):
        return None
    values: dict[Any, Any] = {one: one.meta.get("val") for one in node.all_input_nodes}
    mode = next((one.fake_mode for one in values.values() if hasattr(one, "fake_mode")), None)
    if mode is None or not all(isinstance(one, (torch.Tensor, _TORCH.SymInt))
                               for one in values.values()):
        return None

    def call(*operands: Any) -> Any:
        by_node = dict(zip(values, operands))
        args, kwargs = map_aggregate((node.args, node.kwargs),
                                     lambda one: by_node.get(one, one))
        return target.decompose(*args, **kwargs)

    guards = len(mode.shape_env.guards) if mode.shape_env else 0
    from torch.fx.experimental.proxy_tensor import make_fx
    make: Any = make_fx
    try:
        with mode, torch.no_grad():  # since autograd would add its own calls
            found = make(call)(*values.values())
    except Exception:  # whatever a kernel raises of tensors without data
        return None
    if mode.shape_env and len(mode.shape_env.guards) > guards:  # for some batches alone
        return None
    expand(found)
    return found.graph if all(map(_has_row, found.graph.nodes)) else None


def _has_row(node: torch.fx.Node) -> bool:
    if node.op != "call_function":
        return node.op in ("placeholder", "output")
    if table.name_of(node.target) == "aten.einsum":
        return is_of_two(str(node.args[0]))
    return table.of_operator(node.target) is not None or (
        not table.name_of(node.target).startswith("aten.")) or not isinstance(
        node.meta.get("val"), (torch.Tensor, tuple, list))
