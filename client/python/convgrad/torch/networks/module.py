"""Defines an nn.Module whose tensors are on a server."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import types
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

import torch
from torch import nn

from convgrad.errors import unimplemented
from convgrad.torch.networks.refusals import check_followed, refuse_following
from convgrad.tracebacks import short_traceback

_LOG = logging.getLogger("convgrad")
Self = TypeVar("Self", bound="RemoteModule")
# Has the attributes that each module has.
_PLAIN = nn.Module()


def _modes_of(model: nn.Module) -> dict[nn.Module, bool]:
    return {module: module.training for module in model.modules()}


def _restore(modes: Mapping[nn.Module, bool]) -> None:
    for module, mode in modes.items():
        module.training = mode


class signed:  # noqa: N801, a decorator
    """Decorates `forward`. Gives net.forward the signature of the model's forward, by which
    transformers' Trainer chooses the columns of a dataset."""

    def __init__(self, forward: Any) -> None:
        self._forward = forward

    def __get__(self, net: RemoteModule | None, kind: object = None) -> Callable[..., Any]:
        if net is None:
            return self._forward
        known, function = vars(net).get("_signed", (None, None))
        forward = net.model.forward
        if known != forward:
            function = self._with_signature(inspect.signature(forward))
            vars(net)["_signed"] = forward, function  # which don't refer to the network
        return types.MethodType(function, net)

    def _with_signature(self, signature: inspect.Signature) -> Any:
        """Returns a copy of the function. Accelerate and torch.compile need functions."""
        own = self._forward
        copied: Any = types.FunctionType(own.__code__, own.__globals__, own.__name__)
        itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        copied.__signature__ = signature.replace(
            parameters=[itself, *signature.parameters.values()])
        return copied


