"""Layers whose weights and inputs stay on the server: up once, used by forward and backward.

A tensor is known by its memory and by torch's count of changes to it, and is dropped once
nothing refers to it here, not even a graph. What isn't known, or is lost on the way, travels
with the call as it would without a session: what is kept only saves sending it.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt
import torch

from convgrad.client import Client
from convgrad.kept import Kept
from convgrad.sessions import Session
from convgrad.torch import staging
from convgrad.torch.tensor_store import LOST, TensorStore
from convgrad.torch.tensors import to_array

_TORCH: Any = torch  # whose types are of PyTorch 1.13 where they are checked
_HAS_COMPILER = hasattr(getattr(torch, "compiler", None), "is_compiling")

Tensor = torch.Tensor


def operand(client: Any, role: str, tensor: Tensor, dtype: torch.dtype, *,
            is_forward: bool) -> Any:
    """Returns what the client's methods take for an input or a weight, in `dtype`."""
    array = to_array(tensor.to(dtype))
    if isinstance(client, Keeper):
        return client.operand(role, tensor, array, is_forward)
    return array


def own(client: object, input: Tensor) -> Tensor:
    """Returns a view that only the graph will hold, of an input that the caller may hold on to.
    """
    # A compiler's graph has tensors of its own.
    is_compiling = _HAS_COMPILER and _TORCH.compiler.is_compiling()
    if not isinstance(client, Keeper) or is_compiling or not torch.is_grad_enabled() or (
            input.grad_fn is not None or input.is_inference()):
        return input
    return input.view_as(input)


@dataclass(frozen=True)
class _Sent:
    """An operand under its name, and as an array should the name be lost."""

    session: Session
    kept: Kept
    array: npt.NDArray[Any]


def _method(name: str) -> Callable[..., Any]:
    def method(self: Keeper, *operands: Any, **keywords: Any) -> Any:
        """As the client's, with what operand() gave."""
        return self._run(name, operands, keywords)

    method.__name__ = name
    return method


class Keeper:
    """Has a client's methods, and keeps tensors in a session of its own. Thread-safe.

    At most `limit_bytes` are kept, None: what the server lets a session have; beyond it
    goes what wasn't used for longest.
    """

    _living: ClassVar[weakref.WeakValueDictionary[str, Keeper]] = weakref.WeakValueDictionary()

    conv_forward = _method("conv_forward")
    conv_backward = _method("conv_backward")
    conv_transpose_forward = _method("conv_transpose_forward")
    conv_transpose_backward = _method("conv_transpose_backward")
    linear_forward = _method("linear_forward")
    linear_backward = _method("linear_backward")

    def __init__(self, client: Client, limit_bytes: int | None = None,
                 of: Keeper | None = None) -> None:
        """`of`: the keeper beside which this one is, for what has no backward."""
        self.handle = uuid.uuid4().hex
        self._living[self.handle] = self
        self._client = client
        self._limit_bytes = limit_bytes
        self._store: TensorStore = of._store if of else TensorStore(client, limit_bytes or 0)
        self._without_backward = None if of else Keeper(client, limit_bytes, of=self)

    @classmethod
    def of_handle(cls, handle: str) -> Keeper | None:
        """As Client.of_handle."""
        return cls._living.get(handle)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Keeper, (self._client, self._limit_bytes))

    def __deepcopy__(self, memo: dict[int, Any]) -> Keeper:
        """Copies of a model share what is kept, as they share the client."""
        return self

    def of_mode(self) -> Keeper:
        """Returns which keeper a forward is to use: under no_grad one that keeps no inputs."""
        if self._without_backward is None or torch.is_grad_enabled():
            return self
        return self._without_backward

    def operand(self, role: str, tensor: Tensor, array: npt.NDArray[Any],
                is_forward: bool) -> Any:
        """Keeps a forward's operand; a backward's is what its forward has kept."""
        is_kept = role == "weight" or self._without_backward is not None or not is_forward
        if not is_kept or tensor.is_inference() or tensor.numel() == 0:
            return array
        found = self._store.find(role, tensor, array, is_forward)
        return array if found is None else _Sent(found[0], found[1], array)

    def _run(self, name: str, operands: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        sent = [tensor for tensor in operands if isinstance(tensor, _Sent)]
        if sent and len({tensor.session for tensor in sent}) == 1:
            try:
                return staging.method_of(self._client, name, sent[0].session)(*(
                    tensor.kept if isinstance(tensor, _Sent) else tensor
                    for tensor in operands), **keywords)
            except LOST:
                self._store.forget_lost()
        return staging.method_of(self._client, name)(*(
            tensor.array if isinstance(tensor, _Sent) else tensor
            for tensor in operands), **keywords)
