"""Has the steps of a program, and declares a graph's inputs and constants for it. The functions
of `operators` add the steps."""

from __future__ import annotations

import collections
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import helper

from convgrad.errors import Unimplemented, invalid
from convgrad.importers.steps import MAY_BE_INFINITE
from convgrad.layouts import Array
from convgrad.onnx.extents import Batch, Extent, Shape, text_of
from convgrad.onnx.refusals import Refusals, refuse
from convgrad.onnx.values import FLOATS, IMAGES, INDICES, Known, Node, Source, Unknown, Value
from convgrad.programs import Attribute, name_of_constant
from convgrad.shapes import MOST_AXES, padded

# Steps that only move elements, so that images and integers may become floats before them.
_MOVES = frozenset(("concat", "expand", "flatten", "index_select", "permute", "reshape",
                    "slice"))
_MOVED = IMAGES | INDICES | {"bool"}
MOST_INPUT_AXES = 5
_MOST_INDEX_AXES = 4
_MOST_BYTES = 2**29
"""Most bytes of all constants that nodes make, besides the size of the initializers."""


class Declared:
    """Has the steps, and the parameters by name. Owned by one thread."""

    def __init__(self, graph: Any, training: bool) -> None:
        self.own = weakref.proxy(self)
        """Values' importer."""
        self.training = training
        """Whether BatchNormalization and Dropout train."""
        self.node = Node("", "", (), (), {}, 0)
        self.steps: list[Source] = []
        self.uses = collections.Counter(_names_in(graph))
        self.compared = collections.Counter[str]()
        """How many uses of an initializer are comparisons so far."""
        self.fixed: set[str] = set()
        """Initializers of which constants are computed, so that no training may change them."""
        self._parameters: dict[str, list[Source]] = {}
        self._budget = _MOST_BYTES + 16 * sum(
            math.prod(one.dims) for one in graph.initializer)
        self._read: dict[int, Value] = {}
        self._batches: dict[Extent, Value] = {}

    def refuse(self, found: object, expected: str) -> Unimplemented:
        """Returns the error that names the node under way."""
        return refuse(self.node.name, found, expected)

    def add(self, operator: str, *operands: Any, shape: Shape,
            parameters: Sequence[Source | Known | None] = (),
            **attributes: Attribute | None) -> Value:
        """Adds a step of these values, then parameters. Leaves out attributes that are None."""
        sources = [self.parameter(one) if isinstance(one, Known) else one for one in parameters]
        dtype = "float32"
        for operand in operands:
            if operand is not None and not isinstance(operand, Value):
                raise self.refuse(f"{operator} with {operand}", "results of other operators")
            if operand is None or operand.dtype in FLOATS:
                continue
            if operand.dtype not in _MOVED or operator not in _MOVES:
                raise self.refuse(f"{self.node.operator} of {operand.dtype}", "float32")
            dtype = operand.dtype
        if len(shape) > MOST_AXES:
            raise self.refuse(f"{self.node.operator} to {text_of(shape)}", "at most six axes")
        if any(isinstance(extent, int) and extent < 1 for extent in shape):
            raise self.refuse(f"a tensor without elements, {text_of(shape)}", "elements")
        for one in attributes.values():
            parts = one if isinstance(one, (list, tuple)) else [one]
            if any(isinstance(part, Batch) for part in parts):
                raise self.refuse(f"{self.node.operator} with the size of the batch",
                                  "sizes that don't depend on the batch")
            if operator not in MAY_BE_INFINITE and any(
                    isinstance(part, float) and not math.isfinite(part) for part in parts):
                raise self.refuse(f"{self.node.operator} with the number {one}",
                                  "finite numbers")
        source = Source(f"{self.node.outputs[0]}~{operator}", operator, [
            *(operand and operand.source for operand in operands), *sources],
            {key: one for key, one in attributes.items() if one is not None})
        self.steps.append(source)
        value = Value(source, tuple(shape), dtype, to=self.own)
        self.note(value)
        return value

    def note(self, value: Any) -> None:
        """Remembers a value, whose batch others may be expanded to."""
        if isinstance(value, Value) and value.dtype in FLOATS and len(value.shape) >= 2 and (
                isinstance(value.shape[0], Batch)):
            self._batches.setdefault(value.shape[0], value)

    def bind(self, name: str, result: Any) -> None:
        """Gives a new step the name of the node's output."""
        if isinstance(result, Value) and "~" in result.source.name and result.source.operator:
            result.source.name = name

    def value(self, operand: Any) -> Value:
        """Returns the operand as a value; a constant becomes a parameter."""
        if isinstance(operand, Value):
            return operand
        if not isinstance(operand, Known) or operand.array.dtype.name not in FLOATS:
            raise self.refuse(f"{self.node.operator} with {operand}", "float32")
        if operand.array.ndim > MOST_INPUT_AXES:
            raise self.refuse(f"a constant of {operand.array.ndim} axes", "at most five axes")
        source = self.parameter(operand)
        if id(source) not in self._read:
            sizes = padded(operand.shape)
            self._read[id(source)] = self.add(
                "read", shape=sizes, parameters=(source,),
                shape_=None if sizes == operand.shape else list(sizes))
        return replace(self._read[id(source)], shape=operand.shape)

    def parameter(self, known: Known, *, dtype: str = "f32") -> Source:
        """Returns the parameter with these elements: "f32", or "i64" for indices."""
        array = known.array
        if not isinstance(known, Known) or (
                array.dtype.name not in FLOATS if dtype == "f32" else array.dtype != np.int64):
            raise self.refuse(f"{self.node.operator} with {known}", "float32")
        if not array.size:
            raise self.refuse(f"a constant without elements, {text_of(array.shape)}",
                              "elements")
        if dtype == "f32":
            array = np.asarray(array, np.float32, order="C")
        name = known.name or name_of_constant(array)
        same = self._parameters.setdefault(name, [])
        for before in same:
            if before.array is array or before.array is not None and (
                    before.array.shape == array.shape) and np.array_equal(
                        before.array, array, equal_nan=array.dtype != np.int64):
                return before
        if not np.may_share_memory(array, known.array):
            self.spend(array)
        same.append(Source(name, array=array, fixed=not known.is_trainable))
        return same[-1]

    def statistic(self, known: Known) -> Source:
        """Returns the parameter of running statistics, which only this node has."""
        name = known.name or f"{self.node.outputs[0]}.statistic"
        return Source(name, array=np.asarray(known.array, np.float32, order="C"), fixed=True)

    def number_of(self, operand: Any) -> float | None:
        """Returns the only element of a constant, if it is finite, for an attribute of a step.
        No training changes it elsewhere then."""
        number = operand.number if isinstance(operand, Known) else None
        if number is not None:
            self.fixed.add(operand.name)
        return number

    def spend(self, *arrays: Array) -> None:
        """Raises Unimplemented if nodes have made too many constants."""
        self._budget -= sum(array.nbytes for array in arrays)
        if self._budget < 0:
            raise self.refuse(f"{self.node.operator} of constants",
                              f"{_MOST_BYTES >> 20} MiB of computed constants at most")

    def fix(self) -> None:
        """Ends the training of initializers that constants were computed of."""
        for name in self.fixed:
            for source in self._parameters.get(name, ()):
                source.fixed = True

    def may_move(self, known: Known) -> bool:
        """Returns whether the elements of the initializer may be kept in another order."""
        return not known.name or self.uses[known.name] == 1

    def like(self, extent: Extent) -> Value:
        """Returns a value whose first axis has this extent, which depends on the batch."""
        if extent in self._batches:
            return self._batches[extent]
        raise self.refuse(f"a tensor with {extent} as its first extent", "a value's batch")


