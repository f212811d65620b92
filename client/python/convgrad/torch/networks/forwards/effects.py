"""Refuses side effects of a forward that is followed, because a program wouldn't have them."""

from __future__ import annotations

import contextlib
import io
import pickle
import random
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointFunction

from convgrad.errors import Unimplemented
from convgrad.torch.networks import settings
from convgrad.torch.networks.refusals import named, refuse
from convgrad.torch.networks.tracing import CAPTURING, hooks_of

# torch.export replaces functions of torch's while it follows a forward; so does no_functions().
_FOLLOWING = threading.RLock()
# How often a forward that may draw random numbers is followed again, at most.
_TRIES = 10
# Attributes in which a recurrent layer has its parameters again. torch.export sets them.
_FLAT = ("_flat_weights", "_flat_weight_refs")


@dataclass(frozen=True)
class Call:
    """What a forward may ask of the call that runs it."""

    enables_grad: bool = True
    is_inference: bool = False
    is_autocast: bool = False
    """Whether autocast is on for CUDA."""
    trained: frozenset[str] = frozenset()
    """Inputs that require a gradient."""


def call_of(inputs: Mapping[str, torch.Tensor]) -> Call:
    """Returns what the forward would be told now."""
    return Call(torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
                torch.is_autocast_enabled(),
                frozenset(name for name, x in inputs.items() if x.requires_grad))


class Asked(Exception):
    """A forward, whose graph was to hold for any call, has asked about its call."""


class Changed(Exception):
    """A forward has given modules tensors that they didn't have."""

    def __init__(self, error: Unimplemented) -> None:
        self.error = error


class Attributes:
    """Remembers what a model's modules have. What changes a tensor in place is in the graph."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._before = _state_of(model)
        self._saved = {
            path: {name: settings.copied(value) for name, value in vars(module).items()}
            for path, module in model.named_modules()}

    def check(self) -> None:
        """Raises Unimplemented naming an attribute that is another one since, or Changed if
        only tensors have been added.

        What a forward does in Python happens once, when it is followed, and not in each call.
        """
        change: Unimplemented | None = None
        for (path, name), value in _state_of(self._model).items():
            module = self._model.get_submodule(path)
            is_flat = isinstance(module, nn.RNNBase) and name in _FLAT
            if is_flat or self._before.get((path, name)) == value:
                continue
            part, instead = settings.changed_part(name, self._before.get((path, name)), value)
            change = refuse(named(self._model, path), f"'{part}', which its forward changes", (
                f"a forward that changes running statistics of BatchNorm alone{instead}"))
            # A buffer that no state_dict has may be replaced like any other tensor.
            new = module._buffers.get(name) if name in module._non_persistent_buffers_set else (
                vars(module).get(name))
            if not _adds_tensors(self._saved[path].get(name), new):
                raise change
        if change is not None:
            raise Changed(change)

    def restore(self) -> None:
        for path, attributes in self._saved.items():
            module = self._model.get_submodule(path)
            for name in set(vars(module)) - set(attributes):
                del vars(module)[name]
            vars(module).update(attributes)


def _adds_tensors(old: Any, new: Any) -> bool:
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        return all(isinstance(value, torch.Tensor) or key in before and
                   settings.frozen(before[key]) == settings.frozen(value)
                   for key, value in new.items())
    parts = new if isinstance(new, (list, tuple)) else [new]
    return all(isinstance(one, torch.Tensor) for one in parts)


def versions_of_kept(model: nn.Module) -> list[int]:
    """Returns how often each tensor was changed in place that modules keep, but parameters and
    buffers, whose changes are in the graph."""
    found: list[int] = []
    for module in model.modules():
        for name, value in vars(module).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            parts = value.values() if isinstance(value, dict) else (
                value if isinstance(value, (list, tuple)) else [value])
            found += [one._version for one in parts if isinstance(one, torch.Tensor)]
    return found


@contextlib.contextmanager
def no_functions(checkpointed: Callable[..., Any]) -> Iterator[None]:
    """Raises Unimplemented where the block, which follows a forward, calls `apply` of a
    torch.autograd.Function, because its backward would be lost. Calls `checkpointed` instead of
    that of torch.utils.checkpoint. One thread's at a time."""
    with _FOLLOWING:
        kind: Any = torch.autograd.Function
        own = kind.__dict__.get("apply")
        own_thread = threading.get_ident()

        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == own_thread:
                if cls is CheckpointFunction:
                    return checkpointed(*args, **kwargs)
                raise _function(cls.__qualname__)
            plain = super(kind, cls).apply if own is None else own.__get__(None, cls)
            return plain(*args, **kwargs)

        kind.apply = classmethod(apply)
        try:
            yield
        finally:
            if own is None:
                del kind.apply
            else:
                kind.apply = own


