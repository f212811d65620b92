"""Provides explain(), which tells whether a server can compute a model, and at what cost."""

from __future__ import annotations

import collections
import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from convgrad.errors import FailedPrecondition, InvalidArgument, Unimplemented
from convgrad.local.programs import tool_program
from convgrad.programs import Program
from convgrad.shapes import padded
from convgrad.torch.networks.forwards.effects import call_of
from convgrad.torch.networks.forwards.exporting import shapes_of
from convgrad.torch.networks.importing import import_model
from convgrad.torch.networks.refusals import Refusal, refusals_of
from convgrad.torch.networks.tracing import bind, check_model, check_version
from convgrad.tracebacks import short_traceback

_FLOAT_BYTES = 4
# The same ratio as in CostOf in backends/onednn/networks/network_plan.cc.
_MACS_PER_BYTE = 2.5


class Cost(NamedTuple):
    """The cost of all steps of one operator in a forward pass, in f32 and without fusion."""

    operator: str
    steps: int
    flops: int
    """Two per multiply-add; one per element for element-wise operators."""
    bytes: int
    """Bytes of all operands and results."""
    share: float
    """Share of the program's nominal time, 0 to 1. A step's nominal time is that of its
    arithmetic or of its memory accesses, whichever is longer."""


@dataclass(frozen=True)
class Explanation:
    """The result of explain(). str() formats it for people."""

    model: str
    """Name of the model's class."""
    inputs: Mapping[str, tuple[int, ...]]
    """Shapes of the example inputs."""
    refusals: tuple[Refusal, ...] = ()
    """Everything that a server can't compute, most frequent first. Empty if it takes the model.
    """
    program: Program | None = None
    costs: tuple[Cost, ...] = ()
    """One entry per operator, most expensive first. Empty without the tool `convgrad`."""
    value_bytes: int = 0
    """Bytes of the inputs and all results in f32, the most that a training step keeps. 0 if the
    tool isn't installed."""

    @property
    def is_taken(self) -> bool:
        return not self.refusals

    @property
    def flops(self) -> int:
        """Operations of a forward pass; a training step has three times as many."""
        return sum(cost.flops for cost in self.costs)

    def parameters(self, *, fixed: bool = False) -> int:
        """Returns the number of elements of all trained parameters or, if `fixed`, of all that
        aren't trained, such as running statistics."""
        entries = self.program.message.parameters if self.program else ()
        return sum(math.prod(entry.dims) for entry in entries if entry.fixed == fixed)

    def __str__(self) -> str:
        return "\n".join(self._refused() if self.refusals else self._taken())

    def _refused(self) -> list[str]:
        rows = [(str(it.times), it.found, it.module, it.expected, it.line)
                for it in self.refusals]
        return [f"{self.model}: a server can't compute it",
                *_table(("times", "found", "first in", "expected", "line"), rows)]

    def _taken(self) -> list[str]:
        assert self.program is not None
        steps = len(self.program.message.steps)
        lines = [f"{self.model}: a server computes it, as a program of {steps} steps with "
                 f"{self.parameters():,} trainable and {self.parameters(fixed=True):,} fixed "
                 "parameters"]
        if not self.costs:
            return [*lines, "flops and bytes: unknown, because the tool isn't here: "
                            'pip install --find-links build/wheels "convgrad[server]"']
        shapes = ", ".join(f"{name} of {shape}" for name, shape in self.inputs.items())
        rows = [(cost.operator, str(cost.steps), f"{cost.flops / 1e9:.3f}",
                 f"{cost.bytes / 1e6:.1f}", f"{cost.share:.1%}") for cost in self.costs]
        return [*lines,
                f"forward: {self.flops / 1e9:.2f} GFLOP for {shapes}; a training step has "
                "three times as many",
                f"values: {self.value_bytes / 1e6:.1f} MB in f32, the most that a training "
                "step keeps",
                *_table(("operator", "steps", "GFLOP", "MB", "nominal time"), rows)]

    __repr__ = __str__


@short_traceback
def explain(model: nn.Module, *args: Any, **kwargs: Any) -> Explanation:
    """Returns whether remote() accepts a model and what the model costs. Needs no server.

        print(convgrad.torch.explain(model, images))

    Takes the arguments of the model's forward; the tensors' values don't matter, the modules'
    modes do. The explanation lists everything that a server can't compute. If there is nothing,
    it contains the program's size and the costs by operator. The tool computes the costs
    (`convgrad program`), so they need `convgrad[server]`.

    Errors: TypeError as for a call of the model; InvalidArgument for shapes or dtypes that the
    model doesn't accept, or for a mistake in a forward, whose own error is the cause;
    Unimplemented for a PyTorch before 2.6.
    """
    check_version()
    name, shapes = type(model).__name__, dict[str, tuple[int, ...]]()
    try:
        check_model(model)
        tensors, constants = bind(model, args, kwargs)
        shapes = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
        imported = import_model(model, shapes_of(tensors), constants, call=call_of(tensors))
        given = {**shapes, **imported.prelude.shapes(tensors)}
        table = _table_of(imported.program, given)
    except Unimplemented as error:
        return Explanation(name, shapes, refusals_of(error))
    if table is None:
        return Explanation(name, shapes, program=imported.program)
    return Explanation(name, shapes, (), imported.program,
                       _costs_of(imported.program, given, table), table["value_bytes"])


def _table_of(program: Program, shapes: Mapping[str, Sequence[int]]) -> Any:
    """Returns the tool's table for the program; None without the tool."""
    try:
        tool = tool_program()
    except FailedPrecondition:
        return None
    dims = {entry.name: shapes[entry.name] if entry.is_index else padded(shapes[entry.name])
            for entry in program.message.inputs}
    inputs = ",".join(f"{name}={'x'.join(map(str, each))}" for name, each in dims.items())
    done = subprocess.run([tool, "program", "/dev/stdin", f"--input={inputs}", "--json"],
                          input=str(program), text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise InvalidArgument(done.stderr.strip())
    return json.loads(done.stdout)


def _costs_of(program: Program, shapes: Mapping[str, Sequence[int]],
              table: Any) -> tuple[Cost, ...]:
    dims: dict[str, Sequence[int]] = {
        **shapes, **{entry.name: entry.dims for entry in program.message.parameters},
        **{row["result"]: row["dims"] for row in table["steps"]}}
    steps = collections.Counter(step.operator for step in program.message.steps)
    flops: collections.Counter[str] = collections.Counter()
    moved: collections.Counter[str] = collections.Counter()
    costs: collections.Counter[str] = collections.Counter()
    for step, row in zip(program.message.steps, table["steps"]):
        used = [step.result, *filter(None, step.operands)]
        size = _FLOAT_BYTES * sum(math.prod(dims[name]) for name in used)
        flops[step.operator] += row["flops"]
        if step.operator != "flatten":  # a view
            moved[step.operator] += size
            costs[step.operator] += max(row["flops"] / 2, _MACS_PER_BYTE * size)
    total = sum(costs.values()) or 1
    return tuple(Cost(name, steps[name], flops[name], moved[name], costs[name] / total)
                 for name in sorted(steps, key=lambda name: -costs[name]))


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns lines with aligned columns; the last column isn't padded."""
    widths = [max(map(len, column)) for column in zip(titles, *rows)]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
            for row in (titles, *rows)]
