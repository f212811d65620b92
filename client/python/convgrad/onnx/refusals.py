"""Defines errors that name nodes of a model that a server can't compute."""

from __future__ import annotations

from typing import NamedTuple

from convgrad.errors import Unimplemented, message_of, unimplemented


class Refusal(NamedTuple):
    """One kind of thing in a model that a server can't compute."""

    times: int
    """Number of occurrences in the model."""
    found: str
    """The operator, or another reason."""
    expected: str
    node: str
    """The first node, by its name or by its first output."""


class Refused(Unimplemented):
    """Lists everything in a model that a server can't compute."""

    refusals: tuple[Refusal, ...] = ()


def refuse(node: str, found: object, expected: str) -> Unimplemented:
    return unimplemented(f"model.{node}", found, expected)


class Refusals:
    """Collects everything in a model that a server can't compute, for a single error."""

    def __init__(self) -> None:
        self._errors: dict[tuple[str, str], list[Unimplemented]] = {}

    def add(self, error: Unimplemented) -> None:
        self._errors.setdefault((error.found, error.expected), []).append(error)

    def check(self) -> None:
        """Raises an error if anything was added. It names each kind once, with count and first
        node."""
        kinds = sorted(self._errors.values(), key=len, reverse=True)
        if not kinds:
            return
        found = tuple(Refusal(len(kind), kind[0].found, kind[0].expected,
                              kind[0].field.removeprefix("model.")) for kind in kinds)
        said = ";\n  ".join(f"{it.times} x {it.found}, first in {it.node}, expected "
                            f"{it.expected}" for it in found)
        first = kinds[0][0]
        error = Refused(message_of("model", f"all of this:\n  {said}", "")
                        if len(found) > 1 or found[0].times > 1 else first.message)
        error.field, error.found, error.expected = "model", said, first.expected
        error.reason, error.refusals = first.reason, found
        raise error
