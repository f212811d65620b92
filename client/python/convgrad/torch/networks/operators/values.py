"""Defines values and shapes for the functions of operators, and the importer that they call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from convgrad.errors import Unimplemented
from convgrad.importers.tensors import Tensor
from convgrad.programs import Attribute

# Untyped, because types are checked with PyTorch 1.13, which lacks some of its names.
_TORCH: Any = torch
INDICES = (torch.int64, torch.int32)
"""Dtypes of an input that may have indices."""


@dataclass(frozen=True)
class Value(Tensor):
    """A tensor: the program's value that it holds."""

    name: str
    memory: int
    """Equal for tensors that are views of one another."""
    branch: int = 0
    """Differs between tensors that share memory or don't, as torch's contiguous() decides."""
    kind: str = "a result"
    """Or "a parameter", "an input", "a loss", "a count"."""
    shape: tuple[Any, ...] = ()
    """Numbers, and expressions of the batch."""
    dtype: Any = torch.float32
    time: int = 0
    """How often tensors had been changed in place when it was made."""
    views: tuple[View, ...] = field(default=(), compare=False, repr=False)
    """The chain of views from the whole tensor in this memory to it."""

    @property
    def whole(self) -> Value:
        """The tensor that it is a view of, or itself."""
        return self.views[0].base if self.views else self

    @property
    def is_places(self) -> bool:
        """Whether it is a buffer of indices or a view of one, for which a program has no steps.
        index_select() does the same to what it takes at the places of the whole buffer."""
        return self.kind == "a parameter" and self.whole.dtype in INDICES


@dataclass(frozen=True)
class View:
    """A view: how it follows from a tensor, and a changed tensor from a changed view."""

    key: tuple[Any, ...]
    """Equal for views of equal tensors that have the same elements."""
    base: Value
    again: Callable[[Importer, Value], Value]
    """Returns the view of another value of the base's shape."""
    put: Callable[[Importer, Value, Value], Value] | None = None
    """Returns the value that has the second one as this view, and is the first one elsewhere.
    None: the view's elements share memory."""


@dataclass(frozen=True, kw_only=True)
class Wide(Value):
    """A tensor of more axes than a value has. No step takes one: it is a value of fewer axes,
    which are to be split and permuted."""

    base: Value
    sizes: tuple[Any, ...]
    """The base's extents, split."""
    order: tuple[int, ...]
    """The tensor's axes, as axes of `sizes`."""


@dataclass
class Noise:
    """A tensor of random ones and zeros, or of nothing yet, and its factor."""

    shape: tuple[Any, ...]
    keep: float | None = None
    divisor: float = 1.0
    raised: float | None = None
    """The number that was added to random numbers from 0 to 1 before they are rounded down."""
    users: list[Any] = field(default_factory=list)
    """The values that were multiplied with these numbers, or with others of the same draw; the
    nodes, if the client draws the numbers."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was drawn."""
        return self.keep is None and self.raised is None

    def __str__(self) -> str:
        return f"random numbers of {text_of(self.shape)}"


@dataclass(frozen=True)
class Constant:
    """A tensor in the forward that is neither an input nor one of the model's."""

    path: str
    tensor: torch.Tensor | None

    def __str__(self) -> str:
        return f"{self.path}, a tensor that is neither parameter nor buffer"


@dataclass(frozen=True)
class Empty:
    """A tensor without elements."""

    shape: tuple[Any, ...]

    def __str__(self) -> str:
        return f"a tensor without elements, {text_of(self.shape)}"


class Unknown:
    """The result of a call for which programs have no operator."""


class Importer(Protocol):
    """The importer: follows a model's calls and has the program."""

    def refuse(self, found: object, expected: str) -> Unimplemented:
        """Returns the error that names the module under way, and the line of its forward."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the result under way."""

    @property
    def dtype(self) -> Any:
        """The dtype of the result under way; None for several results."""

    def add(self, operator: str, *operands: Any, shape: tuple[Any, ...] = (),
            parameters: Sequence[Any] = (), view: View | None = None,
            **attributes: Attribute | None) -> Value:
        """Adds a step of these operands, then parameters. Attributes that are None are left
        out; `shape_` is the attribute `shape`. A result of the call under way needs no
        shape."""

    def constant(self, tensor: torch.Tensor) -> Value:
        """Returns a fixed parameter with these values."""

    def is_ones(self, value: Value) -> bool:
        """Returns whether the value is a constant of ones."""

    def is_positive(self, value: Value) -> bool:
        """Returns whether the value is a clamp to more than 0, or powers or means of one."""

    def indices(self, value: Value) -> Value:
        """Returns a value of torch.int64 as a step takes it for indices."""

    def sent(self, value: Value, then: Callable[..., torch.Tensor]) -> Value | None:
        """Returns an input with what `then` makes of an operand of the call under way, which
        the client computes in each call. None if the operand doesn't follow from the call's
        inputs alone."""

    def is_range(self, value: Any, extent: Any) -> bool:
        """Returns whether a value or a constant has 0, 1, ... up to the extent."""

    @property
    def is_returned(self) -> bool:
        """Whether the forward only returns the result under way."""

    def has_gradient(self, value: Value) -> bool:
        """Returns whether a backward may give the value a gradient that it passes on."""

    def apart(self, value: Value) -> Value:
        """Returns the same value in memory of its own."""

    def like(self, extent: Any) -> Value:
        """Returns a value whose first axis has this extent, which depends on the batch."""

    def count_batch(self, batches: Value) -> Value:
        """Notes that 1 was added to a num_batches_tracked, which a batch_norm then does."""

    def take_count(self) -> Value | None:
        """Returns what count_batch() has noted in the module under way, if anything."""


def text_of(shape: Sequence[Any]) -> str:
    """Returns the shape with N for the batch."""
    return f"({', '.join(str(n) if isinstance(n, int) else 'N' for n in shape)})"


def plain(value: Any) -> Any:
    """Returns the number or, if it depends on the batch, its expression."""
    if not isinstance(value, (_TORCH.SymInt, _TORCH.SymFloat)):
        return value
    expression = value.node.expr
    if not expression.is_number:
        return expression
    return int(expression) if isinstance(value, _TORCH.SymInt) else float(expression)
