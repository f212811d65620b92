"""Defines the handle for a parameter that is on the server."""

from __future__ import annotations

import weakref
from typing import Any, NoReturn

import torch
from torch.fx.node import map_aggregate

from convgrad.errors import FailedPrecondition, invalid, unimplemented
from convgrad.torch.networks.state import RemoteState
from convgrad.tracebacks import short_traceback

# Attributes that follow from a parameter's shape and dtype.
_OF_DTYPE = ("shape", "size", "dim", "ndim", "numel", "nelement", "dtype", "is_leaf",
             "is_floating_point", "is_complex", "element_size", "itemsize", "nbytes",
             "is_sparse", "is_quantized", "layout")


class RemoteParameter:
    """A parameter's name and settings, without its values. convgrad.torch.optim takes handles.

    A handle takes any attribute that torch.Tensor doesn't have. It refuses to assign those of
    torch.Tensor, such as `data`, except `grad` and `requires_grad`.

    The network keeps its handles. A handle doesn't keep the network, so that a network without
    references ends its session at once.
    """

    name: str
    _network: weakref.ref[RemoteState]
    _tensor: torch.Tensor

    def __init__(self, network: RemoteState, name: str, tensor: torch.Tensor) -> None:
        """`tensor` has the parameter's shape and the requires_grad of the next run."""
        vars(self).update(_network=weakref.ref(network), name=name, _tensor=tensor)

    @property
    def network(self) -> RemoteState:
        network = self._network()
        if network is None:
            raise FailedPrecondition.of(
                f"parameters.{self.name}", "a network that was freed",
                "a reference to the network or its optimizer")
        return network

    def stands_for(self, tensor: torch.Tensor) -> bool:
        return self._tensor is tensor

    @property
    def is_current(self) -> bool:
        """Whether the network still has this parameter, not another one with its name."""
        return self.network.parameter(self.name) is self._tensor

    @property
    def device(self) -> torch.device:
        """The CPU, where the network takes inputs from and gives outputs to."""
        return torch.device("cpu")

    is_cuda = False

    @property
    def requires_grad(self) -> bool:
        return self._tensor.requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self._tensor.requires_grad = wanted

    def requires_grad_(self, requires_grad: bool = True) -> RemoteParameter:
        self.requires_grad = requires_grad
        return self

    @property
    @short_traceback
    def grad(self) -> torch.Tensor | None:
        """The gradient, fetched from the server; None if there is none.

        What is assigned here, or changed in the tensor in place, goes to the server before it
        next uses the gradient: torch.nn.utils.clip_grad_norm_() works, though
        net.clip_grad_norm_() moves no data. After the next backward or step, read the gradient
        again, because they don't change this tensor. A parameter that the network has replaced
        has no gradient.
        """
        if not self.is_current:
            return None
        return self.network.kept_gradients.lend(self.name)

    @grad.setter
    @short_traceback
    def grad(self, gradient: torch.Tensor | None) -> None:
        field = f"parameters.{self.name}.grad"
        if not self.is_current:
            if gradient is None:
                return
            raise unimplemented(
                field, "a gradient of a parameter that the network has replaced",
                "one of the new parameter, which net.parameters() gives")
        self.network.kept_gradients.check_unclipped(self.name)
        if gradient is None:
            self.network.zero_grad(names=[self.name])
            return
        if gradient.shape != self.shape:
            raise invalid("SHAPE_MISMATCH", field, list(gradient.shape), list(self.shape))
        if gradient.dtype != torch.float32:
            raise invalid("DTYPE_MISMATCH", field, gradient.dtype, torch.float32)
        self.network.kept_gradients.put({self.name: gradient.detach()})

    def _refuse_arithmetic(self, *_operands: Any) -> NoReturn:
        raise unimplemented(
            f"parameters.{self.name}", "arithmetic with a parameter that is on the server",
            "weight_decay of convgrad.torch.optim for an L2 term, param_groups for a schedule, "
            "net.state_dict() for the values")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> NoReturn:
        """Refuses torch's functions."""
        given: list[Any] = []
        map_aggregate((args, kwargs or {}), given.append)
        next(one for one in given if isinstance(one, RemoteParameter))._refuse_arithmetic()

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(torch.Tensor, name) and not hasattr(type(self), name):
            raise unimplemented(
                f"parameters.{self.name}.{name}",
                "an assignment to a parameter that is on the server",
                "net.load_state_dict(state, strict=False) with new values")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "__qualname__":
            # torch.optim uses this name in its error about an object that it can't take.
            return (f"RemoteParameter '{vars(self).get('name')}', which is on the server: use "
                    "convgrad.torch.optim")
        tensor = vars(self).get("_tensor", self)
        if name in vars(tensor):
            return vars(tensor)[name]
        if name in _OF_DTYPE:
            return getattr(tensor, name)
        instead = "net.state_dict() fetches its value, convgrad.torch.optim trains it"
        if name.endswith("hook"):
            instead = "p.grad is read and assigned between the backward and the step"
        elif name.endswith("_"):
            instead = "net.load_state_dict(state, strict=False) gives it another value"
        raise AttributeError(f"parameter '{vars(self).get('name')}' is on the server and has "
                             f"no '{name}' here; {instead}")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.network.__reduce_ex__(protocol)  # which refuses copies

    def __repr__(self) -> str:
        return (f"RemoteParameter({self.name!r}, {list(self.shape)}, "
                f"requires_grad={self.requires_grad})")


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
for _name in (*_BINARY, *(f"r{name}" for name in _BINARY), "neg", "pos", "abs", "float",
              "getitem", "setitem", "array", "lt", "le", "gt", "ge"):
    setattr(RemoteParameter, f"__{_name}__", RemoteParameter._refuse_arithmetic)
