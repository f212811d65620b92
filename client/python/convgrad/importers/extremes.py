"""Numbers such as torch.finfo(torch.float32).min of a mask, of which bf16 has none so large."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes

from convgrad import layouts
from convgrad.programs import Program

# Steps whose numbers become elements of a value, factors of them, or are compared with them. A
# factor is limited even if the product would be finite: that costs one rounding.
_LIMITED = frozenset(("add", "clamp", "hardtanh", "mul", "pad", "sub", "where",
                      "eq", "lt", "le", "gt", "ge"))
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


def _too_large(program: Program) -> list[Any]:
    """Returns the attributes that have such numbers."""
    return [one for step in program.message.steps if step.operator in _LIMITED
            for one in step.attributes
            if one.WhichOneof("value") == "number" and _MOST < abs(one.number) < math.inf]
