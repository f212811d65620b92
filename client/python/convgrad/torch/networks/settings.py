"""Detects changes of a model's settings: its modules' attributes, submodules, tensors, hooks.

A forward may read any of them, so a change of any may change the program. Changes of
module-level variables and closures aren't detected.
"""

from __future__ import annotations

import types
from collections.abc import Container
from typing import Any

import torch
from torch import nn

from convgrad.torch.networks.refusals import refuse
from convgrad.torch.networks.tracing import has_hooks

_WORDS = {bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device,
          torch.memory_format}
_OPAQUE = (nn.Module, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType,
           types.MethodType, torch.Tensor)
_CONTAINERS = (dict, list, tuple, set, frozenset)
_STRUCTURE = ("_modules", "_parameters", "_buffers")
# Values that are nested deeper aren't settings.
_MAX_DEPTH = 4


class Same:
    """Compares a value by identity. Keeps a reference to it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def frozen(value: Any, depth: int = 0) -> Any:
    """Returns a hashable value that is equal for equal settings."""
    if type(value) in _WORDS:
        return type(value), value
    if depth > _MAX_DEPTH:
        return Same(value)
    if isinstance(value, dict):
        return type(value), tuple((frozen(k, depth + 1), frozen(v, depth + 1))
                                  for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return type(value), tuple(frozen(one, depth + 1) for one in value)
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(frozen(one, depth + 1) for one in value)
    if isinstance(value, _OPAQUE) or not hasattr(value, "__dict__"):
        return Same(value)
    return Same(value), frozen(vars(value), depth + 1)


def copied(value: Any, depth: int = 0) -> Any:
    """Returns a copy that shares everything except containers."""
    if type(value) in _WORDS or not isinstance(value, _CONTAINERS) or depth > _MAX_DEPTH:
        return value
    if isinstance(value, dict):
        return {key: copied(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [copied(one, depth + 1) for one in value]
    if type(value) is tuple:
        return tuple([copied(one, depth + 1) for one in value])
    return set(value) if isinstance(value, set) else value


def differs(now: Any, before: Any) -> bool:
    try:
        return bool(now != before)
    except Exception:  # raised by different tensors and arrays; the same ones aren't compared
        return True


class Settings:
    """Numbers the settings that a model has had. Owned by one thread.

    look() runs before each run and compares dictionaries, which takes about 0.5 us per module.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._numbers: dict[Any, int] = {}
        self._versions: list[int] = []
        self._read()
        self.forgive()

    def look(self) -> bool:
        """Records the current settings; returns whether modules or tensors were replaced.

        Errors: Unimplemented for a tensor that was changed in place.
        """
        if [tensor._version for tensor in self._tensors] != self._versions:
            self._refuse_change()
        if not differs(self._now, self._before):
            return False
        self._read_modes()
        if not differs(self._now, self._before):
            return False
        is_other = any(differs(now[name], before[name])
                       for now, before in zip(self._now, self._before) for name in _STRUCTURE
                       if name in now)
        self._read()
        if is_other:
            self.forgive()
        return is_other

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that differs for different settings, as of the last look()."""
        return (self._own, self._modes, tuple([p.requires_grad for p in self._parameters]),
                any([has_hooks(p) for p in self._parameters]))

    def forgive(self, only: Container[int] | None = None) -> None:
        """Accepts the current versions of all tensors, or of those with these ids, because the
        server has their values."""
        self._versions = [
            tensor._version if only is None or id(tensor) in only else self._versions[i]
            for i, tensor in enumerate(self._tensors)]

    def _read_modes(self) -> None:
        """Reads only the modes, because train() and eval() are frequent."""
        self._modes = tuple([module.training for module in self._modules])
        for before, mode in zip(self._before, self._modes):
            before["training"] = mode

    def _read(self) -> None:
        self._modules = list(self._model.modules())
        self._parameters = list(self._model.parameters())
        self._tensors = [*self._parameters, *self._model.buffers()]
        self._now = [vars(module) for module in self._modules]
        for attributes in self._now[:]:
            self._now += _objects_in(attributes)
        self._before = [copied(attributes) for attributes in self._now]
        self._read_modes()
        numbers = []
        for module in self._modules:
            own = {k: v for k, v in vars(module).items() if k != "training"}
            numbers.append(self._numbers.setdefault((type(module), frozen(own)),
                                                    len(self._numbers)))
        self._own = tuple(numbers)

    def _refuse_change(self) -> None:
        versions = {id(t): v for t, v in zip(self._tensors, self._versions)}
        for name, tensor in (*self._model.named_parameters(), *self._model.named_buffers()):
            if tensor._version != versions.get(id(tensor), tensor._version):
                raise refuse(name, "a change in place of a tensor that is on the server",
                             "net.load_state_dict with the new values")


def _objects_in(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the attributes of objects that are neither modules nor tensors."""
    found: list[dict[str, Any]] = []

    def look(value: Any, depth: int) -> None:
        if type(value) in _WORDS or depth > _MAX_DEPTH:
            return
        if isinstance(value, _CONTAINERS):
            for one in value.values() if isinstance(value, dict) else value:
                look(one, depth + 1)
        elif not isinstance(value, _OPAQUE) and hasattr(value, "__dict__"):
            found.append(vars(value))
            look(vars(value), depth + 1)

    for name, value in attributes.items():
        if name not in _STRUCTURE:
            look(value, 1)
    return found
