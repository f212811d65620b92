"""A model's forward as a graph of calls, each with the module that it comes from."""

from __future__ import annotations

import copy
import inspect
import operator
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize

from convgrad.errors import Unimplemented, invalid
from convgrad.torch.layers.functional import autocast_dtype
from convgrad.torch.networks.absent import absent_parameter, absent_tensor
from convgrad.torch.networks.effects import (
    chance,
    check_callers,
    forwards_of_functions,
    no_functions,
    unchanged,
)
from convgrad.torch.networks.module import RemoteModule
from convgrad.torch.networks.refusals import named, refuse

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PARAMETER_DTYPES = (torch.float32, torch.int64)
_MODULE = "convgrad_module"
# Another thread may draw random numbers while a forward is followed: then it is followed
# again. A forward that draws some itself does so each time.
_TRIES = 10
_LINE = "convgrad_line"
# What lies there is no forward of a user's. torch.fx names its own code as the last one.
_INSIDE = (os.path.dirname(torch.__file__) + os.sep,
           os.path.dirname(os.path.dirname(__file__)) + os.sep, "<eval_with_key>")


def check_model(model: nn.Module) -> None:
    """Raises Unimplemented or InvalidArgument, naming the module, for what no server can
    compute."""
    if not isinstance(model, nn.Module):
        raise invalid("INVALID_ENUM", "model", type(model).__name__, "a torch.nn.Module")
    for path, module in model.named_modules():
        if isinstance(module, RemoteModule):
            raise refuse(named(module, path), "a network that is on a server already",
                         "a model whose values are here")
        if any(isinstance(p, UninitializedParameter) for p in module.parameters(False)):
            raise refuse(named(module, path), "parameters without a shape",
                         "a model through which a batch went")
        if parametrize.is_parametrized(module):
            raise refuse(named(module, path), "a parametrization",
                         "plain parameters: torch.nn.utils.parametrize.remove_parametrizations")
        if any(getattr(module, hooks, None) for hooks in _HOOKS):
            raise refuse(named(module, path), "a hook", "none inside a remote network")
        if isinstance(module, torch.jit.ScriptModule):
            raise refuse(named(module, path), "a TorchScript module", "an eager one")
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks:
            raise refuse(name, "a hook", "none on a remote parameter")
        if parameter.dtype != torch.float32:
            raise invalid("DTYPE_MISMATCH", f"model.{name}.dtype", parameter.dtype,
                          "torch.float32; autocast or dtype=torch.bfloat16 computes in bf16")
    for name, buffer in model.named_buffers():
        if buffer.dtype not in _PARAMETER_DTYPES:
            raise invalid("DTYPE_MISMATCH", f"model.{name}.dtype", buffer.dtype,
                          "torch.float32 or torch.int64")


def trace(model: nn.Module, constants: Mapping[str, Any]) -> torch.fx.Graph:
    """Returns the graph of the model's forward, in the modes that its modules are in.

    `constants` are arguments of the forward that aren't tensors, by name.
    Errors: Unimplemented naming the module whose forward can't be followed.
    """
    for _ in range(_TRIES):
        before = chance()
        graph = _traced(model, constants)
        if chance() == before:
            return graph
    raise refuse("forward", "random numbers of Python, NumPy or torch",
                 "torch.nn.Dropout, whose numbers are drawn in each call")


def _traced(model: nn.Module, constants: Mapping[str, Any]) -> torch.fx.Graph:
    tracer = _Tracer()
    try:
        with unchanged(model), no_functions(), torch.enable_grad():
            return tracer.trace(model, dict(constants) or None)
    except Unimplemented:
        raise
    except Exception as error:  # of torch.fx, and whatever a forward does with a Proxy
        path = tracer.failed_path
        raise refuse(named(model.get_submodule(path), path), str(error) or repr(error),
                     "a forward whose control flow doesn't depend on data") from error


def module_path(node: torch.fx.Node) -> str:
    """Returns the path of the module whose forward has made the call."""
    return str(node.meta.get(_MODULE, ""))


