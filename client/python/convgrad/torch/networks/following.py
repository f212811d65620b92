"""Puts a model's new tensors on the server when its modules change."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from convgrad.errors import unimplemented
from convgrad.torch.networks.absent import absent, places_of, tensors_of
from convgrad.torch.networks.refusals import refuse
from convgrad.torch.networks.settings import Settings
from convgrad.torch.networks.tracing import check_model


class Following:
    """Tracks which of a model's tensors the session has. Owned by one thread.

    If the model gets a new module or tensor, such as a new head, its tensors are put into the
    session, and the model keeps only their shapes.
    """

    def __init__(self, model: nn.Module) -> None:
        self.settings = Settings(model)
        self.parameters = dict(model.named_parameters())
        """Parameters by name, as of the last follow()."""
        self._model = model
        self._on_server = tensors_of(model)
        self._structure = _structure_of(model)
        self._is_behind = False

    def follow(self, put: Callable[[dict[str, torch.Tensor]], None]) -> None:
        """Calls `put` with the tensors that the model has got since the last call.

        Errors: Unimplemented naming a tensor or module that a server can't have, or
        functional_call. A tensor without values isn't taken, and the model has the modules and
        tensors of the last call again, because what weight_norm has begun can't be undone.
        """
        self._is_behind |= self.settings.look()
        if not self._is_behind:
            return
        check_model(self._model)
        given = {}
        for name, tensor in tensors_of(self._model).items():
            if not tensor.is_meta:
                given[name] = tensor.detach()
            elif self._on_server.get(name) is not tensor:
                self._restore()
                raise refuse(name, "a tensor without values, from another place or model; the "
                             "network goes on with its earlier modules and tensors",
                             "tensors under the names that they had, or new ones with values")
        if given and _is_within_functional_call():
            raise unimplemented("functional_call", "other tensors than the network's",
                                "net.load_state_dict with them, before a call of the network")
        put(given)
        _drop_values(self._model)
        self._on_server |= tensors_of(self._model)
        self.parameters = dict(self._model.named_parameters())
        self._structure = _structure_of(self._model)
        self.settings.look()
        self._is_behind = False

    def _restore(self) -> None:
        for parts, before in self._structure:
            parts.clear()
            parts.update(before)
        self.settings.look()
        self._is_behind = False


def _structure_of(model: nn.Module) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Returns each module's submodules, parameters and buffers, beside copies of them."""
    return [(parts, dict(parts)) for module in model.modules() for parts in (
        module._modules, module._parameters, module._buffers)]


def _is_within_functional_call() -> bool:
    """Returns whether torch.func.functional_call lends the model tensors for one call."""
    return any(frame.f_code.co_name == "_functional_call"
               for frame, _ in traceback.walk_stack(sys._getframe(1)))


def _drop_values(model: nn.Module) -> None:
    """Replaces the model's tensors by their shapes. Tied tensors stay tied."""
    shapes: dict[int, Any] = {}
    for own, name, tensor in places_of(model):
        if not tensor.is_meta:
            # Keeps the tensor as well, so that no other tensor gets its id.
            _, own[name] = shapes.setdefault(id(tensor), (tensor, absent(tensor)))
