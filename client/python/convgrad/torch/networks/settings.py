"""Detects changes of a model's settings: attributes of its modules, of their classes and of the
objects that they have; submodules, tensors, hooks.

A forward may read any of them, so a change of any may change the program. Changes of
module-level variables, closures and arrays aren't detected.
"""

from __future__ import annotations

import collections
import enum
import logging
import operator
import pathlib
import types
from collections.abc import Callable, Collection, Container
from itertools import chain
from typing import Any

import torch
from torch import nn

from convgrad.torch.networks.refusals import refuse
from convgrad.torch.networks.tracing import check_model, has_hooks

_LOG = logging.getLogger("convgrad")
MANY = 10
"""How often something may make another export before a warning."""
_WORDS = {bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device,
          torch.memory_format}
OPAQUE = (nn.Module, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType,
           types.MethodType, torch.Tensor, enum.Enum, logging.Logger, pathlib.PurePath)
_CONTAINERS = (dict, list, tuple, set, frozenset)
_STRUCTURE = ("_modules", "_parameters", "_buffers")
_OF_EACH = frozenset(vars(nn.Module()))
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


def frozen(value: Any, depth: int = 0, hidden: Container[int] = (),
           inside: Callable[[Any], Any] = type) -> Any:
    """Returns a hashable value that is equal for equal settings. 1, 1.0 and True differ, and so
    do 0.0 and -0.0. `hidden` has the ids of modules whose attributes are settings, too.
    `inside` returns what else of an object matters."""
    def again(one: Any) -> Any:
        return frozen(one, depth + 1, hidden, inside)

    if isinstance(value, (float, complex)):
        return type(value), repr(value)
    if type(value) in _WORDS:
        return type(value), value
    if depth > _MAX_DEPTH:
        return Same(value)
    if isinstance(value, dict):
        return type(value), tuple((again(k), again(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(again, value))
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(map(again, value))
    classes = _frozen_classes(value)
    if isinstance(value, OPAQUE) and id(value) not in hidden:
        return Same(value), classes
    slots = tuple([again(read(value)) for read in _slots_of(value)])
    return Same(value), classes, slots, again(_attributes_of(value)), inside(value)


def changed_part(name: str, before: Any, now: Any) -> tuple[str, str]:
    """Returns what has changed in the attribute `name`, "name.part" if it is an object, and how
    to set it before. Takes what frozen() has returned before and now."""
    if isinstance(before, tuple) and isinstance(now, tuple) and len(before) == len(now) == 5:
        old = set(before[3][1] or ())
        for (_, part), value in now[3][1] or ():
            if ((str, part), value) not in old and len(value) == 2 and type(value[1]) in _WORDS:
                # frozen() gives the text of these numbers.
                text = value[1] if issubclass(value[0], (float, complex)) else repr(value[1])
                return f"{name}.{part}", f", or {name}.{part} = {text} before it"
    return name, ""


def _attributes_of(value: Any) -> dict[str, Any] | None:
    """Returns the dictionary of an object's attributes, if it has one. dict[str, int] gives a
    new proxy of its class' dictionary in each read."""
    attributes = getattr(value, "__dict__", None)
    return attributes if isinstance(attributes, dict) else None


def _frozen_classes(value: Any) -> tuple[Any, ...]:
    """Takes objects that a class has by their identity, because they may be its own instances,
    as an enum's are."""
    return tuple([(name, frozen(one, _MAX_DEPTH + (not isinstance(one, _CONTAINERS))))
                  for kind in classes_of(value) for name, one in vars(kind).items()
                  if not name.startswith("__")])


def classes_of(value: Any) -> list[type]:
    """Returns the classes, of neither Python nor torch, from which a value has attributes."""
    kind = value if isinstance(value, type) else type(value)
    return [one for one in kind.__mro__
            if str(one.__module__).partition(".")[0] not in ("builtins", "enum", "torch")]


def _slots_of(value: Any) -> list[Callable[[Any], Any]]:
    """Returns what reads each of the value's slots; None of one without a value."""
    def reading(member: Any) -> Callable[[Any], Any]:
        def read(one: Any) -> Any:
            try:
                return member.__get__(one)
            except AttributeError:
                return None

        return read

    # A class written in C may make a new object in each read.
    return [reading(member) for kind in type(value).__mro__ if "__slots__" in vars(kind)
            for member in vars(kind).values() if isinstance(member, types.MemberDescriptorType)]


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
    """Numbers the settings that a model has had. Owned by one thread. Warns once about an
    attribute that often gets another value, because each one exports the model again.

    look() runs before each run and compares dictionaries and the identity of their values,
    which takes about 1 us per module.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._numbers: dict[Any, int] = {}
        self._changes = collections.Counter[str]()
        self._versions: list[int] = []
        self._read()
        self.forgive()

    def look(self) -> bool:
        """Records the current settings; returns whether modules or tensors were replaced.

        Errors: Unimplemented for a tensor that was changed in place.
        """
        if [tensor._version for tensor in self._tensors] != self._versions:
            self._refuse_change()
        if self._is_same():
            return False
        self._read_modes()
        if self._is_same():
            return False
        is_other = any(differs(now[name], before[name])
                       for now, before in zip(self._now, self._before) for name in _STRUCTURE
                       if name in now)
        names = {name for now, before in zip(self._now, self._before) for name in now
                 if now[name] is not before.get(name) and differs(now[name], before.get(name))}
        known = len(self._numbers)
        self._read()
        if is_other:
            self.forgive()
        elif len(self._numbers) > known:
            self._count(names)
        return is_other

    def _count(self, names: Collection[str]) -> None:
        self._changes.update(names)
        for name in names:
            if self._changes[name] == MANY:
                _LOG.warning(
                    "'%s' of the model has got %d other values, and the network exports the "
                    "model for each; keep what the forward doesn't read elsewhere", name, MANY)

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

    def _is_same(self) -> bool:
        if differs(self._now, self._before):
            return False
        values = self._values()  # of which equal ones may differ, as 1 and True
        return len(values) == len(self._held) and all(map(operator.is_, values, self._held))

    def _values(self) -> list[Any]:
        return [*chain.from_iterable(self._views), *[read(one) for read, one in self._slots]]

    def _read_modes(self) -> None:
        """Reads only the modes, because train() and eval() are frequent."""
        self._modes = tuple([module.training for module in self._modules])
        for before, place, mode in zip(self._before, self._places, self._modes):
            before["training"] = self._held[place] = mode

    def _read(self) -> None:
        self._modules = list(self._model.modules())
        self._parameters = list(self._model.parameters())
        self._tensors = [*self._parameters, *self._model.buffers()]
        self._read_values()
        self._before = [copied(attributes) for attributes in self._now]
        self._held = self._values()
        self._read_modes()
        numbers = []
        classes: dict[type, Any] = {}
        for module in self._modules:
            kind = type(module)
            if kind not in classes:
                classes[kind] = _frozen_classes(module)
            own = {k: v for k, v in vars(module).items() if k != "training"}
            numbers.append(self._numbers.setdefault(
                (kind, classes[kind], frozen(own, hidden=self._hidden)), len(self._numbers)))
        self._own = tuple(numbers)

    def _read_values(self) -> None:
        """Finds the dictionaries and views of all values that are settings."""
        self._now = [vars(module) for module in self._modules]
        self._views: list[Collection[Any]] = [own.values() for own in self._now]
        self._slots: list[tuple[Callable[[Any], Any], Any]] = []
        self._hidden: set[int] = set()
        self._places: list[int] = []  # of the modes among the values
        first = 0
        for own in self._now:
            names = list(own)  # without a mode: those of a RemoteModule, which is refused
            self._places.append(first + (names.index("training") if "training" in own else 0))
            first += len(own)
        known = set(map(id, self._modules))
        classes = dict.fromkeys(chain.from_iterable(map(classes_of, self._modules)))

        def look(value: Any, depth: int) -> None:
            if type(value) in _WORDS or depth > _MAX_DEPTH or id(value) in known:
                return
            if isinstance(value, _CONTAINERS):
                parts = value.values() if isinstance(value, dict) else value
                self._views.append(parts)
                for one in parts:
                    look(one, depth + 1)
                return
            classes.update(dict.fromkeys(classes_of(value)))
            if isinstance(value, nn.Module):  # that is no submodule, as one in a list
                self._hidden.add(id(value))
            elif isinstance(value, OPAQUE):
                return
            for read in _slots_of(value):
                self._slots.append((read, value))
                look(read(value), depth + 2)
            attributes = _attributes_of(value)
            if attributes is not None:
                self._now.append(attributes)
                look(attributes, depth + 1)

        for module in self._modules:
            for name, value in vars(module).items():
                if name not in _OF_EACH:
                    look(value, 1)
        for kind in classes:
            self._views.append(vars(kind).values())
            self._views += [one.values() if isinstance(one, dict) else one
                            for one in vars(kind).values() if isinstance(one, _CONTAINERS)]

    def _refuse_change(self) -> None:
        check_model(self._model)  # a parametrization may have made the change
        versions = {id(t): v for t, v in zip(self._tensors, self._versions)}
        for name, tensor in (*self._model.named_parameters(), *self._model.named_buffers()):
            if tensor._version != versions.get(id(tensor), tensor._version):
                raise refuse(name, "a change in place of a tensor that is on the server",
                             "net.load_state_dict with the new values")
