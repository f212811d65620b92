"""Makes errors of the exceptions that a forward raises while torch.export follows it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import traceback
from collections.abc import Iterator

from torch import nn

from convgrad.errors import ConvgradError, invalid
from convgrad.torch.networks.forwards.watching import INSIDE, Watch, is_inside
from convgrad.torch.networks.refusals import VALUES, field_of, named, refuse

_OF_VALUES = re.compile(r"data pointer|data is not allocated")
_OF_DTYPES = re.compile(
    r"dtype|(?<!device )\btypes?\b|\bbool\b|promotion|not implemented for '", re.IGNORECASE)
# Loggers to which torch writes about a failure.
_LOGGERS = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor",
            "torch.export._trace")


class Raised(Exception):
    """Has what a forward has raised as its cause. torch.export would print a graph for some
    errors."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drops warnings and errors that torch logs in the block on this thread."""
    thread = threading.get_ident()

    def is_shown(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.levelno < logging.WARNING

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(is_shown)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_shown)


def failed(model: nn.Module, watch: Watch, error: BaseException) -> ConvgradError:
    """Returns the error that names the module whose forward has raised, and its line."""
    where = named(model, watch.path)
    line = _line_of(error)
    said = (str(error).strip() or repr(error)).splitlines()[0]
    # torch.export calls a batch s77.
    said = re.sub(r"\bs\d+\b", "N", said).replace("FakeTensor", "Tensor")
    of_operator = type(error) in (RuntimeError, ValueError) and error is watch.raised
    found: ConvgradError
    if "DataDependent" in type(error).__name__:
        found = refuse(where, "a number or a condition that follows from a tensor's values",
                       "a forward whose control flow doesn't depend on data")
    elif _OF_VALUES.search(said):
        found = refuse(where, *VALUES)
    elif "TorchScript interpreter" in said or _is_of_script(error):
        found = refuse(where, "TorchScript, which raises an error or can't be followed",
                       "its function in Python")
    elif of_operator and _OF_DTYPES.search(said):
        found = invalid("DTYPE_MISMATCH", field_of(where), said,
                        "inputs of dtypes that it takes, which x.float() or x.long() gives")
    elif of_operator or _is_check(error):
        found = invalid("SHAPE_MISMATCH", field_of(where), said,
                        "inputs of shapes that it takes, with any batch")
    elif line and _is_own(error):
        found = invalid("MALFORMED", field_of(where), f"{type(error).__name__}: {said}",
                        "a forward that PyTorch runs, also on tensors without values")
    else:
        found = refuse(where, said, "a forward that torch.export follows")
    if line:
        found.message += f"; see {line}"
    return found


def _line_of(error: BaseException) -> str:
    """Returns file and line of the innermost code of the forward in the error's traceback."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not is_inside(frame):
            found = f"{frame.f_code.co_filename}:{line}"
    return found


def _is_of_script(error: BaseException) -> bool:
    """Returns whether the error has passed through TorchScript, and not only through the
    `wrapper` of torch.jit.script_if_tracing, which calls the function itself."""
    folder = os.path.join(INSIDE[0], "jit", "")
    return any(frame.f_code.co_filename.startswith(folder) and frame.f_code.co_name != "wrapper"
               for frame, _ in traceback.walk_tb(error.__traceback__))


def _is_check(error: BaseException) -> bool:
    """Returns whether a check of inputs has failed in the forward, and not in torch.export."""
    if type(error) not in (ValueError, AssertionError):
        return False
    file, function = _raised_in(error)
    return not file.startswith(INSIDE[0]) or file.startswith(
        os.path.join(INSIDE[0], "nn")) or function == "_assert"


def _is_own(error: BaseException) -> bool:
    """Returns whether a mistake in the forward has raised the error, and not torch.export."""
    if type(error).__module__.partition(".")[0] == "torch":
        return False
    return type(error) is not RuntimeError or not _raised_in(error)[0].startswith(INSIDE[0])


def _raised_in(error: BaseException) -> tuple[str, str]:
    """Returns the file and the name of the function that has raised the error."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_code.co_filename, frame.f_code.co_name
