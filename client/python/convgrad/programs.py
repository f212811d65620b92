"""Builds programs: whole networks as lists of steps that sessions load and run.

proto/convgrad/v1/network.proto defines the message. proto/networks.md lists the operators with
their operands and attributes, which are PyTorch's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from convgrad import layouts
from convgrad.errors import invalid
from convgrad.v1 import network_pb2, tensor_pb2

Attribute = bool | int | float | str | Sequence[int] | Sequence[float]
_PARAMETER_DTYPES = {name: layouts.KEPT_DTYPES[name] for name in ("f32", "i64")}


RANDOMNESS = "#randomness"
"""Name of the session's tensor that determines dropout masks: int64 [2], a seed and the number
of runs that have used it."""


class Program:
    """Builds a program, value by value.

        program = Program()
        x = program.input("x")
        w = program.parameter("conv.weight", (8, 3, 3, 3))
        y = program.step("conv", x, w, None, attributes={"padding": 1})
        program.output(y)

    The server checks the program when it is loaded. Owned by one thread.
    """

    def __init__(self) -> None:
        self.message = network_pb2.Program()
        # By each name, the number from which free_name() looks for another one.
        self._names: dict[str, int] = {}

    @property
    def is_training(self) -> bool:
        """Whether a run changes its session even without a tape, because it updates statistics
        of a batch_norm or counts a run for dropout."""
        return bool(self._training())

    @property
    def draws_masks(self) -> bool:
        """Whether a run draws dropout masks from the session's RANDOMNESS."""
        return "dropout" in self._training()

    @property
    def images(self) -> frozenset[str]:
        """Inputs that only convolutions read."""
        others = {name for step in self.message.steps for i, name in enumerate(step.operands)
                  if i > 0 or step.operator not in ("conv", "conv_transpose")}
        return frozenset(one.name for one in self.message.inputs).difference(
            others, self.message.outputs)

    def copy(self) -> Program:
        """Returns a program with the same content, to which more can be added."""
        copy = Program()
        copy.message.CopyFrom(self.message)
        copy._names = dict(self._names)
        return copy

    def digest(self) -> str:
        """Returns a hexadecimal hash of the program's content."""
        return hashlib.sha256(self.message.SerializeToString(deterministic=True)).hexdigest()

    def __str__(self) -> str:
        """Returns the text that the tool's `convgrad program` and the C++ library read."""
        message = self.message
        lines = [f"input {entry.name}{' index' * entry.is_index}" for entry in message.inputs]
        lines += [f"parameter {entry.name} {list(entry.dims)}"
                  f"{' i64' * (entry.dtype == tensor_pb2.DATA_TYPE_I64)}"
                  f"{' fixed' * entry.fixed}" for entry in message.parameters]
        for step in message.steps:
            arguments = [operand or "none" for operand in step.operands]
            arguments += [f"{entry.name}={_text_of(entry)}" for entry in step.attributes]
            lines.append(f"{step.result} = {step.operator}({', '.join(arguments)})")
        lines += [f"output {name}" for name in message.outputs]
        return "".join(f"{line}\n" for line in lines)

    def input(self, name: str, *, is_index: bool = False) -> str:
        """Declares an input of a run; `is_index`: class indices, int64."""
        self.message.inputs.add(name=self._new_name(name), is_index=is_index)
        return name

    def parameter(self, name: str, shape: layouts.Dims, *, dtype: str = "f32",
                  fixed: bool = False) -> str:
        """Declares a kept tensor that steps use; `fixed` ones aren't trained."""
        dtype = layouts.name_of_dtype(dtype, f"parameters.{name}.dtype", _PARAMETER_DTYPES)
        self.message.parameters.add(
            name=self._new_name(name), dims=shape, fixed=fixed,
            dtype=tensor_pb2.DATA_TYPE_UNSPECIFIED if dtype == "f32"
            else layouts.wire_dtype(dtype))
        return name

    def step(self, operator: str, *operands: str | None, name: str = "",
             attributes: Mapping[str, Attribute] | None = None) -> str:
        """Adds a step and returns the name of its value.

        None stands for an omitted operand. The value's name is `name`, with a number appended
        if it is taken.
        """
        result = self.free_name(name or operator)
        step = self.message.steps.add(
            result=self._new_name(result), operator=operator,
            operands=[operand or "" for operand in operands])
        for key, value in (attributes or {}).items():
            _set_attribute(step.attributes.add(name=key), value)
        return result

    def output(self, *names: str) -> None:
        """Adds values to the outputs, which a run returns and from which a backward starts."""
        self.message.outputs.extend(names)

    def prune(self) -> None:
        """Removes everything that no output needs, because the server would refuse it."""
        needed = set(self.message.outputs)
        for step in reversed(self.message.steps):
            if step.result in needed:
                needed.update(step.operands)
        for kept in (self.message.steps, self.message.inputs, self.message.parameters):
            entries: Any = kept
            for i in reversed(range(len(entries))):
                name = entries[i].result if kept is self.message.steps else entries[i].name
                if name not in needed:
                    del entries[i]

    def free_name(self, name: str) -> str:
        """Returns the name, with a number appended if it is taken."""
        found, number = name, self._names.get(name, 1)
        while found in self._names:
            number += 1
            found = f"{name}_{number}"
        if found != name:
            self._names[name] = number - 1  # since the caller may not take it
        return found

    def _training(self) -> set[str]:
        """Returns the operators of the steps that train."""
        return {step.operator for step in self.message.steps for attribute in step.attributes
                if attribute.name == "training" and attribute.flag}

    def _new_name(self, name: str) -> str:
        if name in self._names:
            raise invalid("DUPLICATE", "program", f"the name '{name}' twice",
                          "a name of its own for each input, parameter and value")
        self._names[name] = 1
        return name


def name_of_constant(array: layouts.Array) -> str:
    """Returns a name for a fixed parameter with these elements, which follows from them."""
    content = f"{array.dtype}{array.shape}".encode() + array.tobytes()
    return f"constant.{hashlib.sha256(content).hexdigest()[:32]}"


def _text_of(attribute: network_pb2.Program.Attribute) -> str:
    kind = attribute.WhichOneof("value")
    value = getattr(attribute, kind)
    if kind == "flag":
        return str(value).lower()
    return str(list(value.values) if kind in ("integers", "numbers") else value)


def _set_attribute(attribute: network_pb2.Program.Attribute, value: Attribute) -> None:
    """Raises InvalidArgument for a value of an unsupported type."""
    if isinstance(value, (bool, np.bool_)):
        attribute.flag = bool(value)
    elif isinstance(value, (int, np.integer)):
        attribute.integer = int(value)
    elif isinstance(value, (float, np.floating)):
        attribute.number = float(value)
    elif isinstance(value, str):
        attribute.word = value
    elif all(isinstance(one, (int, np.integer)) for one in value):
        attribute.integers.values.extend(int(one) for one in value)
        attribute.integers.SetInParent()
    elif all(isinstance(one, (int, float, np.number)) for one in value):
        attribute.numbers.values.extend(float(one) for one in value)
    else:
        raise invalid("INVALID_ENUM", f"attributes.{attribute.name}", value,
                      "a bool, a number, a word, or numbers")
