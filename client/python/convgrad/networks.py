"""Prepares a session's calls on programs: load, run, backward, update.

Each function returns the call that a Session sends, as operations.py does for convolutions.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from convgrad import layouts
from convgrad.errors import invalid
from convgrad.kept import array_of, describe
from convgrad.layouts import Array, Descriptor
from convgrad.options import timeout_of
from convgrad.programs import Program
from convgrad.requests import MAX_PAYLOAD_BYTES, Call
from convgrad.v1 import network_pb2
from convgrad.wire import LentMessage, Response, join_message, parse

_SERVICE = "ConvGradNetworks/"
COMPUTE_DTYPES = {name: layouts.DTYPES[name] for name in ("f32", "bf16")}
_ALGORITHM = "ALGORITHM_"
_ALGORITHMS = tuple(name.removeprefix(_ALGORITHM).lower()
                    for name in network_pb2.UpdateParametersRequest.Algorithm.keys()[1:])


@dataclass(frozen=True)
class Backward:
    """Requests a backward pass from a program's own loss as part of a run."""

    input_gradients: Sequence[str] = ()
    """Inputs whose gradients are returned."""
    leave_parameters: bool = False
    """If true, the session's parameter gradients don't change."""


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters by name, and the settings of their optimizer, with PyTorch's names."""

    parameters: Sequence[str]
    learning_rate: float
    weight_decay: float = 0.0
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    maximize: bool = False
    alpha: float = 0.99
    centered: bool = False


@dataclass(frozen=True)
class Update:
    """One step of an optimizer: "sgd", "adam", "adamw", "rmsprop" or "lamb"."""

    algorithm: str
    groups: Sequence[ParameterGroup]
    gradient_scale: float = 1.0
    """Multiplies the gradients first."""
    clip_norm: float = 0.0
    """Then scales them down to this common norm, as clip_grad_norm_ does; 0: no clipping."""
    skip_nonfinite: bool = False
    """If true, a gradient that isn't finite makes the server skip the step and drop the
    gradients."""
    keep_gradients: bool = False
    """If true, the next backward pass adds to the gradients; otherwise they are dropped."""
    clip_value: float = 0.0
    """Limits each scaled gradient, before clip_norm, as clip_grad_value_ does; 0: no limit."""
    ema_decay: float = 0.0
    """If above 0, the session also keeps the exponential moving average "NAME#ema" of each
    parameter NAME: a copy of the value after the first step, then
    ema_decay * average + (1 - ema_decay) * value."""
    averaged: Sequence[str] = ()
    """Further float32 tensors whose averages are kept, such as running statistics."""

    def message(self) -> network_pb2.UpdateParametersRequest:
        """Returns the message. Raises InvalidArgument for an unknown algorithm."""
        if self.algorithm not in _ALGORITHMS:
            raise invalid("INVALID_ENUM", "update.algorithm", self.algorithm,
                          ", ".join(_ALGORITHMS))
        check_names("update.averaged", self.averaged)
        settings = {**vars(self), "algorithm": _ALGORITHM + self.algorithm.upper()}
        del settings["groups"]
        request = network_pb2.UpdateParametersRequest(**settings)
        for i, group in enumerate(self.groups):
            check_names(f"update.groups[{i}].parameters", group.parameters)
            settings = vars(group)
            if group.learning_rate is None:  # which the message would have as 0
                raise invalid("INVALID_TYPE", f"update.groups[{i}].learning_rate", None,
                              "a number")
            if self.algorithm != "rmsprop":  # servers of release 0.1 don't know the field
                settings = {key: value for key, value in settings.items() if key != "alpha"}
            request.groups.add(**settings)
        return request


class Updated(NamedTuple):
    """The result of an update."""

    skipped: bool
    gradient_norm: float
    """0 unless clip_norm or skip_nonfinite needs it."""


