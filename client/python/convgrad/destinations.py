"""Validates the caller's arrays that receive results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from convgrad.errors import invalid
from convgrad.layouts import DTYPES, Array, Descriptor
from convgrad.problem import Operation
from convgrad.v1 import tensor_pb2


@dataclass(frozen=True)
class Destinations:
    """Destinations of results, by name. A result without one is returned in a new array."""

    kept: Mapping[str, str] = field(default_factory=dict)
    """Names under which the session keeps results."""
    out: Mapping[str, Array] = field(default_factory=dict)
    places: Mapping[str, tensor_pb2.Tensor.Region] = field(default_factory=dict)
    """Regions of arrays in `out` that lie in one; the server writes these results there."""

    def array(self, which: str, wanted: Descriptor) -> Array:
        """Returns the array that receives a result."""
        return self.out[which] if which in self.out else (
            np.empty(wanted.shape(), DTYPES[wanted.dtype]))


def destinations_of(operation: Operation, kept: Mapping[str, str], out: Mapping[str, Array],
                    payloads: Mapping[str, memoryview]) -> Destinations:
    """Returns the destinations of the operation's results. `payloads` are its operands' bytes.

    Errors: InvalidArgument for an array that can't receive its result.
    """
    if not out:
        return Destinations(kept)
    taken = {f"operand {name}": np.frombuffer(payload, np.uint8)
             for name, payload in payloads.items()}
    for name, array in out.items():
        if name in kept:
            raise invalid("DUPLICATE", f"out.{name}", "a result that the session keeps",
                          "one that the call returns")
        _check(f"out.{name}", array, operation.results[name])
        for other, memory in taken.items():
            # Exact, because both are contiguous.
            if np.may_share_memory(array, memory):
                raise invalid("DUPLICATE", f"out.{name}", f"memory of {other}",
                              "memory of no operand and of no other result")
        taken[f"result {name}"] = array
    return Destinations(kept, out)


def _check(path: str, array: object, wanted: Descriptor) -> None:
    shape, dtype, kind = wanted.shape(), DTYPES[wanted.dtype], type(array)
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        reason, found = "DTYPE_MISMATCH", f"{kind.__module__}.{kind.__qualname__}"
    elif array.dtype != dtype or array.shape != shape:
        reason = "DTYPE_MISMATCH" if array.dtype != dtype else "SHAPE_MISMATCH"
        found = f"one of {array.dtype} and shape {array.shape}"
    elif not array.flags.c_contiguous:
        reason, found = "LAYOUT_MISMATCH", f"strides {array.strides}"
    elif not array.flags.writeable:
        reason, found = "LAYOUT_MISMATCH", "a read-only one"
    else:
        return
    raise invalid(reason, path, found, f"a writable, C-contiguous numpy.ndarray of {dtype} "
                  f"and shape {shape}")
