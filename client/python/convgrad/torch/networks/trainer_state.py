"""Encodes what a trainer keeps with its session: its position, random state, schedule."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import torch

from convgrad.errors import invalid

# A state, or a function that returns it when it is sent.
TrainerState = Mapping[str, Any] | Callable[[], Mapping[str, Any]]


def encode(state: TrainerState) -> bytes:
    """Returns the state as bytes. Errors: InvalidArgument if decode() couldn't read it."""
    if callable(state):
        state = state()
    file = io.BytesIO()
    torch.save(dict(state), file)
    encoded = file.getvalue()
    try:
        decode(encoded)
    except Exception as error:  # pickle's, and torch's
        raise invalid("UNSUPPORTED", "trainer_state", error,
                      "numbers, strings, lists, dicts and tensors") from None
    return encoded


def decode(encoded: bytes) -> dict[str, Any]:
    """Returns the state; {} for no bytes. Runs no code that the bytes may name."""
    if not encoded:
        return {}
    return torch.load(io.BytesIO(encoded), weights_only=True)
