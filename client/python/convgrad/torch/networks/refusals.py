"""Errors that name a module of a model."""

from __future__ import annotations

import re

from torch import nn

from convgrad.errors import Unimplemented, unimplemented


class Refusals:
    """What of a model a program can't say: one error in the end, for the whole model."""

    def __init__(self) -> None:
        self._errors: dict[tuple[str, ...], list[Unimplemented]] = {}

    def add(self, error: Unimplemented) -> None:
        # Without shapes and names of tensors.
        kind = re.split(r" of \(|, ", error.found)[0]
        self._errors.setdefault((kind, error.expected), []).append(error)

    def check(self) -> None:
        """Raises what was added, if anything: each kind once, with count and first place."""
        kinds = sorted(self._errors.values(), key=len, reverse=True)
        if not kinds:
            return
        if len(kinds) == 1:
            error = kinds[0][0]
            if len(kinds[0]) > 1:
                error.message += f"; {len(kinds[0])} times in all"
            raise error
        lines = []
        for errors in kinds:
            where = errors[0].field.removeprefix("model.")
            _, see, line = errors[0].message.rpartition("; see ")
            lines.append(f"{len(errors)} x {errors[0].found}, first in {where}"
                         f"{see and f' at {line}'}, expected {errors[0].expected}")
        raise unimplemented("model", "all of this:\n  " + ";\n  ".join(lines), "")


def named(module: nn.Module, path: str) -> str:
    """Returns how errors call a module."""
    return f"{path or 'the model'} ({type(module).__name__})"


def refuse(where: str, found: object, expected: str) -> Unimplemented:
    return unimplemented(f"model.{where}", found, expected)