class RemoteModule(nn.Module):
    """Base class of networks on a server. Can be part of other modules, between local layers.

    Its submodules, buffers, attributes and hooks of states are those of `model`, whose tensors
    have no values: to assign, register or delete one here does it there. An attribute that the
    model doesn't have stays here.

    Its parameters are handles that convgrad.torch.optim takes. A module that contains this one
    also sees the handles, and saves and loads this one's state with its own.
    """

    def __init__(self, model: nn.Module) -> None:
        """Requires: the tensors of `model` have no values."""
        vars(self)["_model"] = model
        # By mode of the model, the modes of its modules when train() last left it.
        vars(self)["_left"] = {}
        modes = _modes_of(model)
        super().__init__()
        _restore(modes)
        # After _finish(), assignments may go to the model.
        vars(self)["_is_made"] = False

    def _finish(self) -> None:
        """Ends the constructor of a derived class. Warns about names with two meanings."""
        self._is_made = True
        own = {*vars(self), *dir(type(self))}
        names = {*vars(self.model), *dir(type(self.model))}.difference(dir(_PLAIN))
        both = sorted(name for name in names & own if not name.startswith("_"))
        if both:
            _LOG.warning("the network has attributes of its own that its model has, too: %s. "
                         "net.model has the model's", ", ".join(both))

    @property
    def model(self) -> nn.Module:
        return vars(self)["_model"]

    @abstractmethod
    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """Yields a RemoteParameter for each parameter."""

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        return (handle for _, handle in self.named_parameters())

    @property
    def _parameters(self) -> Any:
        """Returns the handles to a module that contains this one."""
        return dict(self.named_parameters())

    @_parameters.setter
    def _parameters(self, _none: Any) -> None:
        """Does nothing; nn.Module's constructor sets the attribute."""

    def named_modules(self, memo: set[nn.Module] | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, nn.Module]]:
        """Yields this module and the model's modules. For a module that contains this one it
        yields only this module, because the model's tensors have no values."""
        if memo is None:
            yield prefix, self
            for name, module in self.model.named_modules(
                    prefix=prefix, remove_duplicate=remove_duplicate):
                if module is not self.model:
                    yield name, module
        elif self not in memo:
            memo.add(self)
            yield prefix, self

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        self.model.requires_grad_(requires_grad)
        return self

    def train(self: Self, mode: bool = True) -> Self:
        vars(self)["_left"][self.training] = _modes_of(self.model)
        self.model.train(mode)
        return self

    @property
    def training(self) -> bool:
        return self.model.training

    @training.setter
    def training(self, mode: bool) -> None:
        """Gives all modules of the model the modes that they had before train() or eval(). A
        caller that restores the mode of each module, as Lightning does, sees only this one."""
        if mode != self.training:
            earlier = vars(self)["_left"].get(mode, {})
            self.train(mode)
            _restore(earlier)

    def _apply(self: Self, fn: Callable[[torch.Tensor], torch.Tensor], *_rest: Any) -> Self:
        """Refuses to(), float(), cuda() and similar calls if they would change values."""
        for dtype in (torch.float32, torch.int64):
            probe = torch.zeros(1, dtype=dtype)
            changed = fn(probe)
            if (changed.dtype, changed.device) != (probe.dtype, probe.device):
                raise unimplemented(
                    "network", f"a change from {probe.dtype} on {probe.device} to "
                    f"{changed.dtype} on {changed.device}",
                    "values that stay on the server, in float32; "
                    "remote(..., dtype=torch.bfloat16) computes in bf16")
        return self

    def state_dict(self, *, destination: Any = None, prefix: str = "",
                   keep_vars: bool = False) -> Any:
        """Fetches parameters and buffers, and returns the model's state_dict with them, as its
        hooks make it."""
        own = self._fetched_state()
        if destination is None:
            if not prefix:
                return own
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        destination.update({prefix + name: tensor for name, tensor in own.items()})
        if hasattr(destination, "_metadata"):
            destination._metadata.update({
                prefix + path if path else prefix[:-1]: version
                for path, version in getattr(own, "_metadata", {}).items()})
        return destination

    @abstractmethod
    def _fetched_state(self) -> Any:
        """Returns parameters and buffers by name."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True,
                        assign: bool = False) -> Any:
        """Does the same as torch's, and returns the missing and the unexpected names. `assign`
        has no effect."""

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str,
                              local_metadata: Any, strict: bool, missing_keys: list[str],
                              unexpected_keys: list[str], error_msgs: list[str]) -> None:
        """Loads this network's part when a module that contains it is loaded."""
        own: Any = OrderedDict((name[len(prefix):], tensor) for name, tensor
                               in state_dict.items() if name.startswith(prefix))
        own._metadata = {"": local_metadata}
        try:
            result = self.load_state_dict(own, strict=False)
        except RuntimeError as error:
            error_msgs.append(str(error))
            return
        missing_keys += [prefix + name for name in result.missing_keys]
        if strict:
            unexpected_keys += [prefix + name for name in result.unexpected_keys]

    @short_traceback
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls forward() and hooks. Errors: Unimplemented if torch follows the call."""
        check_followed((*args, *kwargs.values()))
        return super().__call__(*args, **kwargs)

    def compile(self, *_arguments: Any, **_keywords: Any) -> NoReturn:
        refuse_following("torch.compile")

    def __prepare_scriptable__(self) -> NoReturn:
        refuse_following("torch.jit.script")

    @property
    def _ddp_params_and_buffers_to_ignore(self) -> Any:
        """Refuses DistributedDataParallel, which reads this first, and torch.jit.trace, which
        reads each attribute."""
        caller = sys._getframe(1).f_globals.get("__name__")
        if caller == "torch.nn.parallel.distributed":
            raise unimplemented("DistributedDataParallel", "a network that is on the server",
                                "one network, and several calls for a batch if need be")
        if caller == "torch._jit_internal":
            refuse_following("torch.jit.trace")
        raise AttributeError("_ddp_params_and_buffers_to_ignore")

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets modules, parameters, and what the model has, on the model.

        Errors: Unimplemented for a name that has another meaning here.
        """
        is_own = name in vars(self) or hasattr(type(self), name)
        is_of_model = vars(self).get("_is_made", False) and hasattr(
            self.model, name) and not hasattr(_PLAIN, name)
        if is_own and is_of_model and not name.startswith("_"):
            raise unimplemented(f"net.{name}", "an attribute of both the network and its model",
                                f"net.model.{name}, which is the model's")
        is_part = isinstance(value, (nn.Module, nn.Parameter)) and not isinstance(
            value, RemoteModule)
        if not is_own and (is_of_model or is_part):
            setattr(self.model, name, value)
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if name in vars(self):
            object.__delattr__(self, name)
        else:
            delattr(self.model, name)

    def __getattr__(self, name: str) -> Any:
        """Returns a submodule or another attribute of the model."""
        return getattr(self.model, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise unimplemented("network", "a copy or a pickle of what is on a server",
                            "net.state_dict(), which has the values, or ema_decay of "
                            "convgrad.torch.optim, which averages them")


def _of_model(name: str) -> Callable[..., Any]:
    def method(self: RemoteModule, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.model, name)(*args, **kwargs)

    return functools.update_wrapper(method, getattr(nn.Module, name))


for _name in ("named_children", "named_buffers", "add_module", "register_buffer",
              "register_parameter", "register_state_dict_pre_hook",
              "register_state_dict_post_hook",
              "_register_state_dict_hook", "_register_load_state_dict_pre_hook",
              "register_load_state_dict_pre_hook", "register_load_state_dict_post_hook"):
    if hasattr(nn.Module, _name):  # PyTorch 1.13 lacks some
        setattr(RemoteModule, _name, _of_model(_name))
