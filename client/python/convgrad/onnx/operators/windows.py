"""Steps of convolutions and poolings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import Shape, text_of
from convgrad.onnx.operators.views import MOST_PLACES, cut, known_sizes, of_channels
from convgrad.onnx.values import Known, Node, Operand, Value

_DROPS_WINDOWS = 22  # the opset that says that windows that begin in the right pad are ignored


class Window(NamedTuple):
    """A window along one axis."""

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def span(self) -> int:
        return (self.kernel - 1) * self.dilation + 1

    def places(self, ceil_mode: bool = False) -> int:
        rest = self.size + self.before + self.after - self.span
        return (-(-rest // self.stride) if ceil_mode else rest // self.stride) + 1


def spatial(to: Declared, x: Value) -> list[int]:
    """Returns the sizes of the axes behind the channels."""
    if not 3 <= len(x.shape) <= 5:
        raise to.refuse(text_of(x.shape), "three to 5 axes")
    return known_sizes(to, x, range(2, len(x.shape)))


def windows(to: Declared, node: Node, sizes: Sequence[int],
            kernel: Sequence[int]) -> list[Window]:
    """Returns the windows with their pads, those of auto_pad as well."""
    axes = len(sizes)
    strides = node.numbers("strides", [1] * axes)
    dilations = node.numbers("dilations", [1] * axes)
    pads = node.numbers("pads", [0] * 2 * axes)
    auto_pad = node.get("auto_pad", "NOTSET")
    if not len(kernel) == len(strides) == len(dilations) == axes or len(pads) != 2 * axes or (
            min(*kernel, *strides, *dilations) < 1):
        raise to.refuse(f"{node.operator} with kernel {list(kernel)}, strides {strides}, "
                        f"dilations {dilations}, pads {pads}", f"numbers for {axes} axes")
    result = []
    for i in range(axes):
        one = Window(sizes[i], kernel[i], strides[i], dilations[i], pads[i], pads[i + axes])
        if auto_pad == "VALID":
            one = one._replace(before=0, after=0)
        elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            total = (-(-one.size // one.stride) - 1) * one.stride + one.span - one.size
            if total < 0 and node.operator != "Conv":  # of which readings differ
                raise to.refuse(f"{node.operator} with auto_pad={auto_pad} and a stride of "
                                f"{one.stride}, more than the window", "pads")
            if one.dilation > 1 and node.operator == "MaxPool":  # likewise
                raise to.refuse(f"MaxPool with auto_pad={auto_pad} and dilations", "pads")
            total = max(total, 0)
            less, more = total // 2, total - total // 2
            upper = auto_pad == "SAME_UPPER"
            one = one._replace(before=less if upper else more, after=more if upper else less)
        elif auto_pad != "NOTSET":
            raise to.refuse(f"{node.operator} with auto_pad={auto_pad}", "NOTSET, SAME, VALID")
        if min(one.before, one.after) < 0 or one.places() < 1:
            raise to.refuse(f"{node.operator} of {text_of(sizes)} by {one}",
                            "pads from 0 on, and one window at least")
        result.append(one)
    return result


def padded_by(to: Declared, x: Value, axes: Sequence[Window],
              **attributes: Any) -> tuple[Value, list[Window]]:
    """Returns the value with the windows' pads, and windows of it, which have no pads."""
    inside = [one._replace(before=0, after=0, size=one.size + one.before + one.after)
              for one in axes]
    if inside == axes:
        return x, inside
    # From the last axis on.
    pads = [n for one in reversed(axes) for n in (one.before, one.after)]
    shape = (*x.shape[:2], *(one.size for one in inside))
    return to.add("pad", x, shape=shape, pads=pads, **attributes), inside


def conv(to: Declared, node: Node, x: Value, weight: Operand, bias: Operand = None) -> Value:
    sizes = spatial(to, x)
    if len(weight.shape) != len(x.shape):
        raise to.refuse(f"Conv of {text_of(x.shape)} by {text_of(weight.shape)}",
                        "as many axes")
    kernel = [int(n) for n in weight.shape[2:]]
    axes = windows(to, node, sizes, _kernel_of(to, node, kernel))
    groups = node.get("group", 1)
    if x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise to.refuse(f"Conv of {text_of(x.shape)} by {text_of(weight.shape)} in {groups} "
                        "groups", "channels that fit")
    if any(one.before != one.after for one in axes):
        x, axes = padded_by(to, x, axes)
    attributes = dict(
        stride=[one.stride for one in axes], padding=[one.before for one in axes],
        dilation=[one.dilation for one in axes], groups=groups)
    shape = (x.shape[0], weight.shape[0], *(one.places() for one in axes))
    return _product(to, "conv", x, weight, bias, shape, attributes)


