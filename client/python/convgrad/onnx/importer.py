"""Follows the nodes of an ONNX graph, in their order, and makes a program of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from convgrad.errors import Unimplemented, invalid
from convgrad.layouts import Array
from convgrad.onnx import folding
from convgrad.onnx.declared import MOST_INPUT_AXES, Declared, declared_inputs
from convgrad.onnx.emission import Imported, emit
from convgrad.onnx.operators import elements, norms, table, views
from convgrad.onnx.refusals import Refusals, refuse
from convgrad.onnx.rows import of_rows
from convgrad.onnx.values import (
    FLOATS,
    OWN_DOMAINS,
    Bell,
    Known,
    Node,
    Parts,
    Unknown,
    Value,
)
from convgrad.shapes import padded

# The errors of a node whose operands have wrong shapes or values, besides onnx's own errors.
_WRONG = (TypeError, KeyError, IndexError, ValueError, ArithmeticError, RuntimeError,
          AttributeError)


class Importer(Declared):
    """Follows a graph's nodes. Owned by one thread."""

    # Functions that the operators of Value, such as +, call.
    of_each, binary = elements.of_each, elements.binary
    reshaped, permuted, expanded = views.reshaped, views.permuted, views.expanded
    product = norms.product

    def __init__(self, model: Any, training: bool) -> None:
        graph = model.graph
        super().__init__(graph, training)
        self._graph = graph
        self._opset = max((one.version for one in model.opset_import
                           if one.domain in OWN_DOMAINS), default=0)
        self._env: dict[str, Any] = {}
        self._refusals = Refusals()

    def value(self, operand: Any, rank: int = 0) -> Value:
        """Returns the operand as a value with leading axes of 1 up to `rank`."""
        if isinstance(operand, Known) and len(operand.shape) > MOST_INPUT_AXES and (
                not operand.is_trainable):
            flat = super().value(views.reshaped(self, operand, [operand.array.size]))
            return views.reshaped(self, flat, operand.shape)
        x = super().value(operand)
        return x if len(x.shape) >= rank else views.reshaped(self, x, padded(x.shape, rank))

    def follow(self, shapes: Mapping[str, Sequence[int | None]]) -> Imported:
        """Errors: Refused naming all nodes that programs don't have."""
        inputs = declared_inputs(self, self._graph, shapes, self._refusals)
        self._env.update(inputs)
        for value in inputs.values():
            self.note(value)
        for tensor in self._graph.initializer:
            array = _array_of(tensor)
            self._env[tensor.name] = Known(
                array, tensor.name if array.dtype.name in FLOATS else "")
        for sparse in self._graph.sparse_initializer:
            name = sparse.values.name
            self._refusals.add(refuse(name, "a sparse initializer", "one with all elements"))
            self._env[name] = Unknown(False)
        for proto in self._graph.node:
            self._follow(proto)
        outputs = {one.name: self._output(one.name) for one in self._graph.output}
        self._refusals.check()
        self.fix()
        return emit(self.steps, inputs, outputs)

    def _follow(self, proto: Any) -> None:
        node = self.node = _node_of(proto, self._opset)
        found: Any = [Unknown() for _ in node.outputs]
        try:
            if proto.domain not in OWN_DOMAINS or proto.overload:
                raise self.refuse(f"{node.operator} of the domain {proto.domain}",
                                  "an operator of ONNX itself")
            found = self._evaluate(node, proto)
        except Unimplemented as error:
            self._refusals.add(error)
        except _WRONG as error:  # operands that don't fit the operator
            self._refusals.add(self.refuse(
                f"{node.operator} that can't be followed ({str(error)[:200]})",
                "operands and attributes that fit the operator"))
        results = found if isinstance(found, list) else [found]
        for name, result in zip(node.outputs, results):
            if name:
                self.bind(name, result)
                self._env[name] = result
        for name in node.outputs[len(results):]:
            if name and self.uses[name]:
                self._refusals.add(self.refuse(f"output {name} of {node.operator}",
                                               "its first output alone"))
            self._env[name] = Unknown()

    def _evaluate(self, node: Node, proto: Any) -> Any:
        operands = [self._env[name] if name else None for name in node.inputs]
        is_shape = node.operator in ("Shape", "Size")
        if any(isinstance(operand, Unknown) for operand in operands):
            is_value = not is_shape and any(
                one.is_value if isinstance(one, Unknown) else isinstance(
                    one, (Value, Bell, Parts)) for one in operands)
            if node.operator not in table.OPERATORS and (
                    is_value or node.operator not in folding.COMPUTED):
                raise self.refuse(node.operator, "an operator that programs have")
            return [Unknown(is_value) for _ in node.outputs]
        if node.operator == "If" and isinstance(operands[0], Known):
            return self._branch(node, bool(operands[0].array.reshape(())))
        if is_shape and isinstance(operands[0], (Value, Known)):
            return table.shape_of(self, node, operands[0])
        indices = of_rows(self, node, operands)
        if indices is not None:
            return indices
        row = table.OPERATORS.get(node.operator)
        if all(operand is None or isinstance(operand, Known) for operand in operands):
            folded = self._folded(node, proto, operands, row is not None)
            if folded is not None:
                return folded
        if row is None:
            raise self.refuse(node.operator, "an operator that programs have")
        if node.operator not in table.OF_ANYTHING:
            operands[:1] = map(self.value, operands[:1])
        return row(self, node, *operands)

    def _branch(self, node: Node, is_true: bool) -> list[Any]:
        """Returns the results of the branch of an If whose condition is constant."""
        graph = node.get("then_branch" if is_true else "else_branch")
        for tensor in graph.initializer:
            self._env[tensor.name] = Known(_array_of(tensor))
        for proto in graph.node:
            self._follow(proto)
        return [self._env[one.name] for one in graph.output]

    def _folded(self, node: Node, proto: Any, operands: Sequence[Known | None],
                has_row: bool) -> list[Known] | None:
        """Returns the constants that the node gives; None for steps of trained parameters."""
        if node.operator == "Constant" and node.get("value") is not None:
            return [Known(_array_of(node.get("value")))]
        first = operands[0] if operands else None
        if first is not None and table.is_move(node, first):
            if not first.is_trainable or self.may_move(first) and (
                    self.uses[node.outputs[0]] == 1):
                moved = table.moved(self, node, first, *operands[1:])
                if not np.may_share_memory(moved.array, first.array):
                    self.spend(moved.array)
                return [moved]
            if node.operator == "Identity":
                self.uses[first.name] += self.uses[node.outputs[0]] - 1
                return [first]
        if has_row and any(one is not None and one.is_trainable and one.array.size > 1
                           for one in operands):
            return None
        arrays = [None if one is None else one.array for one in operands]
        if any(array is not None and array.dtype == object for array in arrays):
            if has_row and (node.operator == "ConstantOfShape" or arrays[0] is not None and (
                    arrays[0].dtype.name in FLOATS)):
                return None  # numbers that are repeated for each item
            return self._of_batch(node, arrays)
        results = folding.compute(node, proto, arrays)
        if results is not None:
            for one in operands:
                if one is not None:
                    self.fixed.add(one.name)
            self.spend(*results)
            return [Known(result) for result in results]
        if has_row and any(array is not None and array.dtype.name in FLOATS
                           for array in arrays):
            return None
        raise self.refuse(f"{node.operator} of constants",
                          "an operator that programs have, or a small constant")

    def _of_batch(self, node: Node, arrays: Sequence[Array | None]) -> list[Known]:
        if sum(array.size for array in arrays if array is not None) > folding.MOST_EXTENTS:
            raise self.refuse(f"{node.operator} of many extents, which depend on the batch",
                              f"{folding.MOST_EXTENTS} numbers at most")
        try:
            results = folding.of_batch(node, arrays)
        except _WRONG:
            raise self.refuse(f"{node.operator} with the size of the batch",
                              "sizes that are a multiple of the batch, or don't depend on it"
                              ) from None
        self.spend(*results)
        return [Known(array) for array in results]

    def _output(self, name: str) -> Any:
        found = self._env[name]
        self.node = Node("the output", name, (), (name,), {}, self._opset)
        try:
            if isinstance(found, Unknown):
                return found
            if isinstance(found, Bell):
                raise self.refuse(found, "an operator that programs have")
            if isinstance(found, Known) and found.array.dtype.name not in FLOATS:
                raise self.refuse(f"{found} as output", "a result of floats")
            value = self.value(found)
            if value.dtype not in FLOATS:
                raise self.refuse(f"a result of {value.dtype}", "float32")
            return value
        except Unimplemented as error:
            self._refusals.add(error)
            return Unknown()


def _array_of(tensor: Any) -> Array:
    """Raises InvalidArgument if the tensor has other data than its shape needs."""
    try:
        array = numpy_helper.to_array(tensor)
        # An array of objects has extents, some of which depend on the batch.
        return array.astype(np.bytes_) if array.dtype == object else array
    except _WRONG as error:
        raise invalid("SHAPE_MISMATCH", f"model.{tensor.name}", str(error)[:200],
                      f"data of {list(tensor.dims)}") from error


def _node_of(proto: Any, opset: int) -> Node:
    attributes = {}
    for attribute in proto.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        attributes[attribute.name] = value.decode(
            "utf-8", "replace") if isinstance(value, bytes) else value
    name = proto.name or next((one for one in proto.output if one), proto.op_type)
    return Node(proto.op_type, name, list(proto.input), list(proto.output), attributes, opset)
