"""What stands for a parameter that is on the server."""

from __future__ import annotations

from typing import Any

import torch

from convgrad.errors import unimplemented
from convgrad.torch.remote_state import RemoteState


class RemoteParameter:
    """A parameter's name and settings; no tensor. convgrad.torch.optim takes them."""

    def __init__(self, network: RemoteState, name: str, tensor: torch.Tensor) -> None:
        """`tensor` has its shape, and requires_grad as the next run is to see it."""
        self.network = network
        self.name = name
        self._tensor = tensor

    def stands_for(self, tensor: torch.Tensor) -> bool:
        return self._tensor is tensor

    @property
    def is_current(self) -> bool:
        """Whether the network still has the parameter, and not another one in its place."""
        return self.network.parameter(self.name) is self._tensor

    @property
    def shape(self) -> torch.Size:
        return self._tensor.shape

    @property
    def requires_grad(self) -> bool:
        return self._tensor.requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self._tensor.requires_grad = wanted

    def requires_grad_(self, requires_grad: bool = True) -> RemoteParameter:
        self.requires_grad = requires_grad
        return self

    def numel(self) -> int:
        return self._tensor.numel()

    @property
    def grad(self) -> Any:
        """Raises Unimplemented, as it is reached by torch.nn.utils.clip_grad_norm_ and
        GradScaler, too."""
        raise unimplemented(
            f"parameters.{self.name}.grad", "a parameter that is on the server",
            "net.gradients() for all gradients, net.clip_grad_norm_() to clip them")

    def __getattr__(self, name: str) -> Any:
        if name == "__qualname__":
            # As torch.optim calls an object that it can't take.
            return (f"RemoteParameter '{self.name}', which is on the server: use "
                    "convgrad.torch.optim")
        raise AttributeError(
            f"parameter '{self.name}' is on the server and has no '{name}' here; "
            "net.state_dict() fetches its value, convgrad.torch.optim trains it")

    def __repr__(self) -> str:
        return (f"RemoteParameter({self.name!r}, {list(self.shape)}, "
                f"requires_grad={self.requires_grad})")