@contextlib.contextmanager
def for_this_thread() -> Iterator[None]:
    """Keeps other threads' modules out of the block's export, because torch.export's tracer
    replaces `__call__` and `__getattr__` of nn.Module for all threads."""
    from torch.fx.experimental import proxy_tensor
    tracers: Any = proxy_tensor
    tracer, own = tracers._ModuleStackTracer, threading.get_ident()
    call_module, attribute = traced = tracer.call_module, tracer.getattr

    def here(method: Any, elsewhere: Any) -> Any:
        return lambda *args: (method if threading.get_ident() == own else elsewhere)(*args)

    tracer.call_module = here(call_module, lambda _, module, forward, args, kwargs: forward(
        *args, **kwargs))
    tracer.getattr = here(attribute, lambda _, name, value, cache: value)
    try:
        yield
    finally:
        tracer.call_module, tracer.getattr = traced


@contextlib.contextmanager
def replaced(functions: Sequence[tuple[Any, Any]], spaces: Sequence[Any]) -> Iterator[None]:
    """Replaces functions by others in these name spaces and in those of all modules, also of
    modules that the block imports."""
    known = {id(space): space for space in spaces}

    def replace(others: Mapping[int, Any]) -> None:
        for module in list(sys.modules.values()):
            if isinstance(module, types.ModuleType):
                space = object.__getattribute__(module, "__dict__")  # loads no lazy module
                known[id(space)] = space
        for space in known.values():
            for name, value in list(space.items()):
                if id(value) in others:
                    space[name] = others[id(value)]

    replace({id(own): other for own, other in functions})
    try:
        yield
    finally:
        replace({id(other): own for own, other in functions})


def forwards_of_functions() -> dict[types.CodeType, str]:
    """Returns the code of each torch.autograd.Function's forward, with the class' name."""
    found: dict[types.CodeType, str] = {}
    classes: list[Any] = [torch.autograd.Function]
    while classes:
        kind = classes.pop()
        classes += kind.__subclasses__()
        function: Any = getattr(kind.__dict__.get("forward"), "__func__", None)
        if hasattr(function, "__code__"):
            found[function.__code__] = kind.__qualname__
    return found


def check_callers(forwards: Mapping[types.CodeType, str], until: types.CodeType) -> None:
    """Raises Unimplemented if one of the forwards calls, also by way of an `apply` that was
    looked up before no_functions(). Frames from `until` on don't count."""
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        if frame.f_code is until:
            break
        if frame.f_code in forwards:
            raise _function(forwards[frame.f_code])


def _function(name: str) -> Unimplemented:
    return refuse("forward", f"the autograd.Function {name}",
                  "operators that programs have, whose gradients are torch's")


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> int | None:
        """Takes tensors, modules and others that frozen() follows by identity."""
        return id(value) if isinstance(value, settings.OPAQUE) else None


def _inside(value: Any) -> bytes:
    """Returns the state of an object that isn't in Python's attributes, as that of a random
    generator, an iterator or an array; none if it is unknown."""
    kind: Any = type(value)
    if kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__:
        return b""
    file = io.BytesIO()
    try:
        _Pickler(file).dump(value)
    except Exception:  # of objects that can't be copied
        return b""
    return file.getvalue()


def _state_of(model: nn.Module) -> dict[tuple[str, str], Any]:
    """Returns the attributes of modules and their classes, and which tensors they have."""
    found = {}
    for path, module in model.named_modules():
        own = {name: value for kind in reversed(settings.classes_of(module))
               for name, value in vars(kind).items()
               if not (name.startswith("__") or hasattr(value, "__get__"))}  # but no methods
        for name, value in (own | vars(module)).items():
            value = hooks_of(module, name) if name == "_forward_hooks" else value
            if name not in ("_parameters", "_buffers", CAPTURING):
                found[path, name] = settings.frozen(value, inside=_inside)
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                found[path, name] = settings.Same(tensor)
    return found


def random_states() -> tuple[Any, ...]:
    """Returns the state of the random generators that a forward may ask; torch's own are
    followed as calls."""
    return random.getstate(), repr(np.random.get_state(legacy=False))


def draws_numbers(before: tuple[Any, ...], again: Callable[[], object]) -> bool:
    """Returns whether a forward has drawn random numbers since random_states() was `before`.

    Another thread may have drawn them: `again`, which follows the forward again, then draws
    some each time, or doesn't.
    """
    for _ in range(_TRIES):
        if random_states() == before:
            return False
        before = random_states()
        again()
    return random_states() != before


def rerun(wrapper: nn.Module, examples: Sequence[torch.Tensor]) -> None:
    """Calls the forward without computing."""
    from torch._subclasses import fake_tensor
    fakes: Any = fake_tensor
    with fakes.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        wrapper(*(mode.from_tensor(example) for example in examples))
