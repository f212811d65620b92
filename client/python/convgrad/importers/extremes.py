"""Numbers such as torch.finfo(torch.float32).min of a mask, of which bf16 has none so large."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from convgrad import layouts
from convgrad.importers.steps import COMPARISONS
from convgrad.programs import Program, name_of_constant

# Steps whose numbers become elements of a value, factors of them, or are compared with them. A
# factor is limited even if the product would be finite: that costs one rounding.
_LIMITED = COMPARISONS | {"add", "clamp", "hardtanh", "mul", "pad", "sub", "where"}
_MOST = float(ml_dtypes.finfo(layouts.DTYPES["bf16"]).max)  # type: ignore[no-untyped-call]


def for_dtype(program: Program, compute_dtype: str) -> Program:
    """Returns the program for runs in this dtype, which may be `program` itself. In bf16, the
    largest number stands for larger finite ones, which would become infinite."""
    if compute_dtype != "bf16" or not _too_large(program):
        return program
    found = program.copy()
    for attribute in _too_large(found):
        attribute.number = math.copysign(_MOST, attribute.number)
    return found


def with_constants(program: Program, constants: Mapping[str, layouts.Array],
                   ) -> tuple[Program, dict[str, layouts.Array]]:
    """Does the same with a program's constants for runs in bf16. Returns the program, and its
    constants by their names in it, which follow from their elements."""
    names, found = {}, dict(constants)
    for name, array in constants.items():
        is_large = np.isfinite(array) & (abs(array) > _MOST)
        if is_large.any():
            del found[name]
            limited = np.where(is_large, np.copysign(np.float32(_MOST), array), array)
            names[name] = name_of_constant(limited)
            found[names[name]] = limited
    if not names:
        return program, found
    program = program.copy()
    entries = program.message.parameters
    for entry in [one for one in entries if one.name in names]:
        name = names[entry.name]
        if any(one.name == name for one in entries):  # two constants have become equal
            entries.remove(entry)
        else:
            entry.name = name
    for step in program.message.steps:
        step.operands[:] = [names.get(one, one) for one in step.operands]
    return program, found


def _too_large(program: Program) -> list[Any]:
    """Returns the attributes that have such numbers."""
    return [one for step in program.message.steps if step.operator in _LIMITED
            for one in step.attributes
            if one.WhichOneof("value") == "number" and _MOST < abs(one.number) < math.inf]
