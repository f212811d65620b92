"""What a network on a server is to PyTorch: an nn.Module whose tensors are elsewhere."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from convgrad.errors import unimplemented

Self = TypeVar("Self", bound="RemoteModule")


class RemoteModule(nn.Module):
    """Goes into other modules, with layers that are here before and behind it.

    Its submodules, buffers and attributes are those of `model`, which has no values. Its
    parameters, also as part of another module, are handles that convgrad.torch.optim takes.
    What is part of another module is saved and loaded with it.
    """

    def __init__(self, model: nn.Module) -> None:
        """`model` has shapes alone."""
        vars(self)["_model"] = model
        is_training = model.training
        super().__init__()
        model.training = is_training

    @property
    def model(self) -> nn.Module:
        model: nn.Module = vars(self)["_model"]
        return model

    @abstractmethod
    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """Yields a RemoteParameter for each parameter."""

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        return (handle for _, handle in self.named_parameters())

    @property
    def _parameters(self) -> Any:
        """What a module around this one asks for."""
        return dict(self.named_parameters())

    @_parameters.setter
    def _parameters(self, _none: Any) -> None:
        """nn.Module's constructor sets it."""

    def named_modules(self, memo: set[nn.Module] | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, nn.Module]]:
        """Yields itself and the model's modules. A module around it sees itself alone: the
        model's tensors have no values."""
        if memo is None:
            yield prefix, self
            for name, module in self.model.named_modules(
                    prefix=prefix, remove_duplicate=remove_duplicate):
                if module is not self.model:
                    yield name, module
        elif self not in memo:
            memo.add(self)
            yield prefix, self

    def named_children(self) -> Iterator[tuple[str, nn.Module]]:
        return self.model.named_children()

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
        return self.model.named_buffers(*args, **kwargs)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        self.model.requires_grad_(requires_grad)
        return self

    def train(self: Self, mode: bool = True) -> Self:
        self.model.train(mode)
        return self

    @property
    def training(self) -> bool:
        return self.model.training

    @training.setter
    def training(self, mode: bool) -> None:
        self.model.training = mode

    def _apply(self: Self, fn: Callable[[torch.Tensor], torch.Tensor], *_rest: Any) -> Self:
        """Of to(), float(), cuda() and the like: refuses what would have to change values."""
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
        """Fetches parameters and buffers, as torch's state_dict of the model has them."""
        own = self._fetched_state()
        if destination is None:
            return own
        destination.update({prefix + name: tensor for name, tensor in own.items()})
        return destination

    @abstractmethod
    def _fetched_state(self) -> Any:
        """Returns parameters and buffers by name."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Any:
        """As torch's; also returns what is missing and what wasn't expected."""

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str,
                              local_metadata: Any, strict: bool, missing_keys: list[str],
                              unexpected_keys: list[str], error_msgs: list[str]) -> None:
        """Of a module around it."""
        own = {name[len(prefix):]: tensor for name, tensor in state_dict.items()
               if name.startswith(prefix)}
        try:
            result = self.load_state_dict(own, strict=False)
        except RuntimeError as error:
            error_msgs.append(str(error))
            return
        missing_keys += [prefix + name for name in result.missing_keys]
        if strict:
            unexpected_keys += [prefix + name for name in result.unexpected_keys]

    def __setattr__(self, name: str, value: Any) -> None:
        is_of_model = isinstance(value, (nn.Module, nn.Parameter)) and not isinstance(
            value, RemoteModule) and not hasattr(type(self), name)
        if is_of_model:
            setattr(self.model, name, value)
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """Submodules and other attributes of the model's."""
        return getattr(self.model, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise unimplemented("network", "a copy or a pickle of what is on a server",
                            "net.state_dict(), which has the values")