def _kernel_of(to: Declared, node: Node, kernel: list[int]) -> list[int]:
    if node.numbers("kernel_shape", kernel) != kernel:
        raise to.refuse(f"{node.operator} with kernel_shape {node.get('kernel_shape')}",
                        f"the weight's, {kernel}")
    return kernel


def _product(to: Declared, operator: str, x: Value, weight: Operand, bias: Operand,
             shape: Shape, attributes: Any) -> Value:
    if isinstance(bias, Known) and not bias.is_trainable and not bias.array.any():
        bias = None  # PyTorch's exporter makes such zeros, of another shape, for a Conv3d
    if isinstance(bias, Known) and bias.shape != (shape[1],):
        raise to.refuse(f"a bias of {text_of(bias.shape)}", f"({shape[1]})")
    own = [weight] if bias is None else [weight, bias]
    if all(isinstance(one, Known) for one in own):
        return to.add(operator, x, parameters=own, shape=shape, **attributes)
    y = to.add(operator, x, to.value(weight), shape=shape, **attributes)
    if bias is None:
        return y
    return y + of_channels(to, bias, len(shape))


def conv_transpose(to: Declared, node: Node, x: Value, weight: Operand,
                   bias: Operand = None) -> Value:
    sizes, groups = spatial(to, x), node.get("group", 1)
    n = len(sizes)
    if len(weight.shape) != n + 2 or weight.shape[0] != x.shape[1]:
        raise to.refuse(f"ConvTranspose of {text_of(x.shape)} by {text_of(weight.shape)}",
                        "as many axes and channels")
    kernel = _kernel_of(to, node, [int(one) for one in weight.shape[2:]])
    strides, dilations = node.numbers("strides", [1] * n), node.numbers("dilations", [1] * n)
    output_padding = node.numbers("output_padding", [0] * n)
    if not len(strides) == len(dilations) == len(output_padding) == n:
        raise to.refuse(f"{node.operator} with other numbers of axes", f"{n} axes")
    whole = [strides[i] * (sizes[i] - 1) + (kernel[i] - 1) * dilations[i] + 1
             for i in range(n)]
    pads = _pads_of_transpose(to, node, sizes, strides, [
        whole[i] + output_padding[i] for i in range(n)])
    is_plain = pads[:n] == pads[n:] and all(
        output_padding[i] < max(strides[i], dilations[i]) for i in range(n))
    attributes: dict[str, Any] = dict(stride=strides, dilation=dilations, groups=groups)
    shape = (x.shape[0], weight.shape[1] * groups)
    if is_plain:
        out = [whole[i] + output_padding[i] - 2 * pads[i] for i in range(n)]
        return _product(to, "conv_transpose", x, weight, bias, (*shape, *out), {
            **attributes, "padding": pads[:n], "output_padding": output_padding})
    if any(output_padding[i] > pads[n + i] for i in range(n)):
        raise to.refuse(f"ConvTranspose with output_padding {output_padding}, pads {pads}",
                        "pads that are equal, or larger behind than output_padding")
    y = _product(to, "conv_transpose", x, weight, bias, (*shape, *whole), attributes)
    for i in range(n):
        y = cut(to, y, 2 + i, pads[i], whole[i] + output_padding[i] - pads[n + i])
    return y


