"""Defines stand-ins for parameters and buffers whose values are on a server.

A stand-in has a shape and a dtype but no values, so it can't be saved. To save or load a model,
lent() gives its tensors values for a while.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import nn

from convgrad.errors import unimplemented

# Untyped, because types are checked with PyTorch 1.13, which lacks some of its names.
_TORCH: Any = torch


class _Absent:
    """Base class. Makes pickle, torch.save, `data` and arithmetic with tensors that have values
    refuse the stand-in. torch doesn't count changes by `data`, so the network couldn't see
    them, and it changes nothing in place by a stand-in without axes."""

    @classmethod
    def __torch_dispatch__(cls, function: Any, _types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        given = [one for each in args
                 for one in (each if isinstance(each, (list, tuple)) else [each])
                 if isinstance(one, torch.Tensor)]
        if given and not given[0].is_meta:
            raise unimplemented("net.model", f"{function} of a tensor whose values are on the "
                                "server", "net.state_dict(), which fetches them")
        with _TORCH._C._DisableTorchDispatch():
            return function(*args, **(kwargs or {}))

    def _refuse_data(self, *_values: Any) -> NoReturn:
        raise unimplemented("net.model", "data of a tensor whose values are on the server",
                            "net.state_dict(), which fetches them, and net.load_state_dict()")

    data: Any = property(_refuse_data, _refuse_data)

    def detach(self) -> AbsentTensor:
        if sys._getframe(1).f_code is nn.Parameter.__new__.__code__:
            raise unimplemented("net.model", "a parameter made of one whose values are on the "
                                "server", "plain parameters, without weight_norm and other "
                                "parametrizations")
        make: Any = torch.Tensor._make_subclass
        with _TORCH._C._DisableTorchDispatch():
            return make(AbsentTensor, self)  # which shares the version, as torch's detach()

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return absent(self)  # type: ignore[arg-type]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise unimplemented("net.model", "a tensor whose values are on the server",
                            "net.state_dict(), which fetches them")


class AbsentTensor(_Absent, torch.Tensor):  # type: ignore[misc]
    """Stands for a buffer, or for any tensor in the model's own state_dict()."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


class AbsentParameter(_Absent, nn.Parameter):  # type: ignore[misc]
    """Stands for a parameter. Refuses `grad`, because only handles have gradients."""

    def _refuse_grad(self, *_gradient: Any) -> NoReturn:
        raise unimplemented("net.model", "grad of a parameter whose gradient is on the server",
                            "grad of net.parameters(), or net.zero_grad()")

    grad: Any = property(_refuse_grad, _refuse_grad)


def absent(like: torch.Tensor) -> torch.Tensor:
    """Returns a stand-in for the parameter, with its Python attributes, or for the buffer."""
    with _TORCH.inference_mode(False):  # tensors made in inference mode have no version counter
        shape = torch.empty_like(like, device="meta")
        if not isinstance(like, nn.Parameter):
            make: Any = torch.Tensor._make_subclass
            return make(AbsentTensor, shape)
        found = AbsentParameter(shape, like.requires_grad)
    vars(found).update(vars(like))
    return found


def names_of_state(model: nn.Module) -> dict[str, str]:
    """Returns the session's name of each parameter and buffer that torch's state_dict has, by
    the name there. The session has a tied tensor only once, under the first of its names."""
    first = _names_by_id(model)
    return {f"{path}.{name}" if path else name: first[id(tensor)]
            for path, module in model.named_modules(remove_duplicate=False)
            for name, tensor in (*module._parameters.items(), *module._buffers.items())
            if tensor is not None and name not in module._non_persistent_buffers_set}


def places_of(model: nn.Module) -> Iterator[tuple[dict[str, Any], str, torch.Tensor]]:
    """Yields the dictionary of a module in which each parameter and buffer is, its name there,
    and the tensor. The caller may replace it there."""
    for module in model.modules():
        parts: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for own in parts:
            yield from ((own, name, one) for name, one in own.items() if one is not None)


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Returns parameters and buffers. A tied tensor has the first of its names."""
    return dict((*model.named_parameters(), *model.named_buffers()))


def _names_by_id(model: nn.Module) -> dict[int, str]:
    return {id(tensor): name for name, tensor in tensors_of(model).items()}


def saved(model: nn.Module, values: Mapping[str, torch.Tensor]) -> Any:
    """Returns the model's state_dict with these values, by the session's names. Calls the
    model's hooks."""
    with lent(model, values):
        return model.state_dict()


def read_by_loading(model: nn.Module, state: Mapping[str, Any]) -> set[str]:
    """Returns the session's names of the tensors that a load of `state` may read: all of them,
    if code outside PyTorch may change what the model loads; otherwise those that a BatchNorm or
    another module with its own loading doesn't find in `state`."""
    methods = ("_load_from_state_dict", "load_state_dict", "set_extra_state")
    reads_all = any(
        module._load_state_dict_pre_hooks or module._load_state_dict_post_hooks or any(
            not getattr(type(module), name).__module__.startswith("torch.") for name in methods)
        for module in model.modules())

    def may_read(name: str) -> bool:
        owner: Any = type(model.get_submodule(name.rpartition(".")[0]))
        return name not in state and (
            owner._load_from_state_dict is not nn.Module._load_from_state_dict)

    return {kept for name, kept in names_of_state(model).items() if reads_all or may_read(name)}


@contextlib.contextmanager
def lent(model: nn.Module, values: Mapping[str, torch.Tensor | None],
         ) -> Iterator[dict[str, torch.Tensor]]:
    """Puts tensors with these values, by the session's names, in place of the model's
    stand-ins; None stands for values that the block writes or leaves undefined.

    Yields the tensors. At the end, the model has its stand-ins again, and the dict has the
    tensors that the block has left. What the block has replaced by a tensor of another shape,
    or removed, stays so.
    """
    names = _names_by_id(model)
    found: dict[str, torch.Tensor] = {}
    places = []
    with _TORCH.inference_mode(False):  # tensors made in inference mode have no version counter
        for own, name, stand_in in places_of(model):
            key = names.get(id(stand_in), "")
            if stand_in.is_meta and key in values:
                if key not in found:
                    found[key] = _with_memory(stand_in, values[key])
                places.append((own, name, stand_in, key, found[key]))
                own[name] = found[key]
        try:
            yield found
        finally:
            for own, name, stand_in, key, tensor in places:
                now = own.get(name)
                if now is tensor:
                    own[name] = stand_in
                elif now is not None and now.shape == stand_in.shape:
                    own[name] = stand_in
                    found[key] = now.detach().to(stand_in.dtype)
                else:
                    found.pop(key, None)


def _with_memory(stand_in: torch.Tensor, values: torch.Tensor | None) -> torch.Tensor:
    if values is None:
        values = torch.empty(stand_in.shape, dtype=stand_in.dtype)
    elif values.is_inference():
        values = values.clone()
    values = values.to(stand_in.dtype)  # the session has masks as numbers
    if not isinstance(stand_in, nn.Parameter):
        return values
    found = nn.Parameter(values, stand_in.requires_grad)
    vars(found).update(vars(stand_in))
    return found
