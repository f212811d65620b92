"""Defines what the names of an ONNX graph stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from convgrad.importers.tensors import Tensor
from convgrad.layouts import Array
from convgrad.onnx.extents import Shape
from convgrad.programs import Attribute

FLOATS = frozenset(("float32", "float16", "bfloat16"))
"""Dtypes that programs compute with. The results of the latter two aren't rounded to them."""
IMAGES = frozenset(("uint8", "uint16"))
"""Dtypes of inputs that the server turns into float32, exactly."""
INDICES = frozenset(("int32", "int64"))
"""Dtypes of inputs by which Gather takes elements."""

OWN_DOMAINS = ("", "ai.onnx")
"""Both names of the domain of ONNX's own operators."""


@dataclass(eq=False)
class Source:
    """The origin of a value: an input, a parameter, or a step with operands."""

    name: str
    operator: str = ""
    operands: Sequence[Source | None] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    array: Array | None = None
    """Only of a parameter."""
    fixed: bool = False


@dataclass(frozen=True)
class Value(Tensor):
    """A tensor that a run computes. A program has leading axes of 1 if it has less than two."""

    source: Source
    shape: Shape
    dtype: str = "float32"

    def __str__(self) -> str:
        return "a result that follows from the inputs"


@dataclass(frozen=True)
class Known:
    """A tensor that no input has an influence on."""

    array: Array
    """Its dtype is object if an element depends on the batch."""
    name: str = ""
    """Name of the initializer that a program may train; "" for other constants."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def is_trainable(self) -> bool:
        return bool(self.name)

    @property
    def number(self) -> float | None:
        """The only element, if it is finite."""
        if self.array.size != 1 or self.array.dtype == object:
            return None
        number = float(self.array.reshape(-1)[0])
        return number if np.isfinite(number) else None

    def __str__(self) -> str:
        return f"a constant of {self.array.dtype}"


@dataclass(frozen=True)
class Unknown:
    """The result of a node that programs don't have."""

    is_value: bool = True
    """Whether it follows from the inputs' elements."""

    def __str__(self) -> str:
        return "an unknown result"


@dataclass(frozen=True)
class Bell:
    """factor * (offset + erf(x / sqrt(2))): parts of a GELU, which no step computes alone."""

    x: Value
    factor: float = 1.0
    offset: int = 0

    @property
    def shape(self) -> Shape:
        return self.x.shape

    def __str__(self) -> str:
        return "Erf elsewhere than in a GELU"


@dataclass(frozen=True)
class Parts:
    """The sequence of values into which one is split."""

    values: Sequence[Value]

    def __str__(self) -> str:
        return "a sequence of tensors"


Operand = Any  # Value, Known, Unknown, Bell, Parts, or None for an omitted one


@dataclass(frozen=True)
class Node:
    """A node of the graph, with the values of its attributes."""

    operator: str
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any]
    opset: int

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def numbers(self, name: str, default: Sequence[int]) -> list[int]:
        return [int(one) for one in self.attributes.get(name, default)]