def place_of(model: nn.Module, node: torch.fx.Node) -> str:
    """Returns module, file and line of the forward that has made the call."""
    path = module_path(node)
    module = f"model.{named(model.get_submodule(path), path)}" if path else named(model, "")
    line = line_of(node)
    return f"{module}, {line}" if line else module


def line_of(node: torch.fx.Node) -> str:
    """Returns file and line of the user's code that has made the call, "" if none has."""
    return str(node.meta.get(_LINE, ""))


def _line_of_forward() -> str:
    """Returns file and line of the innermost code outside torch and this package, if any."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code is not trace.__code__:
        if not frame.f_code.co_filename.startswith(_INSIDE):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class _Proxy(torch.fx.Proxy):
    """Torch's own takes `x += y` for `x = x + y`, which other names of x would not see."""


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: torch.fx.Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return method


for _name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul",
              "iand", "ior", "ixor", "ilshift", "irshift"):
    setattr(_Proxy, f"__{_name}__", _in_place(getattr(operator, _name)))


class _Tracer(torch.fx.Tracer):
    """Notes for each call in which module's forward it is.

    While it follows a forward, torch.fx has every thread's modules ask it; those of other
    threads do what they always do.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self._paths = [""]
        self._autocast = autocast_dtype(torch.empty(0))
        self._forwards = forwards_of_functions()
        self.failed_path = ""
        """Of the innermost module whose forward has raised."""

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: Any) -> Any:
        if threading.get_ident() != self._thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        self._paths.append(self.path_of_module(m))
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            self.failed_path = self.failed_path or self._paths[-1]
            raise
        finally:
            self._paths.pop()

    def proxy(self, node: torch.fx.Node) -> torch.fx.Proxy:
        return _Proxy(node, self)

    def create_node(self, *args: Any, **kwargs: Any) -> torch.fx.Node:
        self._check_node()
        node = super().create_node(*args, **kwargs)
        node.meta[_MODULE] = self._paths[-1]
        node.meta[_LINE] = _line_of_forward()
        return node

    def _check_node(self) -> None:
        """Refuses what a forward sets for some of its calls, which no program says."""
        check_callers(self._forwards, trace.__code__)
        if torch.is_grad_enabled() and autocast_dtype(torch.empty(0)) == self._autocast:
            return
        path = self._paths[-1]
        where = named(self.root.get_submodule(path), path)
        if not torch.is_grad_enabled():
            raise refuse(where, "torch.no_grad() inside a forward",
                         "requires_grad_(False) of what isn't trained")
        raise refuse(where, "autocast inside a forward",
                     "autocast around the whole network, or remote(..., dtype=torch.bfloat16)")


def bind(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[
        dict[str, torch.Tensor], dict[str, Any]]:
    """Returns the forward's arguments by name: tensors, and what else differs from its
    default or has none that it could be traced with.

    Errors: TypeError as of a call; Unimplemented for tensors inside lists.
    """
    signature = inspect.signature(model.forward)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    tensors, constants = {}, {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            if value:
                raise refuse("forward", f"*{name}", "arguments with names of their own")
        elif isinstance(value, torch.Tensor):
            tensors[name] = value
        elif value is None or isinstance(value, (bool, int, float, str)):
            constants[name] = value
        else:
            raise refuse("forward", f"{name}, a {type(value).__name__}",
                         "tensors, numbers, words or None")
    return tensors, constants


def without_values(model: nn.Module) -> nn.Module:
    """Returns a copy of the model whose tensors have shapes alone."""
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        memo[id(tensor)] = without_value(tensor)
    return copy.deepcopy(model, memo)


def without_value(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a parameter or a tensor that has a shape alone."""
    inference_mode: Any = torch.inference_mode
    with inference_mode(False):  # in it tensors count no versions
        if isinstance(tensor, nn.Parameter):
            return absent_parameter(tensor)
        return absent_tensor(tensor)
