"""Encodes what a trainer keeps with its session: its position, random state, schedule."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import torch

from convgrad.errors import invalid


class TrainerStates:
    """Encodes the states of one trainer."""

    def __init__(self) -> None:
        self._is_checked = False

    def encode(self, state: Mapping[str, Any] | None) -> bytes:
        """Returns the state as bytes; None becomes no bytes.

        Errors: InvalidArgument, for the first state, if decode() couldn't read it.
        """
        if state is None:
            return b""
        file = io.BytesIO()
        torch.save(dict(state), file)
        encoded = file.getvalue()
        if not self._is_checked:
            try:
                decode(encoded)
            except Exception as error:  # pickle's, and torch's
                raise invalid("UNSUPPORTED", "trainer_state", error,
                              "numbers, strings, lists, dicts and tensors") from None
            self._is_checked = True
        return encoded


def decode(encoded: bytes) -> dict[str, Any]:
    """Returns the state; {} for no bytes. Runs no code that the bytes may name."""
    if not encoded:
        return {}
    state: dict[str, Any] = torch.load(io.BytesIO(encoded), weights_only=True)
    return state
