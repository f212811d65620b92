"""Defines errors that name modules of a model that a server can't compute, or a function of
torch that can't follow a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch import nn

from convgrad.errors import ConvgradError, Unimplemented, unimplemented

# Untyped, because types are checked with PyTorch 1.13, which lacks some of its names.
_TORCH: Any = torch
VALUES = ("a tensor's values, which aren't known while its forward is followed",
          "operators of torch alone, which the server computes")
"""What is found, and what is expected, where a forward reads values."""


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


def field_of(where: str) -> str:
    """Returns an error's field for what named() returns, or for a part of the model."""
    return where if where.startswith(_WHOLE) else f"model.{where}"


def refuse(where: str, found: object, expected: str, line: str = "") -> Unimplemented:
    """Returns the error. `line` is the forward's file and line, if they are known."""
    error = unimplemented(field_of(where), found, expected)
    if line:
        error.message += f"; see {line}"
    return error


def check_followed(values: tuple[Any, ...]) -> None:
    """Raises Unimplemented if torch follows or transforms a call with these arguments. It would
    take the results for constants."""
    function = _what_follows(values)
    if function:
        refuse_following(function)


def refuse_following(function: str) -> NoReturn:
    raise unimplemented(function, "a remote network in what it follows",
                        "calls of the network outside: the server compiles networks itself")


def _what_follows(values: tuple[Any, ...]) -> str:
    """Returns the function of torch that does so; "" if none does."""
    if _TORCH.compiler.is_dynamo_compiling():
        return "torch.compile"
    # is_compiling() is also true while another thread exports a model.
    if _TORCH.compiler.is_compiling() and any(
            type(x).__module__.startswith("torch._subclasses") for x in values):
        return "torch.compile"
    if torch._C._is_tracing():
        return "torch.jit.trace"
    if _TORCH._C._get_dispatch_mode(_TORCH._C._TorchDispatchModeKey.PROXY) is not None:
        return "make_fx"
    if _TORCH._C._functorch.peek_interpreter_stack() is not None:
        return "torch.func"
    forward_ad = _TORCH.autograd.forward_ad
    if forward_ad._current_level >= 0 and any(
            isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None
            for x in values):
        return "torch.autograd.forward_ad"
    return ""
