"""Offloads a model's convolutions to a server, and restores them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from convgrad.client import Client
from convgrad.errors import invalid
from convgrad.local.server import default_client
from convgrad.torch.idle_threads import quieten_for
from convgrad.torch.layers import modules
from convgrad.torch.layers.layer import check_forward, make_layer
from convgrad.torch.networks.module import RemoteModule

_LOG = logging.getLogger("convgrad")

Kind = type[nn.Module]

_CONVOLUTIONS: dict[Kind, Kind] = {
    nn.Conv1d: modules.Conv1d, nn.Conv2d: modules.Conv2d, nn.Conv3d: modules.Conv3d,
    nn.ConvTranspose1d: modules.ConvTranspose1d, nn.ConvTranspose2d: modules.ConvTranspose2d,
    nn.ConvTranspose3d: modules.ConvTranspose3d,
}
_LINEAR: dict[Kind, Kind] = {nn.Linear: modules.Linear}


@dataclass(frozen=True, repr=False)
class Offloaded:
    """The result of offload(): layers by their names in model.named_modules()."""

    taken: tuple[str, ...]
    left: dict[str, str]
    """Reason why torch still computes a layer, by its name."""

    def __repr__(self) -> str:
        lines = [f"Offloaded {len(self.taken)} layers: {', '.join(map(_shown, self.taken))}"]
        lines += [f"left {_shown(name)}: {reason}" for name, reason in self.left.items()]
        return "\n".join(lines)


def offload(model: nn.Module, client: Client | None = None, *, forward: str = "remote",
            linear: bool = False) -> Offloaded:
    """Makes the server compute the model's convolutions and, if `linear`, its linear layers.

    Without a client it uses this process's own server; see convgrad.LocalServer.

    Modules stay the same objects, with their parameters, parametrizations and hooks. Layers
    that were offloaded before get the new client. The result names layers that can't be
    offloaded, with the reason. restore() undoes offload().

    Errors: InvalidArgument for an invalid client, before anything is changed.
    """
    check_forward(forward)
    if client is None:
        client = default_client()
    make_layer(client, forward, rank=0)  # checks both
    if isinstance(client, Client):
        quieten_for(client)
    if isinstance(model, RemoteModule):
        raise invalid("INVALID_ENUM", "model", "a network that is on a server already",
                      "a model whose values are here")
    swaps = _CONVOLUTIONS | (_LINEAR if linear else {})
    taken, left = [], {}
    for name, module in model.named_modules():
        reason = _reason_to_leave(module, swaps)
        if reason:
            left[name] = reason
            continue
        _swap(module, swaps)
        if isinstance(module, tuple(swaps.values())):
            vars(module).update(client=client, forward_on=forward)
            taken.append(name)
    report = Offloaded(tuple(taken), left)
    _LOG.info("%r", report)
    return report


def restore(model: nn.Module) -> tuple[str, ...]:
    """Makes torch compute offloaded layers again; returns their names.

    Doesn't change user classes derived from convgrad.torch's.
    """
    restored = []
    for name, module in model.named_modules():
        if _swap(module, {ours: theirs for theirs, ours in (_CONVOLUTIONS | _LINEAR).items()}):
            for attribute in ("client", "forward_on"):
                module.__dict__.pop(attribute, None)
            restored.append(name)
    return tuple(restored)


def _shown(name: str) -> str:
    return name or "the model itself"


def _reason_to_leave(module: nn.Module, swaps: dict[Kind, Kind]) -> str | None:
    """Returns why a layer that should be offloaded can't be; None for other layers."""
    theirs = next((kind for kind in swaps if isinstance(module, kind)), None)
    kind = _own_kind(module)
    if theirs is None or kind is theirs or isinstance(module, swaps[theirs]):
        return None
    if isinstance(module, LazyModuleMixin):
        return (f"{kind.__name__} has no parameters yet, offload again after a batch went "
                "through the model")
    return (f"{kind.__name__} is derived from {theirs.__name__} and may compute something "
            f"else, derive it from convgrad.torch.{theirs.__name__} if it doesn't")


def _own_kind(module: nn.Module) -> Kind:
    """Returns the module's class without torch's subclass for parametrizations."""
    kind = type(module)
    return kind.__base__ if parametrize.is_parametrized(module) else kind  # type: ignore


def _swap(module: nn.Module, swaps: dict[Kind, Kind]) -> bool:
    """Replaces the module's class. Returns whether `swaps` has a replacement."""
    kind, wanted = type(module), swaps.get(_own_kind(module))
    if wanted is None:
        return False
    if parametrize.is_parametrized(module):
        # Built like parametrize._inject_new_class does, on the other class.
        body: dict[str, Any] = {name: value for name, value in vars(kind).items()
                                if name not in ("__dict__", "__weakref__")}
        wanted = type(f"Parametrized{wanted.__name__}", (wanted,), body)
    module.__class__ = wanted
    return True
