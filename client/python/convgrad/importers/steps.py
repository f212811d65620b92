"""Steps of several axes or operands. `to` is the importer, whose methods add the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

COMPARISONS = frozenset(("eq", "lt", "le", "gt", "ge"))
WITHOUT_GRADIENT = COMPARISONS | {"detach"}
"""Operators whose operands get no gradient."""
WITH_NUMBERS = COMPARISONS | {"add", "sub", "mul", "div"}
"""Operators that take a number in the place of the second operand."""
MAY_BE_INFINITE = COMPARISONS | {"where"}
"""Operators whose numbers may be infinite."""
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def of_number(operator: str, number: float, x: Any) -> Any:
    """Adds steps of a number as the first operand and a tensor as the second one."""
    if operator == "sub":
        return number - x
    return number / x if operator == "div" else x.to.binary(_mirrored(operator), x, number)


def of_two(to: Any, operator: str, x: Any, y: Any, shape: tuple[Any, ...]) -> Any:
    """Adds a step of two operands, which are broadcast to this shape: the first one by a step
    of its own, the second one by the program's operator."""
    if x.shape != shape and y.shape == shape and operator != "div":
        if operator == "sub":
            return of_two(to, "add", -y, x, shape)
        x, y, operator = y, x, _mirrored(operator)
    x = to.expanded(to.value(x, len(shape)), shape)
    return to.add(operator, x, to.value(y, len(shape)), shape=shape)


def _mirrored(operator: str) -> str:
    """Returns what does the same with exchanged operands, of all but "sub" and "div"."""
    return _MIRRORED.get(operator, operator)


def repeated(to: Any, x: Any, counts: Sequence[Any]) -> Any:
    """Repeats whole axes, each one as often as its count says."""
    for axis, count in reversed(list(enumerate(counts))):
        if count == 1:
            continue
        *before, extent = x.shape[:axis + 1]
        after = x.shape[axis + 1:]
        if extent == 1:
            x = to.expanded(x, (*before, count, *after))
            continue
        apart = to.reshaped(x, (*before, 1, extent, *after))
        wide = to.expanded(apart, (*before, count, extent, *after))
        x = to.reshaped(wide, (*before, count * extent, *after))
    return x


def is_product(first: str, second: str, result: str) -> bool:
    """Returns whether an einsum sums only over axes that both operands have."""
    return {*first} ^ {*second} <= {*result} <= {*first, *second}


def einsum(to: Any, x: Any, y: Any, first: str, second: str, result: str) -> Any:
    """Computes an einsum as a matmul: axes of both operands and of the result are its batch,
    and axes of both operands alone are summed over. Requires: is_product(); a letter has equal
    extents, and is once in each term."""
    both = [c for c in first if c in second]
    batch, summed = ([c for c in both if (c in result) == kept] for kept in (True, False))
    rows, columns = ([c for c in term if c not in both] for term in (first, second))
    sizes = dict(zip(first + second, (*x.shape, *y.shape)))

    def arranged(value: Any, term: str, left: list[str], right: list[str]) -> Any:
        moved = to.permuted(value, [term.index(c) for c in (*batch, *left, *right)])
        return to.reshaped(moved, (*(sizes[c] for c in batch), *(
            math.prod(sizes[c] for c in axes) for axes in (left, right))))

    z = to.product(arranged(x, first, rows, summed), arranged(y, second, summed, columns))
    order = [*batch, *rows, *columns]
    apart = to.reshaped(z, [sizes[c] for c in order])
    return to.permuted(apart, [order.index(c) for c in result])
