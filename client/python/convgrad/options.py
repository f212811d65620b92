"""Defines the keywords that every operation takes, and encodes them as a message."""

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
# Longer timeouts would overflow the clocks of gRPC and Python.
_LONGEST_SECONDS = 365 * 86400.0


class Options(TypedDict, total=False):
    """Keywords that every operation takes."""

    layout: str
    """Layout of activations: NCX (default), NXC or NDC1HWC0. Names such as NHWC mean NXC."""
    weight_layout: str
    """Layout of weight and grad_weight: OIX (default), OXI, XIO or FRACTAL_Z_3D."""
    layouts: Mapping[str, str]
    """Layouts of single tensors, by name; they override the two above."""
    c0: int
    """Channel block of NDC1HWC0 and FRACTAL_Z_3D: 8 or 16."""
    dtypes: Mapping[str, npt.DTypeLike]
    """Dtypes of results, by name. Default: the server's, f32 for grad_weight and grad_bias."""
    scales: Mapping[str, float]
    """Factors of results, by name, applied before the single rounding."""
    backend: str
    """auto (default), or the name of one of the server's backends."""
    deterministic: bool
    self_check: bool
    count_nonfinite: bool
    out: Mapping[str, npt.NDArray[Any]]
    """Arrays that receive results and are returned, by the result's name. Each must be
    writable, C-contiguous, of the result's dtype and shape, and overlap no operand and no other
    result. Their contents are undefined if the call fails."""
    slice_items: int
    """Sends a stream with this many batch items per slice; 0: the contract's formula. Default:
    one message, unless the payload is too large."""
    timeout: float | None
    """Seconds for the call, including all attempts and the waits between them."""
    traceparent: str
    """W3C trace context of the span that the call belongs to."""
    keep: Mapping[str, str]
    """Names under which a session keeps results; only for a session's calls."""
    add: Mapping[str, str]
    """Names of kept tensors to which results are added, in f32; a missing one counts as 0. Only
    for a session's calls."""
    priority: str
    """batch (default) or interactive, which the server takes first."""


def wire_options(options: Options) -> service_pb2.Options:
    """Returns the message. Raises InvalidArgument for an unknown backend or priority, and for a
    traceparent that no metadata can have."""
    backend = options.get("backend", "auto")
    if backend not in _BACKENDS:
        raise invalid("INVALID_ENUM", "options.backend", backend, ", ".join(_BACKENDS))
    priority = options.get("priority", "batch")
    if priority not in _PRIORITIES:
        raise invalid("INVALID_ENUM", "convgrad-priority", f"'{priority}'",
                      " or ".join(_PRIORITIES))
    traceparent: Any = options.get("traceparent", "")
    if not isinstance(traceparent, str) or not (
            traceparent.isascii() and traceparent.isprintable()):
        raise invalid("OUT_OF_RANGE", "traceparent", ascii(traceparent),
                      "W3C's trace context, printable ASCII")
    choice: Any = service_pb2.BackendChoice.Value(_PREFIX + backend.upper())
    return service_pb2.Options(
        backend=choice, deterministic=options.get("deterministic", True),
        request_id=os.urandom(16), self_check=options.get("self_check", False),
        count_nonfinite=options.get("count_nonfinite", False))


def timeout_of(seconds: float | None) -> Options:
    """Returns the options of a call with only a timeout; None: the client's timeout."""
    return Options() if seconds is None else Options(timeout=seconds)


def seconds_of(timeout: float | None) -> float | None:
    """Returns a call's timeout, at most a year; None: the call has none.

    Errors: InvalidArgument for anything but a number.
    """
    if timeout is None:
        return None
    try:
        seconds = float(timeout)
    except (TypeError, ValueError, OverflowError):
        seconds = float("nan")
    if seconds != seconds:
        raise invalid("OUT_OF_RANGE", "timeout", ascii(timeout), "seconds, or None")
    return min(seconds, _LONGEST_SECONDS)
