"""A request checked before anything is sent, in the server's order and words.

Follows proto/codec/decode_operation.cc and
backends/core/convolution/conv_operation_validation.cc.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convgrad.errors import InvalidArgument, invalid
from convgrad.layouts import (
    ACTIVATION_LAYOUTS,
    WEIGHT_LAYOUTS,
    Descriptor,
    default_c0,
    is_blocked,
)
from convgrad.problem import MAX_DIMS, Dims, Problem, resolve, text_of
from convgrad.v1 import operation_pb2, tensor_pb2

OPERANDS = ("input", "weight", "bias", "residual", "grad_output", "output")
RESULTS = ("output", "grad_input", "grad_weight", "grad_bias", "grad_residual")
# Operands whose dtype must be the request's one dtype.
_PRIMARY = ("input", "weight", "grad_output")


@dataclass(frozen=True)
class Operation:
    """A validated request. Results are in the order asked for."""

    forward: bool
    problem: Problem
    operands: Mapping[str, Descriptor]
    results: Sequence[tuple[str, Descriptor]]


def name_of_result(which: Any) -> str:
    return tensor_pb2.Result.Name(which).removeprefix("RESULT_").lower()


def wire_result(name: str) -> Any:
    return tensor_pb2.Result.Value(f"RESULT_{name.upper()}")


def validate(message: operation_pb2.ConvOperation, forward: bool,
             payload_bytes: Iterable[int]) -> Operation:
    """Returns what the server will compute. Tensors of `message` are inline or kept.

    Raises InvalidArgument naming field, found and expected.
    """
    return _validated(message.SerializeToString(), forward, tuple(payload_bytes))


# Trainers make the same calls again and again; half of a tiny call's preparation was this.
@functools.lru_cache(maxsize=1024)
def _validated(serialized: bytes, forward: bool, payload_bytes: tuple[int, ...]) -> Operation:
    message = operation_pb2.ConvOperation.FromString(serialized)
    problem = resolve(message.problem)
    operands = {name: _stated(getattr(message.operands, name), name, problem)
                for name in OPERANDS if message.operands.HasField(name)}
    bias = _check_fused_shapes(message, problem, operands)
    operands, c0 = _settle_c0(operands)
    results = []
    for i, request in enumerate(message.results):
        _check_c0_known(request.c0, f"operation.results[{i}].c0")
        results.append((name_of_result(request.which), _wanted(
            request, problem, operands, (forward, c0, bias))))
    operation = Operation(forward, problem, operands, results)
    _check_results(message, operation)
    _check_c0(operation)
    _check_operands(operation)
    _check_result_descriptors(operation)
    _check_payloads(message, operation, payload_bytes)
    return operation


def operand_dtype(operands: Mapping[str, Descriptor]) -> str:
    return next((operands[n].dtype for n in _PRIMARY if n in operands), "f32")


def missing_operand(name: str) -> InvalidArgument:
    return invalid("MISSING", f"operation.operands.{name}", "nothing",
                   "a tensor, which the results asked for need")


def _stated(tensor: tensor_pb2.Tensor, name: str, problem: Problem) -> Descriptor:
    path = f"operation.operands.{name}"
    if len(tensor.dims) > MAX_DIMS:
        raise invalid("OUT_OF_RANGE", f"{path}.dims", f"{len(tensor.dims)} entries",
                      f"at most {MAX_DIMS}")
    _check_c0_known(tensor.c0, f"{path}.c0")
    dtype = _name(tensor_pb2.DataType, tensor.dtype).lower()
    dims = tuple(tensor.dims)
    if name == "bias":
        return Descriptor(dtype, "NCX", dims)
    layout = _name(tensor_pb2.Layout, tensor.layout)
    return Descriptor(dtype, layout, dims, tensor.c0 if is_blocked(layout) else 0,
                      problem.groups)


def _name(enum: object, number: int) -> str:
    name: str = enum.Name(number)  # type: ignore[attr-defined]
    return name.removeprefix("DATA_TYPE_").removeprefix("LAYOUT_")


def _check_c0_known(c0: int, path: str) -> None:
    if c0 not in (0, 8, 16):
        raise invalid("OUT_OF_RANGE", path, c0, "0 (the default), 8 or 16")


def _check_bias(problem: Problem, bias: Dims, path: str) -> None:
    if not problem.is_bias_shape(bias):
        raise invalid("SHAPE_MISMATCH", path, text_of(bias),
                      f"[], [1], [{problem.out_channels}], or each axis 1 or that "
                      f"of the output, {text_of(problem.output_dims())}")


def _check_fused_shapes(message: operation_pb2.ConvOperation, problem: Problem,
                        operands: dict[str, Descriptor]) -> Dims:
    """Returns the dims of grad_bias."""
    if "bias" in operands:
        _check_bias(problem, operands["bias"].dims, "operation.operands.bias.dims")
    bias: Dims = (problem.out_channels,)
    for i, request in enumerate(message.results):
        path = f"operation.results[{i}].bias_dims"
        if request.which != tensor_pb2.RESULT_GRAD_BIAS:
            if request.HasField("bias_dims"):
                raise invalid("OUT_OF_RANGE", path, "dims",
                              "nothing, unless the result is grad_bias")
        elif request.HasField("bias_dims"):
            bias = tuple(request.bias_dims.dim)
            if len(bias) > MAX_DIMS:
                raise invalid("OUT_OF_RANGE", path, f"{len(bias)} entries",
                              f"at most {MAX_DIMS}")
            _check_bias(problem, bias, path)
    return bias


def _settle_c0(operands: dict[str, Descriptor]) -> tuple[dict[str, Descriptor], int]:
    """Gives each blocked operand its c0, and returns that of results."""
    default = default_c0(operand_dtype(operands))
    named = 0
    settled = {}
    for name, tensor in operands.items():
        if is_blocked(tensor.layout):
            named = named or tensor.c0
            tensor = Descriptor(tensor.dtype, tensor.layout, tensor.dims,
                                tensor.c0 or default, tensor.groups)
        settled[name] = tensor
    return settled, named or default


def _wanted(request: operation_pb2.ResultRequest, problem: Problem,
            operands: dict[str, Descriptor],
            context: tuple[bool, int, Dims]) -> Descriptor:
    forward, c0, bias = context
    which = name_of_result(request.which)
    in_f32 = (which in ("grad_weight", "grad_bias")
              or request.store == operation_pb2.ResultRequest.STORE_ADD)
    dtype = "f32" if in_f32 else operand_dtype(operands)
    if request.dtype:
        dtype = _name(tensor_pb2.DataType, request.dtype).lower()
    if which == "grad_bias":
        return Descriptor(dtype, "NCX", bias)
    source, default = ("weight", "OIX") if which == "grad_weight" else (
        "input" if forward else "grad_output", "NCX")
    layout = operands[source].layout if source in operands else default
    if request.layout:
        layout = _name(tensor_pb2.Layout, request.layout)
    dims = {"grad_input": problem.input_dims, "grad_weight": problem.weight_dims,
            }.get(which, problem.output_dims)()
    return Descriptor(dtype, layout, dims, (request.c0 or c0) if is_blocked(layout) else 0,
                      problem.groups)


def _check_results(message: operation_pb2.ConvOperation, operation: Operation) -> None:
    if not operation.results:
        raise invalid("MISSING", "operation.results", "an empty list",
                      "at least one result")
    seen = set()
    for i, (which, _) in enumerate(operation.results):
        path = f"operation.results[{i}]"
        if (which == "output") != operation.forward:
            raise invalid("INVALID_ENUM", f"{path}.which", which,
                          "output" if operation.forward else "a gradient")
        if which in seen:
            raise invalid("DUPLICATE", f"{path}.which", f"{which} again",
                          "each result once")
        seen.add(which)
        scale = message.results[i].scale
        if message.results[i].HasField("scale") and not math.isfinite(scale):
            raise invalid("OUT_OF_RANGE", f"{path}.scale", scale, "a finite number")


def _check_c0(operation: Operation) -> None:
    dtype = operand_dtype(operation.operands)
    seen = 0
    blocked = [(f"operation.operands.{name}.c0", tensor)
               for name, tensor in operation.operands.items()]
    blocked += [(f"operation.results[{i}].c0", tensor)
                for i, (_, tensor) in enumerate(operation.results)]
    for path, tensor in blocked:
        if not is_blocked(tensor.layout):
            continue
        if tensor.c0 != 16 and not (tensor.c0 == 8 and dtype == "f32"):
            raise invalid("OUT_OF_RANGE", path, tensor.c0,
                          "8 or 16" if dtype == "f32" else "16")
        seen = seen or tensor.c0
        if tensor.c0 != seen:
            raise invalid("LAYOUT_MISMATCH", path, tensor.c0,
                          f"{seen}, the request's one c0")


def _is_needed(operation: Operation, operand: str) -> bool:
    asked = {which for which, _ in operation.results}
    return {
        "input": operation.forward or "grad_weight" in asked,
        "weight": operation.forward or "grad_input" in asked,
        "grad_output": not operation.forward,
        "output": not operation.forward and operation.problem.relu,
    }.get(operand, False)


def _check_operands(operation: Operation) -> None:
    operands = operation.operands
    problem = operation.problem
    dims = {"input": problem.input_dims(), "weight": problem.weight_dims()}
    for name in OPERANDS:
        path = f"operation.operands.{name}"
        if name in operands:
            # A bias was compared with the output already.
            expected = dims.get(name, problem.output_dims())
            _check_descriptor(name, operands[name], path,
                              operands[name].dims if name == "bias" else expected)
        elif _is_needed(operation, name):
            raise missing_operand(name)
    primary = [name for name in _PRIMARY if name in operands]
    for name in primary[1:]:
        expected_dtype = operands[primary[0]].dtype
        if operands[name].dtype != expected_dtype:
            raise invalid("DTYPE_MISMATCH", f"operation.operands.{name}.dtype",
                          operands[name].dtype,
                          f"{expected_dtype}, the dtype of {primary[0]}")
    dtype = operand_dtype(operands)
    for name, tensor in operands.items():
        _check_mixed_dtype(dtype, tensor.dtype, f"operation.operands.{name}.dtype")


def _check_result_descriptors(operation: Operation) -> None:
    dtype = operand_dtype(operation.operands)
    for i, (which, tensor) in enumerate(operation.results):
        path = f"operation.results[{i}]"
        _check_descriptor(which, tensor, path, tensor.dims)
        _check_mixed_dtype(dtype, tensor.dtype, f"{path}.dtype")


def _check_mixed_dtype(operands: str, found: str, path: str) -> None:
    if found not in (operands, "f32"):
        raise invalid("DTYPE_MISMATCH", path, found,
                      f"f32 or the operands' {operands}")


def _check_descriptor(role: str, tensor: Descriptor, path: str, expected: Dims) -> None:
    if tensor.dims != expected:
        raise invalid("SHAPE_MISMATCH", f"{path}.dims", text_of(tensor.dims),
                      text_of(expected))
    if role in ("bias", "grad_bias"):
        return
    is_weight = role in ("weight", "grad_weight")
    if (tensor.layout in WEIGHT_LAYOUTS) != is_weight:
        names = WEIGHT_LAYOUTS if is_weight else ACTIVATION_LAYOUTS
        article = "a weight" if is_weight else "an activation"
        raise invalid("LAYOUT_MISMATCH", f"{path}.layout", tensor.layout,
                      f"{article} layout: {', '.join(names)}")
    if tensor.byte_size() is None:
        raise invalid("OVERFLOW", f"{path}.dims", text_of(tensor.dims),
                      "a packed size below 2^63 bytes")


def _check_payloads(message: operation_pb2.ConvOperation, operation: Operation,
                    payload_bytes: Sequence[int]) -> None:
    for name, tensor in operation.operands.items():
        if getattr(message.operands, name).HasField("kept"):
            continue
        index = getattr(message.operands, name).inline.payload_index
        found, expected = payload_bytes[index], tensor.byte_size()
        if found != expected:
            raise invalid("BYTE_COUNT_MISMATCH", f"payloads[{index}]", f"{found} bytes",
                          f"{expected} bytes for operation.operands.{name}, {tensor}")
