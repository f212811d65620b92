"""What the functions of operators share: values, shapes, and what they ask of the importer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from convgrad.errors import Unimplemented
from convgrad.programs import Attribute


@dataclass(frozen=True)
class Value:
    """A tensor: the program's value that it holds."""

    name: str
    memory: int
    """Equal for tensors that are views of one another."""
    branch: int = 0
    """Differs between tensors that share memory or don't, as torch's contiguous() decides."""
    kind: str = "a result"
    """Or "a parameter", "an input"."""
    shape: tuple[Any, ...] = ()
    """Numbers, and expressions of the batch."""
    dtype: Any = torch.float32


@dataclass
class Noise:
    """A tensor of random ones and zeros, or of nothing yet, and its factor."""

    shape: tuple[Any, ...]
    keep: float | None = None
    divisor: float = 1.0

    def __str__(self) -> str:
        return f"random numbers of {text_of(self.shape)}"


class Importer(Protocol):
    """What follows a model's calls and has the program."""

    def refuse(self, found: object, expected: str) -> Unimplemented:
        """Returns the error that names the module under way."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the result under way."""

    @property
    def dtype(self) -> Any:
        """The dtype of the result under way; None for several results."""

    def add(self, operator: str, *operands: Any, parameters: Sequence[Any] = (),
            view_of: Value | None = None, **attributes: Attribute | None) -> Value:
        """Adds a step of these operands, then parameters. Attributes that are None are left
        out."""

    def like(self, extent: Any) -> Value:
        """Returns a value whose first axis has this extent, which depends on the batch."""

    def copy(self, value: Value) -> Value:
        """Returns the same value in memory of its own."""

    def branch(self, value: Value) -> Value:
        """Returns the same value, in the same memory or in a copy."""

    def count_batch(self, batches: Value) -> Value:
        """Notes that 1 was added to a num_batches_tracked, which a batch_norm then does."""

    def take_count(self) -> Value | None:
        """Returns what count_batch() has noted in the module under way, if anything."""


def text_of(shape: Sequence[Any]) -> str:
    """Returns the shape with N for the batch."""
    return f"({', '.join(str(n) if isinstance(n, int) else 'N' for n in shape)})"


def padded(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the extents that a program has for the shape: two at least, leading ones of 1."""
    return (*[1] * (2 - len(shape)), *shape)


def axis_of(shape: Sequence[Any], dim: int) -> int:
    """Returns the axis of padded(shape) that torch calls `dim`."""
    return dim % max(len(shape), 1) + max(2 - len(shape), 0)
