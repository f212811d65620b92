"""Checks the models and the forward's arguments that remote() accepts."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize
from torch.nn.utils.weight_norm import WeightNorm

from convgrad.errors import invalid, unimplemented
from convgrad.torch.networks.absent import absent
from convgrad.torch.networks.module import RemoteModule
from convgrad.torch.networks.refusals import Refusals, named, refuse

NEEDED = (2, 6)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
CAPTURING = "_output_capturing_hooks_installed"
"""The attribute that transformers sets in a model in the first call that needs its hooks."""
_BUFFER_DTYPES = (torch.float32, torch.int64, torch.bool)
# Untyped, because types are checked with PyTorch 1.13, which lacks some of its names.
_TORCH: Any = torch


def check_version() -> None:
    """Raises Unimplemented for a PyTorch that can't export what is needed."""
    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if version < NEEDED:
        raise unimplemented("remote", f"PyTorch {torch.__version__}",
                            "PyTorch 2.6 or newer, whose torch.export takes models apart")


def check_model(model: nn.Module) -> None:
    """Raises Unimplemented or InvalidArgument, naming the module, if no server can compute the
    model."""
    if not isinstance(model, nn.Module):
        raise invalid("INVALID_ENUM", "model", type(model).__name__, "a torch.nn.Module")
    refusals = Refusals()
    for path, module in model.named_modules():
        refused = _refused(module)
        if refused is not None:
            refusals.add(refuse(named(model, path), *refused))
    refusals.check()
    for name, parameter in model.named_parameters():
        if has_hooks(parameter):
            raise refuse(name, "a hook", "none on a remote parameter")
        if parameter.dtype != torch.float32:
            raise invalid("DTYPE_MISMATCH", f"model.{name}.dtype", parameter.dtype,
                          "torch.float32; autocast or dtype=torch.bfloat16 computes in bf16")
    for name, buffer in model.named_buffers():
        if buffer.dtype not in _BUFFER_DTYPES:
            raise invalid("DTYPE_MISMATCH", f"model.{name}.dtype", buffer.dtype,
                          "torch.float32, torch.int64 or torch.bool")


def has_hooks(parameter: torch.Tensor) -> bool:
    return bool(parameter._backward_hooks or
                getattr(parameter, "_post_accumulate_grad_hooks", None))


def hooks_of(module: nn.Module, name: str) -> dict[int, Any]:
    """Returns the module's hooks of a kind, but those by which transformers collects hidden
    states for what a forward returns. These change nothing, and no other call sees them."""
    return {key: hook for key, hook in getattr(module, name, {}).items()
            if getattr(hook, "__module__", "") != "transformers.utils.output_capturing"}


def _refused(module: nn.Module) -> tuple[str, str] | None:
    """Returns why the module is refused, and what is expected; None if it is accepted."""
    if isinstance(module, RemoteModule):
        return "a network that is on a server already", "a model whose values are here"
    if any(isinstance(p, UninitializedParameter) for p in module.parameters(False)):
        return "parameters without a shape", "a model through which a batch went"
    if parametrize.is_parametrized(module) and not all(map(_is_weight_norm, module.modules())):
        return ("a parametrization", "plain parameters, which torch.nn.utils.parametrize."
                "remove_parametrizations makes, or torch.nn.utils.parametrizations.weight_norm")
    hooks = [hook for name in _HOOKS for hook in hooks_of(module, name).values()]
    if any(isinstance(hook, WeightNorm) for hook in hooks):
        return ("a hook of torch.nn.utils.weight_norm",
                "torch.nn.utils.parametrizations.weight_norm, or remove_weight_norm before")
    if hooks:
        return "a hook", "none inside a remote network"
    if isinstance(module, torch.jit.ScriptModule):
        return "a TorchScript module", "an eager one"
    return None


def _is_weight_norm(module: nn.Module) -> bool:
    """Returns whether parametrizations of the module, if any, are torch's weight_norm."""
    return not isinstance(module, parametrize.ParametrizationList) or (
        len(module) == 1 and type(module[0]) is _TORCH.nn.utils.parametrizations._WeightNorm)


def bind(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[
        dict[str, torch.Tensor], dict[str, Any]]:
    """Returns the forward's tensor arguments and its other arguments, by name, with defaults.

    The first one of `*args` is "args.0". `**kwargs` have their own names.
    Errors: TypeError as for a call; Unimplemented for arguments such as lists of tensors.
    """
    signature = inspect.signature(model.forward)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    named_arguments: list[tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named_arguments += [(f"{name}.{i}", one) for i, one in enumerate(value)]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            for keyword in value:
                if not keyword.isidentifier():  # "args.0" would be one of *args
                    raise refuse("forward", f"an argument called {keyword!r}", "a Python name")
            named_arguments += value.items()
        else:
            named_arguments.append((name, value))
    tensors, constants = {}, {}
    for name, value in named_arguments:
        if name in tensors or name in constants:
            raise refuse("forward", f"two arguments called {name}", "one")
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        elif value is None or isinstance(value, (bool, int, float, str)):
            constants[name] = value
        else:
            raise refuse("forward", f"{name}, a {type(value).__name__}",
                         "tensors, numbers, words or None")
    return tensors, constants


def bound_again(model: nn.Module, given: Mapping[str, Any]) -> inspect.BoundArguments:
    """Returns the arguments that bind() has named."""
    signature = inspect.signature(model.forward)
    rest, found = dict(given), dict[str, Any]()
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names = [one for one in given if re.fullmatch(rf"{name}\.\d+", one)]
            found[name] = tuple(rest.pop(f"{name}.{i}") for i in range(len(names)))
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found[name] = rest
        elif name in rest:
            found[name] = rest.pop(name)
    return inspect.BoundArguments(signature, found)


def without_values(model: nn.Module) -> nn.Module:
    """Returns a copy of the model whose tensors have shapes but no values."""
    return copy.deepcopy(model, {id(tensor): absent(tensor) for tensor in (
        *model.parameters(), *model.buffers())})
