"""Errors that name a module of a model."""

from __future__ import annotations

from torch import nn

from convgrad.errors import Unimplemented, unimplemented


def named(module: nn.Module, path: str) -> str:
    """Returns how errors call a module."""
    return f"{path or 'the model'} ({type(module).__name__})"


def refuse(where: str, found: object, expected: str) -> Unimplemented:
    return unimplemented(f"model.{where}", found, expected)
