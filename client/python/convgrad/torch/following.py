"""Keeps the server's tensors those of a model whose modules change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from convgrad.torch.refusals import refuse
from convgrad.torch.remote_parameters import RemoteParameter
from convgrad.torch.settings import Settings
from convgrad.torch.tracing import check_model, without_value

if TYPE_CHECKING:
    from convgrad.torch.remote_network import RemoteNetwork


class Following:
    """Knows which of a model's tensors the session has. Owned by one thread.

    A module or tensor that the model is given later, as a new head, is put into the session,
    and only its shape stays here.
    """

    def __init__(self, model: nn.Module, network: RemoteNetwork) -> None:
        self.settings = Settings(model)
        self.handles: dict[str, RemoteParameter] = {}
        """Of the model's parameters, by name."""
        self._model = model
        self._network = network
        self._on_server = _tensors_of(model)
        self._known: dict[str, RemoteParameter] = {}
        self._is_behind = False
        self._name_handles()

    def follow(self) -> None:
        """Takes note of what the model is now; puts tensors that it has got since.

        Errors: Unimplemented naming the tensor or module that a server can't have.
        """
        self._is_behind |= self.settings.look()
        if not self._is_behind:
            return
        check_model(self._model)
        given = {}
        for name, tensor in _tensors_of(self._model).items():
            if not tensor.is_meta:
                given[name] = tensor.detach()
            elif self._on_server.get(name) is not tensor:
                raise refuse(name, "a tensor without values, from another place or model",
                             "tensors under the names that they had, or new ones with values")
        self._network.replace(given)
        _drop_values(self._model)
        self._on_server |= _tensors_of(self._model)
        self._name_handles()
        self.settings.look()
        self._is_behind = False

    def _name_handles(self) -> None:
        self.handles = {
            name: old if old and old.stands_for(tensor) else RemoteParameter(
                self._network, name, tensor)
            for name, tensor in self._model.named_parameters()
            for old in [self._known.get(name)]}
        self._known |= self.handles


def _tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return dict((*model.named_parameters(), *model.named_buffers()))


def _drop_values(model: nn.Module) -> None:
    """Leaves tensors' shapes in the model, tied ones tied."""
    shapes: dict[int, Any] = {}
    for module in model.modules():
        for own in (module._parameters, module._buffers):
            for name, tensor in own.items():
                if tensor is not None and not tensor.is_meta:
                    # The tensor, too, for its id to stay its own.
                    _, own[name] = shapes.setdefault(
                        id(tensor), (tensor, without_value(tensor)))