class Run(NamedTuple):
    """The result of a run or a backward pass."""

    values: dict[str, Array]
    """By name: values of the program, and gradients of inputs as "INPUT#gradient"."""
    report: network_pb2.RunReport
    updated: Updated | None = None
    """Only for a run with an update."""


def check_names(field: str, names: Iterable[str]) -> None:
    """Raises InvalidArgument for a single string, whose letters would be names."""
    if isinstance(names, str):
        raise invalid("INVALID_TYPE", field, f"'{names}'", "a list of names")


def gradient_name(name: str) -> str:
    """Returns the name of a parameter's gradient in a session, or of an input's gradient in a
    run's result."""
    return f"{name}#gradient"


def average_name(name: str) -> str:
    """Returns the name of a tensor's exponential moving average in a session."""
    return f"{name}#ema"


def load_program(name: str, program: Program, *, timeout: float | None = None) -> Call[None]:
    """Keeps a program under a name. Loading the same program again is no error.

    Errors: InvalidArgument naming step, operand or attribute; FailedPrecondition if the name
    belongs to another program.
    """
    request = network_pb2.LoadProgramRequest(name=name, program=program.message)
    return _change("LoadProgram", request.SerializeToString(), lambda _: None, timeout)


def drop_programs(*names: str, tapes: Iterable[str] = (),
                  timeout: float | None = None) -> Call[None]:
    """Drops programs by name, and tapes of runs."""
    check_names("tapes", tapes)
    request = network_pb2.DropProgramsRequest(programs=names, tapes=list(tapes))
    return _change("DropPrograms", request.SerializeToString(), lambda _: None, timeout)


def run(program: str, inputs: Mapping[str, npt.ArrayLike | str], *,
        fetched: Sequence[str] = (), compute_dtype: npt.DTypeLike = "f32", tape: str = "",
        backward: Backward | None = None, update: Update | None = None,
        change: bool = False, fuse: bool = True, fast: bool | None = None,
        recompute: bool = False, report_groups: bool = False, averaged: bool = False,
        trainer_state: bytes = b"", timeout: float | None = None) -> Call[Run]:
    """Runs a loaded program on inputs, which are arrays or names of kept tensors.

    Returns the values named in `fetched`, by default the program's outputs. With `tape` the
    session keeps the values that backward() needs, under this name. With `backward` the call
    also computes gradients of the program's first output, a scalar. With `update` it also steps
    the parameters, so that one call is a whole training step, all or nothing. Each of these
    changes the session. Set `change=True` for other runs that do, because a batch_norm or
    dropout is training (Program.is_training).

    The server fuses some steps and neither rounds nor writes the values between them.
    `report_groups=True` lists fused steps in the report. `fuse=False` makes every value
    fetchable; its results have different bits. With `fast=False` the server doesn't compute 3x3
    convolutions in float32 by Winograd's algorithm, which takes about half the time and has
    other rounding errors; integers stay exact. By default the server's flag
    --fast_convolutions decides; `fast=True` is an error if the flag forbids it.
    `recompute=True` recomputes values in the backward pass instead of keeping them: less
    memory, more time, the same bits.
    `averaged=True` reads the average "NAME#ema" of each parameter NAME, where the session keeps
    one (Update.ema_decay); the run then mustn't change the session.

    `trainer_state` (at most 64 KiB; only for a change) is kept with the session. Resuming it
    returns the newest as Session.trainer_state.
    """
    check_names("fetched", fetched)
    request = network_pb2.RunProgramRequest(
        program=program, fetched=fetched, tape=tape, recompute=recompute,
        report_groups=report_groups, averaged=averaged, trainer_state=trainer_state)
    if not fuse:
        request.fuse = False
    if fast is not None:
        request.fast = fast
    request.compute_dtype = layouts.wire_dtype(
        layouts.name_of_dtype(compute_dtype, "compute_dtype", COMPUTE_DTYPES))
    payloads = _add_tensors(request.inputs, inputs, "inputs")
    if backward is not None:
        check_names("backward.input_gradients", backward.input_gradients)
        request.backward.CopyFrom(network_pb2.RunBackward(**vars(backward)))
    if update is not None:
        request.update.CopyFrom(update.message())
    is_change = change or bool(tape) or backward is not None or update is not None
    return Call(_SERVICE + "RunProgram",
                LentMessage(request.SerializeToString(), payloads),
                functools.partial(_decode_run, network_pb2.RunProgramResponse),
                options=timeout_of(timeout), is_change=is_change)


