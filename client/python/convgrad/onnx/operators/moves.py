"""Steps that arrange elements anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

from convgrad.importers.steps import repeated
from convgrad.layouts import Array
from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import Batch, Extent, text_of
from convgrad.onnx.operators.views import (
    MOST_PLACES,
    axis_in,
    cut,
    cut_into,
    expanded,
    joined,
    known_sizes,
    permuted,
    reshaped,
    taken,
)
from convgrad.onnx.values import Known, Node, Operand, Parts, Value
from convgrad.shapes import padded

_MOST_PARTS = 4096  # of a sequence


def constant(to: Declared, operand: Operand, name: str, kinds: str = "iuO") -> Array:
    """Returns the elements of an operand that must not follow from data, and whose dtype is of
    these kinds: integers, unless said otherwise."""
    if not isinstance(operand, Known):
        raise to.refuse(f"{name} that follow from data", "constants")
    if operand.array.dtype.kind not in kinds:
        raise to.refuse(f"{name} of {operand.array.dtype}", "numbers of another type")
    return operand.array


def numbers(to: Declared, operand: Operand, name: str) -> list[int]:
    """Returns the operand's elements, which mustn't depend on the batch."""
    array = constant(to, operand, name).reshape(-1)
    if array.dtype == object:
        raise to.refuse(f"{name} that depend on the batch", "numbers")
    return [int(one) for one in array]


def reshape(to: Declared, node: Node, x: Any, shape: Operand) -> Any:
    sizes = list(constant(to, shape, "sizes").reshape(-1))
    return reshaped(to, x, target_of(to, x.shape, sizes, bool(node.get("allowzero", 0))))


def target_of(to: Declared, found: Sequence[Extent], sizes: Sequence[Any],
              allows_zero: bool) -> list[Extent]:
    """Returns the extents that Reshape has for these sizes: 0 copies one, -1 follows."""
    target: list[Any] = []
    for i, size in enumerate(sizes):
        is_copy = not isinstance(size, Batch) and size == 0 and not allows_zero
        if is_copy and i >= len(found):
            raise to.refuse(f"Reshape of {text_of(found)} to {text_of(sizes)}",
                            "an axis to copy")
        target.append(found[i] if is_copy else size if isinstance(size, Batch) else int(size))
    opened = [i for i, n in enumerate(target) if n == -1]
    if len(opened) > 1 or any(isinstance(n, int) and n < -1 for n in target):
        raise to.refuse(f"Reshape to {text_of(sizes)}", "sizes, one of them -1 at most")
    if opened:
        rest: Any = math.prod([n for n in target if n != -1])
        whole: Any = math.prod(found)
        try:
            if rest == 0 or isinstance(rest, int) and isinstance(whole, int) and whole % rest:
                raise TypeError("a rest")
            target[opened[0]] = whole // rest
        except TypeError:
            raise to.refuse(f"Reshape of {text_of(found)} to {text_of(sizes)}",
                            "as many elements, for each batch") from None
    return target


def flatten(to: Declared, node: Node, x: Any) -> Any:
    axis, rank = node.get("axis", 1), len(x.shape)
    if not -rank <= axis <= rank:
        raise to.refuse(f"Flatten with axis={axis}", f"at most {rank}")
    axis = axis + rank if axis < 0 else axis
    shape = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    if axis == 1 and rank > 2 and isinstance(x, Value):
        return to.add("flatten", x, shape=shape)
    return reshaped(to, x, shape)


def transpose(to: Declared, node: Node, x: Any) -> Any:
    order = node.numbers("perm", list(range(len(x.shape)))[::-1])
    if sorted(order) != list(range(len(x.shape))):
        raise to.refuse(f"Transpose by {order}", f"each axis of {text_of(x.shape)} once")
    return permuted(to, x, order)


def squeeze(to: Declared, node: Node, x: Any, axes: Operand = None) -> Any:
    given = None if axes is None else numbers(to, axes, "axes")
    if given == []:  # for which readers take all axes, or none
        raise to.refuse("Squeeze along an empty list of axes", "axes, or no operand")
    found = [i for i, n in enumerate(x.shape) if n == 1] if given is None else [
        axis_in(to, axis, len(x.shape)) for axis in given]
    if any(x.shape[axis] != 1 for axis in found):
        raise to.refuse(f"Squeeze of {text_of(x.shape)} along {found}", "axes of extent 1")
    return reshaped(to, x, [n for i, n in enumerate(x.shape) if i not in found])


def unsqueeze(to: Declared, node: Node, x: Any, axes: Operand) -> Any:
    given = numbers(to, axes, "axes")
    rank = len(x.shape) + len(given)
    places = {axis_in(to, axis, rank) for axis in given}
    if len(places) != len(given):
        raise to.refuse(f"Unsqueeze along {given}", "each axis once")
    rest = iter(x.shape)
    return reshaped(to, x, [1 if i in places else next(rest) for i in range(rank)])


def concat(to: Declared, node: Node, *operands: Operand) -> Value:
    values = [to.value(one) for one in operands]
    return joined(to, values, axis_in(to, node.get("axis"), len(values[0].shape)))


def split(to: Declared, node: Node, x: Value, sizes: Operand = None) -> list[Value]:
    axis = axis_in(to, node.get("axis", 0), len(x.shape))
    (extent,), parts = known_sizes(to, x, [axis]), len(node.outputs)
    if sizes is not None:
        if node.get("num_outputs") is not None:
            raise to.refuse("Split with sizes and num_outputs", "one of them")
        found = numbers(to, sizes, "sizes")
    else:
        if node.get("num_outputs", parts) != parts:
            raise to.refuse(f"Split into {node.get('num_outputs')}", f"{parts} outputs")
        most = -(-extent // parts)
        found = [most] * (parts - 1) + [extent - most * (parts - 1)]
    if sum(found) != extent or min(found) < 1 or len(found) != parts:
        raise to.refuse(f"Split of {text_of(x.shape)} into {found}",
                        "sizes from 1 on that are the axis' extent together")
    return cut_into(to, x, axis, found)


def split_to_sequence(to: Declared, node: Node, x: Value, sizes: Operand = None) -> Parts:
    """Imports SplitToSequence, which PyTorch's exporter writes for a split unless it optimizes.
    """
    axis = axis_in(to, node.get("axis", 0), len(x.shape))
    (extent,) = known_sizes(to, x, [axis])
    given = [1] if sizes is None else numbers(to, sizes, "sizes")
    if (sizes is None or not sizes.shape) and 0 < given[0] and extent <= given[0] * _MOST_PARTS:
        size = given[0]
        given = [min(size, extent - first) for first in range(0, extent, size)]
    if sum(given) != extent or min(given) < 1:
        raise to.refuse(f"SplitToSequence of {text_of(x.shape)} into {given[:9]}",
                        "sizes from 1 on that are the axis' extent together")
    parts = cut_into(to, x, axis, given)
    if sizes is None and not node.get("keepdims", 1):
        parts = [reshaped(to, one, (*x.shape[:axis], *x.shape[axis + 1:])) for one in parts]
    return Parts(parts)


def sequence_at(to: Declared, node: Node, parts: Operand, position: Operand) -> Value:
    place = int(constant(to, position, "positions").reshape(()))
    if not isinstance(parts, Parts):
        raise to.refuse(f"SequenceAt of {parts}", "the result of SplitToSequence")
    if not -len(parts.values) <= place < len(parts.values):
        raise to.refuse(f"SequenceAt at {place}", f"a place below {len(parts.values)}")
    return parts.values[place]


def slice_of(to: Declared, node: Node, x: Value, starts: Operand, ends: Operand,
             axes: Operand = None, steps: Operand = None) -> Value:
    firsts, lasts = numbers(to, starts, "starts"), constant(to, ends, "ends").reshape(-1)
    places = list(range(len(firsts))) if axes is None else numbers(to, axes, "axes")
    strides = [1] * len(firsts) if steps is None else numbers(to, steps, "steps")
    if not len(firsts) == len(lasts) == len(places) == len(strides):
        raise to.refuse("Slice with operands of several lengths", "as many of each")
    for first, last, place, step in zip(firsts, lasts, places, strides):
        axis = axis_in(to, place, len(x.shape))
        extent = x.shape[axis]
        if isinstance(extent, Batch):
            if first != 0 or step != 1 or not (last == extent if isinstance(
                    last, Batch) else last >= 2**31 - 1):
                raise to.refuse(f"Slice of {text_of(x.shape)} along axis {axis}",
                                "all of the batch")
            continue
        if isinstance(last, Batch):
            raise to.refuse("Slice to an end that depends on the batch", "a number")
        found = range(extent)[slice(int(first), int(last), step)]
        if not found:
            raise to.refuse(f"Slice of {text_of(x.shape)} without elements", "elements")
        if step < 0 and len(found) > MOST_PLACES:
            raise to.refuse(f"Slice of {text_of(x.shape)} by {step}",
                            f"at most {MOST_PLACES} elements along the axis")
        x = cut(to, x, axis, found[0], found[-1] + 1, step) if step > 0 else taken(
            to, x, axis, found)
    return x


def expand(to: Declared, node: Node, x: Value, shape: Operand) -> Value:
    sizes = [one if isinstance(one, Batch) else int(one)
             for one in constant(to, shape, "sizes").reshape(-1)]
    rank = max(len(x.shape), len(sizes))
    pairs = zip(padded(x.shape, rank), padded(sizes, rank))
    return expanded(to, x, [m if n == 1 else n for m, n in pairs])


def constant_of_shape(to: Declared, node: Node, shape: Operand) -> Value:
    """A shape without the batch makes a constant, which load() computes."""
    tensor = node.get("value")
    number = np.zeros(1, np.float32) if tensor is None else numpy_helper.to_array(tensor)
    return expand(to, node, to.value(Known(number)), shape)


def tile(to: Declared, node: Node, x: Value, repeats: Operand) -> Value:
    counts = constant(to, repeats, "repeats").reshape(-1)
    if len(counts) != len(x.shape):
        raise to.refuse(f"Tile of {text_of(x.shape)} by {text_of(counts)}",
                        "a number for each axis")
    return repeated(to, x, [n if isinstance(n, Batch) else int(n) for n in counts])


def pad(to: Declared, node: Node, x: Value, pads: Operand, value: Operand = None,
        axes: Operand = None) -> Value:
    rank, mode = len(x.shape), node.get("mode", "constant")
    given = numbers(to, pads, "pads")
    places = list(range(rank)) if axes is None else [
        axis_in(to, axis, rank) for axis in numbers(to, axes, "axes")]
    number = 0.0 if value is None else to.number_of(value)
    modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate",
             "wrap": "circular"}
    if len(given) != 2 * len(places) or len(set(places)) != len(places) or mode not in modes:
        raise to.refuse(f"Pad by {given} with mode={mode}", "two numbers for each axis")
    if number is None:
        raise to.refuse("Pad with a value that isn't a finite constant", "a number")
    widths = {axis: (given[i], given[i + len(places)]) for i, axis in enumerate(places)}
    if mode != "constant" and min(given, default=0) < 0:
        raise to.refuse(f"Pad by {given} with mode={mode}", "numbers from 0 on")
    shape, by = list(x.shape), []
    for axis in reversed(range(rank)):
        before, after = widths.get(axis, (0, 0))
        if before or after:
            (extent,) = known_sizes(to, x, [axis])
            most = {"reflect": extent - 1, "wrap": extent}.get(mode, max(before, after))
            if max(before, after) > most or extent + min(before, 0) + min(after, 0) < 1:
                raise to.refuse(f"Pad of {text_of(x.shape)} by {given} with mode={mode}",
                                f"at most {most} along axis {axis}, and elements that stay")
            x = cut(to, x, axis, max(-before, 0), extent - max(-after, 0))
            shape[axis] = extent + before + after
        by += [max(before, 0), max(after, 0)]
    while by and by[-2:] == [0, 0]:
        by = by[:-2]
    if not by:
        return x
    if len(by) // 2 >= max(rank, 2):
        raise to.refuse("Pad of the first axis", "pads of other axes")
    return to.add("pad", x, shape=tuple(shape), pads=by, mode=modes[mode],
                  value=number if mode == "constant" and number else None)


def _blocks(to: Declared, node: Node, x: Value) -> list[Any]:
    """Returns an image's batch, the size of its blocks, its channels, height and width."""
    size = node.get("blocksize")
    divided, by = ([1], size**2) if node.operator == "DepthToSpace" else ([2, 3], size)
    if len(x.shape) != 4 or size < 1 or any(n % by for n in known_sizes(to, x, divided)):
        raise to.refuse(f"{node.operator} of {text_of(x.shape)} with blocksize={size}",
                        "four axes, and whole blocks")
    return [x.shape[0], size, *known_sizes(to, x, [1, 2, 3])]


def depth_to_space(to: Declared, node: Node, x: Value) -> Value:
    n, size, channels, height, width = _blocks(to, node, x)
    depth = channels // size**2
    if node.get("mode", "DCR") == "DCR":
        apart, order = (n, size, size, depth, height, width), [0, 3, 4, 1, 5, 2]
    else:
        apart, order = (n, depth, size, size, height, width), [0, 1, 4, 2, 5, 3]
    y = permuted(to, reshaped(to, x, apart), order)
    return reshaped(to, y, (n, depth, height * size, width * size))


def space_to_depth(to: Declared, node: Node, x: Value) -> Value:
    n, size, channels, height, width = _blocks(to, node, x)
    y = reshaped(to, x, (n, channels, height // size, size, width // size, size))
    order = [0, 3, 5, 1, 2, 4] if node.get("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    return reshaped(to, permuted(to, y, order),
                    (n, channels * size**2, height // size, width // size))


