"""Shortens the tracebacks of this package's errors."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

import grpc

from convgrad.errors import ConvgradError

P = ParamSpec("P")
R = TypeVar("R")

# Modules whose frames don't help a user.
_OWN = re.compile(r"(convgrad|concurrent\.futures)(\.|$)")


def short_traceback(function: Callable[P, R]) -> Callable[P, R]:
    """Wraps a function so that tracebacks of its ConvgradErrors omit this package's frames.

    Frames of other code stay, such as those of a user's forward(). Internal errors keep all
    frames, because they may be faults of the package. Cause and context don't change.
    """
    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ConvgradError as error:
            if error.code == grpc.StatusCode.INTERNAL:
                raise
            # Without `from`, which would hide the exception that the caller is handling.
            raise error.with_traceback(  # noqa: B904
                _without_own_frames(error.__traceback__))

    return called


def _without_own_frames(first: TracebackType | None) -> TracebackType | None:
    """Returns a copy of the traceback without frames of convgrad and of concurrent.futures,
    which convgrad uses to wait."""
    kept = []
    while first is not None:
        if not _OWN.match(first.tb_frame.f_globals.get("__name__", "")):
            kept.append(first)
        first = first.tb_next
    shortened = None
    for entry in reversed(kept):
        shortened = TracebackType(shortened, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return shortened
