"""Describes an operation without its tensors, in values that PyTorch's operators can carry."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from convgrad.client import Client
from convgrad.errors import InvalidArgument, invalid

Ints = int | Sequence[int]

# Objects with a Client's methods that aren't Clients, by handle.
_STAND_INS: WeakValueDictionary[str, Any] = WeakValueDictionary()


class Layer(NamedTuple):
    """`stride` and similar fields have one entry per spatial axis; a linear layer has none.

    Every field is a string, a number or a tuple of these, because PyTorch's compiler, its
    export and torch.fx store them in graphs. `padding` is "same" or "valid" before
    settings_of(); after it, the pads before the input on each axis, then those behind it.
    """

    client: str
    """The client's handle."""
    forward: str
    """"remote" or "local": where outputs are computed."""
    transposed: bool
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int

    @property
    def rank(self) -> int:
        return len(self.stride)

    def pads(self) -> list[tuple[int, int]]:
        """Returns the pads before and behind each axis. Requires: settings_of()."""
        assert not isinstance(self.padding, str)
        return list(zip(self.padding[:self.rank], self.padding[self.rank:]))

    def out_channels(self, weight_shape: Sequence[int]) -> int:
        return weight_shape[1] * self.groups if self.transposed else weight_shape[0]

    def output_shape(self, input_shape: Sequence[int],
                     weight_shape: Sequence[int]) -> list[int]:
        shape = [input_shape[0], self.out_channels(weight_shape)]
        for i, (begin, end) in enumerate(self.pads()):
            size, stride = input_shape[i + 2], self.stride[i]
            span = self.dilation[i] * (weight_shape[i + 2] - 1) + 1
            shape.append((size - 1) * stride - begin - end + span + self.output_padding[i]
                         if self.transposed else (size + begin + end - span) // stride + 1)
        return shape


def settings_of(layer: Layer, kernel: Sequence[int]) -> tuple[Any, ...]:
    """Returns the fields, with named padding converted to pads by torch's rule.

    A function, because torch.compile before PyTorch 2.5 doesn't trace methods of tuples.
    """
    padding = layer.padding
    if isinstance(padding, str):
        pads = [d * (k - 1) if padding == "same" else 0
                for d, k in zip(layer.dilation, kernel)]
        padding = (*[pad // 2 for pad in pads], *[pad - pad // 2 for pad in pads])
    return (layer.client, layer.forward, layer.transposed, layer.stride, padding,
            layer.dilation, layer.output_padding, layer.groups)


def check_forward(forward: str) -> None:
    """Raises InvalidArgument unless `forward` is "remote" or "local"."""
    if forward not in ("remote", "local"):
        raise invalid("INVALID_ENUM", "forward", forward, "remote or local")


def make_layer(client: object, forward: str, rank: int, *, stride: Ints = 1,
               padding: str | Ints = 0, dilation: Ints = 1, output_padding: Ints = 0,
               groups: int = 1, transposed: bool = False) -> Layer:
    """Returns the layer for torch.nn.functional's keywords; `rank` 0 is linear.

    Errors: InvalidArgument naming the invalid keyword.
    """
    check_forward(forward)
    strides = _each("stride", stride, rank)
    if padding == "same" and any(s != 1 for s in strides):
        # torch's rule; the server would apply TensorFlow's.
        raise invalid("OUT_OF_RANGE", "operation.problem.stride", stride,
                      "1 where padding is 'same'")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise invalid("INVALID_ENUM", "operation.problem.padding", padding,
                          "same, valid or numbers")
        pads: tuple[int, ...] | str = padding
    else:
        pads = _each("padding", padding, rank) * 2
    return Layer(handle_of(client), forward, transposed, strides, pads,
                 _each("dilation", dilation, rank),
                 _each("output_padding", output_padding, rank), groups)


def handle_of(client: object) -> str:
    """Returns the handle for client_of(). Raises InvalidArgument for an object that is no
    client."""
    if isinstance(client, Client):
        return client.handle
    kind = type(client)
    if client is None:
        raise _no_client("nothing")
    method = getattr(client, "conv_backward", None)
    if kind is type or not callable(method) or inspect.iscoroutinefunction(method):
        raise _no_client(f"{kind.__module__}.{kind.__qualname__}")
    handle = f"stand-in {id(client)}"
    _STAND_INS[handle] = client
    return handle


def client_of(handle: str) -> Any:
    """Returns the client. Raises InvalidArgument if it is gone or another process's."""
    client = Client.of_handle(handle) or _STAND_INS.get(handle)
    if client is None:
        raise _no_client(f"the handle '{handle}' of one that is gone or another process's")
    return client


def _no_client(found: str) -> InvalidArgument:
    return invalid("MISSING", "client", found, "a convgrad.Client")


def _each(name: str, values: Ints, rank: int) -> tuple[int, ...]:
    """Returns one entry per axis."""
    field = f"operation.problem.{name}"
    try:
        given = tuple(map(operator.index, values if isinstance(values, Sequence) else [values]))
    except TypeError:
        raise invalid("OUT_OF_RANGE", field, values, "integers") from None
    if len(given) not in (1, rank):
        raise invalid("SHAPE_MISMATCH", field, f"{len(given)} entries", f"1 or {rank}")
    return given if len(given) == rank else given * rank
