"""Recurrent layers and cells, step by step, by functions with the arguments of ATen's
operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from convgrad.torch.networks.operators.elements import of_each
from convgrad.torch.networks.operators.layers import dropout
from convgrad.torch.networks.operators.tokens import linear
from convgrad.torch.networks.operators.values import Importer, Value, text_of
from convgrad.torch.networks.operators.views import extent_of, joined, select, split, stacked

# Takes what the weights make of the input, the states before, and the weights of the first one.
Step = Callable[..., list[Value]]

# Elements of a sequence, in all layers and directions. Each one becomes up to 18 steps, and a
# program has at most 10,000.
_MOST = 500


def _lstm(to: Importer, ours: Value, before: Sequence[Value], *weights: Any) -> list[Value]:
    total = ours + linear(to, before[0], *weights)
    i, f, g, o = split(to, total, total.shape[-1] // 4, -1)
    kept = of_each(to, "sigmoid", f) * before[1]
    cell = kept + of_each(to, "sigmoid", i) * of_each(to, "tanh", g)
    return [of_each(to, "sigmoid", o) * of_each(to, "tanh", cell), cell]


def _gru(to: Importer, ours: Value, before: Sequence[Value], *weights: Any) -> list[Value]:
    theirs = linear(to, before[0], *weights)
    mine, its = (split(to, one, one.shape[-1] // 3, -1) for one in (ours, theirs))
    reset, update = (of_each(to, "sigmoid", mine[i] + its[i]) for i in range(2))
    new = of_each(to, "tanh", mine[2] + reset * its[2])
    rest = before[0] - new
    return [new + update * rest]


def _rnn(function: str) -> Step:
    def step(to: Importer, ours: Value, before: Sequence[Value], *weights: Any) -> list[Value]:
        return [of_each(to, function, ours + linear(to, before[0], *weights))]

    return step


STEPS: dict[str, Step] = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _rnn("tanh"),
                          "rnn_relu": _rnn("relu")}


def cell(kind: str) -> Callable[..., Any]:
    """Returns the row of one step."""
    def row(to: Importer, x: Value, state: Any, of_input: Value, of_state: Value,
            *biases: Value | None) -> Any:
        states = state if isinstance(state, (list, tuple)) else [state]
        first, second = biases or (None, None)
        found = STEPS[kind](to, linear(to, x, of_input, first), states, of_state, second)
        return found if kind == "lstm" else found[0]

    return row


def layers(kind: str) -> Callable[..., list[Value]]:
    """Returns the row of all layers, each with its steps."""
    def row(to: Importer, x: Value, state: Any, weights: Sequence[Value], has_biases: bool,
            count: int, p: float, training: bool, is_bidirectional: bool,
            batch_first: bool) -> list[Value]:
        axis, directions, each = int(batch_first), 1 + is_bidirectional, 2 + 2 * has_biases
        if len(x.shape) != 3 or len(weights) != count * directions * each:
            raise to.refuse(f"{kind} of {text_of(x.shape)} with {len(weights)} weights",
                            "a batch of sequences, and no proj_size")
        length = extent_of(to, x, axis)
        if length * count * directions > _MOST:
            raise to.refuse(f"{kind} of sequences of {length} elements",
                            f"at most {_MOST // (count * directions)}")
        states = state if kind == "lstm" else [state]
        last: list[list[Value]] = [[] for _ in states]
        for layer in range(count):
            outputs = []
            for direction in range(directions):
                at = layer * directions + direction
                own = weights[at * each:(at + 1) * each]
                before = [select(to, one, 0, at) for one in states]
                y, ends = _sequence(to, kind, x, own, before, axis, bool(direction))
                outputs.append(y)
                for ending, one in zip(last, ends):
                    ending.append(one)
            x = joined(to, outputs, 2)
            if layer < count - 1:
                x = dropout(to, x, p, training)
        return [x, *(stacked(to, one, 0) for one in last)]

    return row


def _sequence(to: Importer, kind: str, x: Value, weights: Sequence[Value],
              state: list[Value], axis: int, is_reversed: bool) -> tuple[Value, list[Value]]:
    of_input, of_state, *biases = weights
    first, second = biases or (None, None)
    ours = linear(to, x, of_input, first)
    found = []
    for i in range(extent_of(to, x, axis))[::-1 if is_reversed else 1]:
        state = STEPS[kind](to, select(to, ours, axis, i), state, of_state, second)
        found.append(state[0])
    return stacked(to, found[::-1] if is_reversed else found, axis), state
