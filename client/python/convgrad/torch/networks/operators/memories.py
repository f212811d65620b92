"""Tracks which tensors of a forward share memory, and their values after a change in place.

A tensor that torch always keeps in another one's memory is a chain of views of it. A change of
a view changes the whole tensor, and the other views follow from that. In reshape() and others
the layout at run time decides whether torch makes a view or a copy. Their results are branches:
a change of one branch leaves the others without a value.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from convgrad.torch.networks.operators.elements import detach
from convgrad.torch.networks.operators.values import INDICES, Importer, Value, Wide


@dataclass(frozen=True)
class _Change:
    """The last change in place of a memory."""

    time: int
    branch: int
    whole: Value
    """The tensor in the memory since then."""


def results_of_region(to: Importer, results: Sequence[Any], start: int) -> list[Any]:
    """Returns what a region without gradients has returned. The memories that it made have
    numbers from `start` on."""
    holders = Counter(one.memory for one in results if isinstance(one, Value))
    found = []
    for one in results:
        y = detach(to, one) if isinstance(one, Value) else one
        is_alone = y is not one and one.memory >= start and holders[one.memory] == 1
        found.append(to.apart(y) if is_alone else y)
    return found


class Memories:
    """Numbers memories, and knows what they hold. Owned by one thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._branches = itertools.count(1)
        self._changes: dict[int, _Change] = {}
        self._shared: set[int] = set()  # memories that several tensors may have
        self.time = 0
        """How often tensors have been changed in place."""

    def new(self) -> int:
        return next(self._numbers)

    def apart(self, to: Importer, value: Value) -> Value:
        """Returns the same value in memory of its own."""
        if isinstance(value, Wide):
            found = value.views[-1].again(to, self.apart(to, value.views[-1].base))
            return replace(found, dtype=value.dtype)
        views = value.views if value.is_places else ()
        return replace(value, memory=self.new(), branch=0, views=views, time=self.time)

    def perhaps_apart(self, to: Importer, value: Value, of: Value) -> Value:
        """Returns the value, in the memory of `of` or in a copy."""
        if isinstance(value, Wide):
            return value.views[-1].again(to, self.perhaps_apart(to, value.views[-1].base, of))
        # Indices keep their views, because index_select() looks at them.
        views = value.views if value.whole.dtype in INDICES else ()
        return replace(value, memory=of.memory, branch=next(self._branches), views=views,
                       time=self.time)

    def now(self, to: Importer, value: Value) -> Value:
        """Returns what a tensor that held `value` holds now.

        Errors: Unimplemented where torch's layouts decide.
        """
        change = self._changes.get(value.memory)
        if change is None or value.time >= change.time:
            return value
        if value.branch != change.branch:
            raise to.refuse(f"a view of a tensor changed in place since, {value.name}",
                            "no use of it after that")
        found = change.whole
        for view in value.views:
            found = view.again(to, found)
        return found

    def share(self, value: Value) -> None:
        """Notes that another tensor may have the value's elements."""
        self._shared.add(value.memory)

    def check_alone(self, to: Importer, value: Value) -> None:
        """Refuses a change of the value's shape in place if others share its elements, because
        their shapes don't change."""
        if value.memory in self._shared:
            raise to.refuse("a change of shape in place of elements that another tensor shares",
                            "transpose, unsqueeze and others without the underscore")

    def change(self, to: Importer, old: Value, new: Value) -> Value:
        """Puts a value in the place of another one, which may be a view. Returns it there.

        Requires: `old` is what now() has returned.
        """
        if old.is_places and (old.views or new.views):
            raise to.refuse("a change in place of a view of indices", "indices of a buffer")
        if new.name == old.name:
            return old
        parts = [new]
        for view in reversed(old.views):
            if view.put is None:
                raise to.refuse("a change in place of elements that share memory",
                                "a copy of them")
            parts.append(view.put(to, view.base, parts[-1]))
        self.time += 1
        whole = self._place(old.whole, parts.pop(), ())
        self._changes[old.memory] = _Change(self.time, old.branch, whole)
        found = whole
        for view in old.views:
            part, views = parts.pop(), (*found.views, replace(view, base=found))
            found = view.again(to, found) if isinstance(part, Wide) else (
                self._place(old, part, views))
        return found

    def _place(self, old: Value, new: Value, views: tuple) -> Value:  # type: ignore[type-arg]
        return replace(new, memory=old.memory, branch=old.branch, views=views, time=self.time)
