"""Defines errors that name modules of a model that a server can't compute."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from convgrad.errors import ConvgradError, Unimplemented, unimplemented


class Refusal(NamedTuple):
    """One kind of thing in a model that a server can't compute."""

    times: int
    """Number of occurrences in the model."""
    found: str
    """The operator, or another reason."""
    expected: str
    module: str
    """Path and class of the first module that contains it."""
    line: str
    """File and line of the module's forward; "" if unknown."""


class Refused(Unimplemented):
    """Lists everything in a model that a server can't compute."""

    refusals: tuple[Refusal, ...] = ()


def refusals_of(error: ConvgradError) -> tuple[Refusal, ...]:
    """Returns the refusals in an error about a model."""
    if isinstance(error, Refused):
        return error.refusals
    return (_refusal_of([error]),)


def _refusal_of(errors: Sequence[ConvgradError]) -> Refusal:
    first = errors[0]
    line = first.message.rpartition("; see ")[2] if "; see " in first.message else ""
    return Refusal(len(errors), first.found or first.message, first.expected,
                   first.field.removeprefix("model."), line)


class Refusals:
    """Collects everything in a model that a server can't compute, for a single error."""

    def __init__(self) -> None:
        self._errors: dict[tuple[str, ...], list[Unimplemented]] = {}

    def add(self, error: Unimplemented) -> None:
        # Cuts off shapes and names of tensors.
        kind = re.split(r" of \(|, ", error.found)[0]
        self._errors.setdefault((kind, error.expected), []).append(error)

    def check(self) -> None:
        """Raises an error if anything was added. It names each kind once, with count and first
        place."""
        kinds = sorted(self._errors.values(), key=len, reverse=True)
        if not kinds:
            return
        first, found = kinds[0][0], tuple(map(_refusal_of, kinds))
        if len(kinds) == 1:
            error = Refused(first.message)
            error.field, error.found, error.expected = first.field, first.found, first.expected
            if found[0].times > 1:
                error.message += f"; {found[0].times} times in all"
        else:
            said = "all of this:\n  " + ";\n  ".join(
                f"{it.times} x {it.found}, first in {it.module}"
                f"{it.line and f' at {it.line}'}, expected {it.expected}" for it in found)
            error = Refused.of("model", said, "")
        error.reason, error.refusals = first.reason, found
        raise error


_WHOLE = "the model"


def named(model: nn.Module, path: str) -> str:
    """Returns the name of the model's module at this path for errors."""
    return f"{path or _WHOLE} ({type(model.get_submodule(path)).__name__})"


def refuse(where: str, found: object, expected: str) -> Unimplemented:
    is_whole = where.startswith(_WHOLE)
    return unimplemented(where if is_whole else f"model.{where}", found, expected)
