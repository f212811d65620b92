"""Keywords that every operation takes, and the message that tells a server of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypedDict

import numpy.typing as npt

from convgrad.errors import invalid
from convgrad.v1 import service_pb2

_PREFIX = "BACKEND_CHOICE_"
_BACKENDS = tuple(name.removeprefix(_PREFIX).lower()
                  for name in service_pb2.BackendChoice.keys()[1:])
_PRIORITIES = ("batch", "interactive")


class Options(TypedDict, total=False):
    """Keywords that every operation takes."""

    layout: str
    """Of activations: NCX (default), NXC or NDC1HWC0. NHWC and the like are NXC, too."""
    weight_layout: str
    """Of weight and grad_weight: OIX (default), OXI, XIO or FRACTAL_Z_3D."""
    layouts: Mapping[str, str]
    """Of single tensors, by name; before the two above."""
    c0: int
    """Channel block of NDC1HWC0 and FRACTAL_Z_3D: 8 or 16."""
    dtypes: Mapping[str, npt.DTypeLike]
    """Of results, by name. Default: the server's, f32 for grad_weight, grad_bias."""
    scales: Mapping[str, float]
    """Factors of results, by name, applied before the one rounding."""
    backend: str
    """auto (default), or the name of one of the server's backends."""
    deterministic: bool
    self_check: bool
    count_nonfinite: bool
    out: Mapping[str, npt.NDArray[Any]]
    """Of results, by name: arrays that they are received into, and that are returned.
    Writable, C-contiguous, of the result's dtype and shape, overlapping no operand and no
    other result. What they hold if the call fails is undefined."""
    slice_items: int
    """Send it as a stream, in slices of so many items of the batch; 0: the contract's
    formula. Default: as a message, unless that can't hold it."""
    timeout: float | None
    """Seconds for the call, all its attempts and the waits between them."""
    traceparent: str
    """W3C's trace context of the span that the call belongs to."""
    keep: Mapping[str, str]
    """Of a session's calls: names for results that stay on the server."""
    add: Mapping[str, str]
    """Of a session's calls: names of kept tensors that results are added to, in f32; 0 if
    there is none of that name."""
    priority: str
    """batch (default) or interactive, which the server takes first."""


def wire_options(options: Options) -> service_pb2.Options:
    """Returns the message. Raises InvalidArgument for a backend or priority that isn't one."""
    backend = options.get("backend", "auto")
    if backend not in _BACKENDS:
        raise invalid("INVALID_ENUM", "options.backend", backend, ", ".join(_BACKENDS))
    priority = options.get("priority", "batch")
    if priority not in _PRIORITIES:
        raise invalid("INVALID_ENUM", "convgrad-priority", f"'{priority}'",
                      " or ".join(_PRIORITIES))
    choice: Any = service_pb2.BackendChoice.Value(_PREFIX + backend.upper())
    return service_pb2.Options(
        backend=choice, deterministic=options.get("deterministic", True),
        request_id=os.urandom(16), self_check=options.get("self_check", False),
        count_nonfinite=options.get("count_nonfinite", False))


def timeout_of(seconds: float | None) -> Options:
    """Returns the options of a call that has no others; None: the client's timeout."""
    return Options() if seconds is None else Options(timeout=seconds)
