"""Makes the program of steps: names, and what no output needs left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convgrad.layouts import Array
from convgrad.onnx.extents import Batch, Shape
from convgrad.onnx.refusals import Refusals, refuse
from convgrad.onnx.values import INDICES, Source, Value
from convgrad.programs import Program
from convgrad.shapes import padded

_REFUSED = re.compile(r"[^!-~]|[/\\,()=#~]")
_MOST_BYTES = 224  # of 239, which leaves room for a number


@dataclass(frozen=True)
class Imported:
    """A program, and what a session needs for it."""

    program: Program
    parameters: dict[str, Array]
    trainable: list[str]
    inputs: dict[str, Shape]
    """The model's shapes, by the program's names."""
    outputs: dict[str, Shape]


def emit(steps: Sequence[Source], inputs: Mapping[str, Any],
         outputs: Mapping[str, Value]) -> Imported:
    """Makes the program of the steps that the outputs need."""
    names = _Names()
    steps, results = _with_outputs(list(steps), outputs)
    wanted = _wanted(steps, results.values())
    by_source: dict[int, str] = {}
    program = Program()
    declared: dict[str, Shape] = {}
    numbers = _numbers_in(inputs, steps, wanted)
    for name, value in inputs.items():
        found = by_source[id(value.source)] = names.free(name)
        if id(value.source) in wanted:
            declared[found] = value.shape
            program.input(found, is_index=(
                value.dtype in INDICES and id(value.source) not in numbers))
    parameters: dict[str, Array] = {}
    trainable: list[str] = []
    for step in steps:
        for operand in step.operands:
            if id(step) in wanted and operand is not None and operand.array is not None and (
                    id(operand) not in by_source):
                by_source[id(operand)] = found = names.free(operand.name)
                parameters[found] = array = operand.array
                program.parameter(found, array.shape, fixed=operand.fixed,
                                  dtype="i64" if array.dtype == np.int64 else "f32")
                if not operand.fixed:
                    trainable.append(found)
    of_outputs = {id(source): names.free(name) for name, source in results.items()}
    for step in steps:
        if id(step) in wanted:
            found = of_outputs.get(id(step)) or names.free(step.name)
            by_source[id(step)] = program.step(
                step.operator, *(None if one is None else by_source[id(one)]
                                 for one in step.operands),
                name=found, attributes={
                    key.rstrip("_"): value for key, value in step.attributes.items()})
    program.output(*of_outputs.values())
    return Imported(program, parameters, trainable, declared, {
        of_outputs[id(results[name])]: value.shape for name, value in outputs.items()})


def _numbers_in(inputs: Mapping[str, Any], steps: Sequence[Source],
                wanted: set[int]) -> set[int]:
    """Returns the ids of what wanted steps compute with. Raises Refused if such an input also
    has indices."""
    uses: dict[bool, set[int]] = {True: set(), False: set()}
    for step in steps:
        for i, one in enumerate(step.operands if id(step) in wanted else ()):
            uses[step.operator == "index_select" and i == 1].add(id(one))
    refusals = Refusals()
    for name, value in inputs.items():
        if id(value.source) in uses[True] & uses[False]:
            refusals.add(refuse(name, "an input of indices that are also numbers", "one use"))
    refusals.check()
    return uses[False]


def _with_outputs(steps: list[Source], outputs: Mapping[str, Value],
                  ) -> tuple[list[Source], dict[str, Source]]:
    """Returns the steps, and a step of its own for each output."""
    results: dict[str, Source] = {}
    for name, value in outputs.items():
        source = value.source
        if not source.operator or source in results.values():
            shape = [-1 if isinstance(n, Batch) else n for n in padded(value.shape)]
            source = Source(name, "reshape", [source], {"shape": shape})
            steps.append(source)
        results[name] = source
    return steps, results


def _wanted(steps: Sequence[Source], outputs: Any) -> set[int]:
    """Returns the ids of all sources that outputs need."""
    wanted = {id(source) for source in outputs}
    for step in reversed(steps):
        if id(step) in wanted:
            wanted.update(id(one) for one in step.operands if one is not None)
    return wanted


class _Names:
    """Makes names of a program of those of a graph. Steps that a node has besides its own
    contain a ~."""

    def __init__(self) -> None:
        self._taken = {"none"}
        self._numbers: dict[str, int] = {}

    def free(self, name: str) -> str:
        base, mark, rest = name.rpartition("~") if "~" in name else (name, "", "")
        plain, rest = (_REFUSED.sub(lambda found: "." if found[0] == "/" else "_",
                                    one.strip("/"))[:_MOST_BYTES // 2] for one in (base, rest))
        plain = (plain or "_") + mark + rest
        found, number = plain, self._numbers.get(plain, 1)
        while found in self._taken:
            number += 1
            found = f"{plain}~{number}"
        self._numbers[plain] = number
        self._taken.add(found)
        return found