def _pads_of_transpose(to: Declared, node: Node, sizes: Sequence[int], strides: Sequence[int],
                       whole: Sequence[int]) -> list[int]:
    """Returns the pads, which output_shape or auto_pad may say."""
    n, auto_pad = len(sizes), node.get("auto_pad", "NOTSET")
    pads = node.numbers("pads", [0] * 2 * n)
    out = node.numbers("output_shape", [])[-n:]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER") or out:
        out = out or [sizes[i] * strides[i] for i in range(n)]
        totals = [whole[i] - out[i] for i in range(n)]
        less, more = [one // 2 for one in totals], [one - one // 2 for one in totals]
        pads = less + more if auto_pad == "SAME_UPPER" else more + less
    elif auto_pad == "VALID":
        pads = [0] * 2 * n
    if len(pads) != 2 * n or min(pads) < 0 or any(
            whole[i] - pads[i] - pads[n + i] < 1 for i in range(n)):
        raise to.refuse(f"ConvTranspose with pads {pads}", "pads from 0 on, within the result")
    return pads


def max_pool(to: Declared, node: Node, x: Value) -> list[Value]:
    axes, places = _pool(to, node, x)
    ceil_mode = bool(node.get("ceil_mode", 0))
    shape = (*x.shape[:2], *places)
    if any(one.before != one.after or one.before > one.span // 2 for one in axes):
        if any(one.dilation > 1 or max(one.before, one.after) >= one.kernel for one in axes):
            raise to.refuse("MaxPool with dilations and pads that differ, or wide pads",
                            "equal pads of at most half of the window")
        # A window that reaches into the pad contains the element at the edge, too.
        x, axes = padded_by(to, x, axes, mode="replicate")
        if ceil_mode and [one.places(True) for one in axes] != places:
            raise to.refuse("MaxPool with ceil_mode and pads that differ",
                            "equal pads of at most half of the window")
    return [to.add("max_pool", x, shape=shape, kernel_size=[one.kernel for one in axes],
                   stride=[one.stride for one in axes], padding=[one.before for one in axes],
                   dilation=[one.dilation for one in axes], ceil_mode=ceil_mode)]


def _pool(to: Declared, node: Node, x: Value) -> tuple[list[Window], list[int]]:
    """Returns the windows and how many there are along each axis."""
    axes = windows(to, node, spatial(to, x), node.numbers("kernel_shape", []))
    ceil_mode = bool(node.get("ceil_mode", 0))
    places = []
    for one in axes:
        count = one.places(ceil_mode)
        if ceil_mode and (count - 1) * one.stride >= one.size + one.before:
            if node.opset < _DROPS_WINDOWS:
                raise to.refuse(f"{node.operator} with ceil_mode, whose last window begins in "
                                "the pad", f"opset {_DROPS_WINDOWS} or newer, or other pads")
            count -= 1
        places.append(count)
    return axes, places


def average_pool(to: Declared, node: Node, x: Value) -> Value:
    """A mean over the whole window, with zeros in the pads, and by a factor where the count of
    elements is another one."""
    axes, places = _pool(to, node, x)
    if any(one.dilation > 1 for one in axes):
        raise to.refuse("AveragePool with dilations", "1")
    counts_pads = bool(node.get("count_include_pad", 0))
    shape = (*x.shape[:2], *places)
    kernel, stride = [one.kernel for one in axes], [one.stride for one in axes]
    is_exact = all(one.places() == n for one, n in zip(axes, places))
    if is_exact and all(one.before == one.after <= one.kernel // 2 for one in axes):
        return to.add("avg_pool", x, shape=shape, kernel_size=kernel, stride=stride,
                      padding=[one.before for one in axes], count_include_pad=counts_pads)
    if math.prod(places) > MOST_PLACES:
        raise to.refuse(f"AveragePool to {text_of(shape)}", "images of usual sizes")
    counts = [_counts(one, n, counts_pads) for one, n in zip(axes, places)]
    if any(count.min() < 1 for count in counts):
        raise to.refuse("AveragePool with windows in the pad alone", "elements in each")
    wide = [one._replace(after=max(
        (n - 1) * one.stride + one.kernel - one.size - one.before, 0))
        for one, n in zip(axes, places)]
    x, _ = padded_by(to, x, wide)
    y = to.add("avg_pool", x, shape=shape, kernel_size=kernel, stride=stride)
    grid = np.ones([1, 1, *places])
    for i, count in enumerate(counts):
        sizes = [1] * grid.ndim
        sizes[2 + i] = len(count)
        grid = grid * (kernel[i] / count).reshape(sizes)
    if (grid == 1).all():
        return y
    return y * Known(grid.astype(np.float32))


def _counts(one: Window, places: int, counts_pads: bool) -> Any:
    """Returns the number of elements that each window averages."""
    first, last = (-one.before, one.size + one.after) if counts_pads else (0, one.size)
    starts = np.arange(places) * one.stride - one.before
    return np.minimum(starts + one.kernel, last) - np.maximum(starts, first)


def global_pool(operator: str) -> Callable[..., Value]:
    """Returns the row of a pooling over all of an image."""
    def row(to: Declared, node: Node, x: Value) -> Value:
        sizes = spatial(to, x)
        return to.add(operator, x, shape=(*x.shape[:2], *[1] * len(sizes)),
                      output_size=[1] * len(sizes))

    return row