def backward(tape: str, output_gradients: Mapping[str, npt.ArrayLike], *,
             input_gradients: Sequence[str] = (), leave_parameters: bool = False,
             retain: bool = False, trainer_state: bytes = b"",
             timeout: float | None = None) -> Call[Run]:
    """Computes gradients from a run's tape and float32 gradients of its outputs.

    Adds the gradients of trainable parameters to the session's, unless `leave_parameters`, and
    returns those of `input_gradients`. Drops the tape, unless `retain`.

    Errors: FailedPrecondition if parameters have changed since the run.
    """
    check_names("input_gradients", input_gradients)
    request = network_pb2.BackwardProgramRequest(
        tape=tape, input_gradients=input_gradients, leave_parameters=leave_parameters,
        retain=retain, trainer_state=trainer_state)
    payloads = _add_tensors(
        request.output_gradients,
        {name: np.asarray(gradient, order="C") for name, gradient in output_gradients.items()},
        "output_gradients")
    return _change("BackwardProgram", join_message(request.SerializeToString(), payloads),
                   functools.partial(_decode_run, network_pb2.BackwardProgramResponse),
                   timeout)


def update(update: Update, *, trainer_state: bytes = b"",
           timeout: float | None = None) -> Call[Updated]:
    """Steps the parameters by the session's gradients."""
    request = update.message()
    request.trainer_state = trainer_state
    return _change("UpdateParameters", request.SerializeToString(), lambda response: _updated(
        network_pb2.UpdateParametersResponse.FromString(response)), timeout)


def _change(method: str, message: bytes, decode: Any, timeout: float | None) -> Call[Any]:
    return Call(_SERVICE + method, message, decode, options=timeout_of(timeout),
                is_change=True)


def _add_tensors(messages: Any, tensors: Mapping[str, npt.ArrayLike | str],
                 field: str) -> list[memoryview]:
    """Adds the tensors to the messages and returns the payloads of the arrays."""
    payloads: list[memoryview] = []
    for name, tensor in tensors.items():
        message = messages.add(name=name).tensor
        if isinstance(tensor, str):
            message.kept.tensor_id = tensor
            continue
        array = np.asarray(tensor)
        dtype = layouts.name_of_dtype(array.dtype, f"{field}.{name}.dtype",
                                      layouts.KEPT_DTYPES)
        packed, layout = layouts.pack(array, "NCX")
        describe(Descriptor(dtype, layout, array.shape), message)
        message.inline.payload_index = len(payloads)
        payloads.append(packed.reshape(-1).view(np.uint8).data)
    size = sum(payload.nbytes for payload in payloads)
    if size > MAX_PAYLOAD_BYTES:
        raise invalid("LIMIT_EXCEEDED", field, f"{size} bytes",
                      f"at most {MAX_PAYLOAD_BYTES} in one call")
    return payloads


def _decode_run(kind: Any, response: Response) -> Run:
    message, payloads = parse(kind, response)
    values = {value.name: array_of(value.name, value.tensor, payloads)
              for value in message.values}
    is_step = kind is network_pb2.RunProgramResponse and message.HasField("update")
    return Run(values, message.report, _updated(message.update) if is_step else None)


def _updated(message: network_pb2.UpdateParametersResponse) -> Updated:
    return Updated(message.skipped, message.gradient_norm)