def _names_in(graph: Any) -> Iterator[str]:
    """Returns all names that nodes and outputs read, those of branches as well."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            yield from _names_in(attribute.g)
    for one in graph.output:
        yield one.name


def declared_inputs(to: Declared, graph: Any, shapes: Mapping[str, Sequence[int | None]],
                    refusals: Refusals) -> dict[str, Value | Unknown]:
    """Returns the graph's inputs, without those that initializers give a value."""
    initializers = {tensor.name for tensor in graph.initializer}
    inputs = [one for one in graph.input if one.name not in initializers]
    if not isinstance(shapes, Mapping):
        raise invalid("INVALID_TYPE", "shapes", shapes, "a dict of shapes by the inputs' names")
    for name, shape in shapes.items():
        if name not in {one.name for one in inputs}:
            raise invalid("NOT_FOUND", f"shapes.{name}", "no such input",
                          ", ".join(one.name for one in inputs))
        if not isinstance(shape, (tuple, list)) or any(
                n is not None and type(n) is not int for n in shape):
            raise invalid("INVALID_TYPE", f"shapes.{name}", shape,
                          "a tuple of integers, or None for the batch")
    batches: dict[str, str] = {}
    found: dict[str, Value | Unknown] = {}
    for one in inputs:
        try:
            found[one.name] = _declared(to, one, shapes.get(one.name), batches)
        except Unimplemented as error:
            refusals.add(error)
            found[one.name] = Unknown()
    return found


def _declared(to: Declared, info: Any, given: Sequence[int | None] | None,
              batches: dict[str, str]) -> Value:
    if not info.type.HasField("tensor_type"):
        raise refuse(info.name, "an input that is no tensor", "a tensor")
    tensor = info.type.tensor_type
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
    except (KeyError, TypeError, ValueError):
        dtype = "another type"
    extents: list[Any] = list(given) if given is not None else [
        one.dim_value if one.HasField("dim_value") else one.dim_param or "?"
        for one in tensor.shape.dim]
    if given is None and not tensor.HasField("shape"):
        raise refuse(info.name, "an input without a shape", "a shape, by load(shapes=...)")
    shape: list[Extent] = []
    for axis, extent in enumerate(extents):
        if isinstance(extent, int) and not isinstance(extent, bool) and extent > 0:
            shape.append(extent)
            continue
        if isinstance(extent, int) or axis > 0:
            raise refuse(info.name, f"an input of ({', '.join(map(str, extents))})",
                         "sizes from 1 on of all axes but the batch, the first one; "
                         "load(shapes=...) gives them")
        if isinstance(extent, str) and extent != "?":
            batches.setdefault(extent, info.name)
        shape.append(Batch())
    if len(batches) > 1:
        raise refuse(info.name, f"batches {' and '.join(batches)}",
                     "one batch; load(shapes=...) with None says that they are equal")
    if dtype in INDICES:
        if not 1 <= len(shape) <= _MOST_INDEX_AXES:
            raise refuse(info.name, f"an input of {dtype}, {text_of(shape)}",
                         "one to four axes")
    elif len(shape) > MOST_INPUT_AXES or shape[:1] == [Batch()] and len(shape) < 2:
        raise refuse(info.name, f"an input of {text_of(shape)}",
                     "at most five axes, and two if the first one is the batch")
    return Value(Source(info.name), tuple(shape), dtype, to=to.own)
