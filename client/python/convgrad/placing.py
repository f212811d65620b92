"""Encodes an operation's request, with its tensors in the message or in regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from convgrad.problem import Operation
from convgrad.region import Region, ended
from convgrad.replies import Destinations, decode
from convgrad.v1 import operation_pb2, service_pb2, tensor_pb2
from convgrad.wire import LentMessage, Response

R = TypeVar("R")

Places = Mapping[str, tensor_pb2.Tensor.Region]


@dataclass(frozen=True)
class Loan:
    """The arrays of a call that lie in regions."""

    parts: tuple[tuple[Region, object], ...] = ()
    results: tuple[Region, ...] = ()
    """Regions into which the server writes the call's results."""

    @property
    def is_written(self) -> bool:
        """Whether an attempt that was given up may still write results."""
        return any(region.is_open for region in self.results)

    def give_up(self) -> None:
        """Reserves the arrays for good, because the server may still be using them."""
        for region, array in self.parts:
            region.hold([array])


def find_places(arrays: Mapping[str, npt.NDArray[Any]],
                regions: Iterable[Region]) -> tuple[Places, Loan]:
    """Returns the places of the arrays that lie in one of the regions, by field.

    Errors: NotFound for memory of a region that isn't open.
    """
    found: dict[str, tensor_pb2.Tensor.Region] = {}
    lent: list[tuple[Region, object]] = []
    results = []
    for region in regions:
        places = {field: place for field, array in arrays.items()
                  if (place := region.range_of(array)) is not None}
        if places and not region.is_open:
            raise ended(next(iter(places)))
        found |= places
        lent += [(region, arrays[field]) for field in places]
        results += [region for field in places if field.startswith("out.")]
    return found, Loan(tuple(lent), tuple(results))


@dataclass(frozen=True)
class Request:
    """A validated operation with everything that its message contains."""

    operation: Operation
    message: operation_pb2.ConvOperation
    """Its operands are inline or kept."""
    options: service_pb2.Options
    payloads: Mapping[str, memoryview]
    """By operand, in the order of the message's indices."""
    destinations: Destinations

    def by_value(self) -> LentMessage:
        """Returns the message with all operands' bytes."""
        return self._lent(self.message, list(self.payloads.values()))

    def decoder(self, result: Callable[..., R]) -> Callable[[Response], R]:
        """Returns a function that makes a result of a response."""
        return lambda response: result(*decode(self.operation, response, self.destinations))

    def placed(self, regions: Iterable[Region]) -> tuple[LentMessage, Request, Loan] | None:
        """Returns the message in which tensors in a region are left there, and the request that
        its response answers; None if there are no such tensors.

        Errors: NotFound for memory of a region that isn't open.
        """
        arrays = {f"operation.operands.{name}": np.frombuffer(payload, np.uint8)
                  for name, payload in self.payloads.items()}
        arrays |= {f"out.{name}": array for name, array in self.destinations.out.items()}
        found, loan = find_places(arrays, regions)
        if not found:
            return None
        places = {field.rpartition(".")[2]: place for field, place in found.items()
                  if field.startswith("out.")}
        message = operation_pb2.ConvOperation()
        message.CopyFrom(self.message)
        payloads: list[memoryview] = []
        for name, payload in self.payloads.items():
            tensor: Any = getattr(message.operands, name)
            place = found.get(f"operation.operands.{name}")
            if place is not None:
                tensor.region.CopyFrom(place)
            else:
                tensor.inline.payload_index = len(payloads)
                payloads.append(payload)
        for which, request in zip(self.operation.results, message.results):
            if which in places:
                place = places[which]
                request.region.region_id = place.region_id
                request.region.byte_offset = place.byte_offset
                request.region.byte_length = place.byte_length
        answered = replace(self, destinations=replace(self.destinations, places=places))
        return self._lent(message, payloads), answered, loan

    def _lent(self, message: operation_pb2.ConvOperation,
              payloads: list[memoryview]) -> LentMessage:
        kind = (service_pb2.ConvForwardRequest if self.operation.forward
                else service_pb2.ConvBackwardRequest)
        head = kind(operation=message, options=self.options)
        return LentMessage(head.SerializeToString(), payloads)
