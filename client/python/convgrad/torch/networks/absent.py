"""Defines stand-ins for parameters and buffers whose values are on a server.

A stand-in has a shape and a dtype but no values, so it can't be saved.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import nn

from convgrad.errors import unimplemented


class _Absent:
    """Base class. Makes pickle, torch.save and `data` refuse the stand-in. torch doesn't count
    changes by `data`, so the network couldn't see them."""

    @property
    def data(self) -> NoReturn:
        raise unimplemented("net.model", "data of a tensor whose values are on the server",
                            "net.state_dict(), which fetches them, and net.load_state_dict()")

    @data.setter
    def data(self, _values: Any) -> None:
        self.data  # noqa: B018

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise unimplemented("net.model", "a tensor whose values are on the server",
                            "net.state_dict(), which fetches them")


class AbsentTensor(_Absent, torch.Tensor):
    """Stands for a buffer, or for any tensor in the model's own state_dict()."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def detach(self) -> AbsentTensor:
        return absent_tensor(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> AbsentTensor:
        return absent_tensor(self)


class AbsentParameter(_Absent, nn.Parameter):
    """Stands for a parameter. Refuses `grad`, because only handles have gradients."""

    @property
    def grad(self) -> NoReturn:  # type: ignore[override]
        raise unimplemented("net.model", "grad of a parameter whose gradient is on the server",
                            "grad of net.parameters(), or net.zero_grad()")

    @grad.setter
    def grad(self, _gradient: Any) -> None:
        self.grad  # noqa: B018

    def detach(self) -> AbsentTensor:
        return absent_tensor(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> AbsentParameter:
        return absent_parameter(self)


def absent_tensor(like: torch.Tensor) -> AbsentTensor:
    make: Any = torch.Tensor._make_subclass
    found: AbsentTensor = make(AbsentTensor, torch.empty_like(like, device="meta"))
    return found


def absent_parameter(like: torch.Tensor) -> AbsentParameter:
    """Returns a stand-in with the parameter's Python attributes."""
    found = AbsentParameter(torch.empty_like(like, device="meta"), like.requires_grad)
    vars(found).update(vars(like))
    return found
