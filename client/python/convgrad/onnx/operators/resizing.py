"""Steps of Resize. Each axis of an image becomes a product with a matrix, in ONNX and in
programs: where the matrices are equal, so is the operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from convgrad.layouts import Array
from convgrad.onnx.declared import Declared
from convgrad.onnx.extents import text_of
from convgrad.onnx.operators.moves import constant
from convgrad.onnx.operators.views import MOST_PLACES, axis_in, known_sizes, taken
from convgrad.onnx.values import Node, Operand, Value

# For each mode those of programs, by the number of spatial axes.
_MODES = {"nearest": {n: "nearest" for n in (1, 2, 3)}, "cubic": {2: "bicubic"},
          "linear": {1: "linear", 2: "bilinear", 3: "trilinear"}}
_TOLERANCE = 1e-5
_TILT = -0.75


def resize(to: Declared, node: Node, x: Value, roi: Operand = None, scales: Operand = None,
           sizes: Operand = None) -> Value:
    mode = node.get("mode", "nearest")
    how = node.get("coordinate_transformation_mode", "half_pixel")
    _check(to, node, x, how)
    rank = len(x.shape)
    axes = [axis_in(to, axis, rank) for axis in node.numbers("axes", list(range(rank)))]
    has_scales = scales is not None and scales.shape != (0,)
    numbers = list((constant(to, scales, "scales", "f") if has_scales
                    else constant(to, sizes, "sizes")).reshape(-1))
    given = dict(zip(axes, numbers))
    if not len(numbers) == len(axes) == len(given):
        raise to.refuse(f"Resize by {len(numbers)} numbers along the axes {axes}",
                        "a number for each axis")
    out: list[Any] = [given.get(axis, x.shape[axis]) for axis in range(rank)]
    if has_scales:
        factors = [float(given.get(axis, 1)) for axis in range(rank)]
        out = [x.shape[axis] if factors[axis] == 1 else _scaled(
            to, known_sizes(to, x, [axis])[0], factors[axis]) for axis in range(rank)]
    if out[0] != x.shape[0] or out[1] != x.shape[1]:
        raise to.refuse(f"Resize of {text_of(x.shape)} to {text_of(out)}",
                        "the same batch and channels")
    old = known_sizes(to, x, range(2, rank))
    new = [int(n) for n in out[2:]]
    scale = factors[2:] if has_scales else [n / m for n, m in zip(new, old)]
    if any(n < 1 or n * m > MOST_PLACES for n, m in zip(new, old)):
        raise to.refuse(f"Resize to {new}", "images of usual sizes")
    if any(abs(n * m - k) > _TOLERANCE for n, m, k in zip(scale, old, new)) and how in (
            "align_corners", "pytorch_half_pixel"):  # of which readings differ
        raise to.refuse(f"Resize with {how} and sizes that are no whole numbers", "sizes")
    wanted = [_matrix(mode, _sources(to, how, node, old[i], new[i], scale[i]), old[i])
              for i in range(len(new))]
    step = _step(to, x, mode, old, new, scale if has_scales else None, wanted)
    if step is not None:
        return step
    if mode != "nearest":
        raise to.refuse(f"Resize with mode={mode}, {how}, {old} to {new}",
                        "coordinates as PyTorch has them, of images")
    for i, matrix in enumerate(wanted):
        x = taken(to, x, 2 + i, matrix.argmax(1))
    return x


def _scaled(to: Declared, size: int, factor: float) -> int:
    """Returns the new size of an axis."""
    found = math.floor(size * factor)
    # onnxruntime multiplies in float32, onnx in float64.
    if found != math.floor(np.float32(size) * np.float32(factor)):
        raise to.refuse(f"Resize of {size} by {factor:.9g}, to {found} or {found + 1}, as the "
                        "product is rounded", "sizes")
    if found == size:  # onnxruntime copies such an image
        raise to.refuse(f"Resize of {size} by {factor:.9g} to the same size", "sizes, or 1")
    return found


def _check(to: Declared, node: Node, x: Value, how: str) -> None:
    if not 3 <= len(x.shape) <= 5:
        raise to.refuse(f"Resize of {text_of(x.shape)}", "three to five axes")
    if node.get("mode", "nearest") not in _MODES or how not in (
            "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
            "asymmetric"):
        raise to.refuse(f"Resize with mode={node.get('mode')}, {how}", "another one")
    for name, default in (("antialias", 0), ("exclude_outside", 0),
                          ("keep_aspect_ratio_policy", "stretch")):
        if node.get(name, default) != default:
            raise to.refuse(f"Resize with {name}={node.get(name)}", f"{default}")
    if node.get("mode") == "cubic" and node.get("cubic_coeff_a", _TILT) != _TILT:
        raise to.refuse(f"Resize with cubic_coeff_a={node.get('cubic_coeff_a')}", f"{_TILT}")


def _sources(to: Declared, how: str, node: Node, old: int, new: int, scale: float) -> Array:
    """Returns the places in the old axis that the new one's are computed from."""
    places = _places(how, old, new, scale)
    if node.get("mode", "nearest") != "nearest":
        return places
    # Where an operator rounds depends on how it computed the place, unless that is exact.
    halves = np.round(places * 2) / 2
    near = np.abs(places - halves) < _TOLERANCE
    is_inexact = how == "half_pixel_symmetric" and math.frexp(scale)[0] != 0.5
    if near.any() and is_inexact or any((some != halves)[near].any() for some in (
            places, _places(how, old, new, scale, np.float32))):
        raise to.refuse(f"Resize with mode=nearest, {how}, {old} to {new}",
                        "places that rounding errors don't move")
    rounding = node.get("nearest_mode", "round_prefer_floor")
    return np.clip({"round_prefer_floor": np.ceil(places - 0.5),
                    "round_prefer_ceil": np.floor(places + 0.5),
                    "floor": np.floor(places), "ceil": np.ceil(places)}[rounding], 0, old - 1)


def _places(how: str, old: int, new: int, scale: float, dtype: Any = np.float64) -> Array:
    at, scale = np.arange(new, dtype=dtype), dtype(scale)
    wide = dtype(scale * old)
    if how == "align_corners":
        places = at * (old - 1) / (wide - 1) if wide != 1 else np.zeros(new, dtype)
    elif how == "asymmetric":
        places = at / scale
    elif how == "pytorch_half_pixel" and wide == 1:
        places = np.full(new, -0.5, dtype)
    else:
        places = (at + 0.5) / scale - 0.5
        if how == "half_pixel_symmetric":
            places += old / 2 * (1 - new / wide)
    return places


def _matrix(mode: str, places: Array, old: int) -> Array:
    """Returns the weights of the old axis' elements, by row."""
    low = np.floor(places).astype(np.int64)
    t = places - low
    taps: list[tuple[Array, Array]]
    if mode == "nearest":
        taps = [(low, np.ones(len(low)))]
    elif mode == "linear":
        taps = [(low, 1 - t), (low + 1, t)]
    else:
        taps = [(low - 1, _far(t + 1)), (low, _near(t)), (low + 1, _near(1 - t)),
                (low + 2, _far(2 - t))]
    matrix = np.zeros((len(places), old))
    for place, weight in taps:
        np.add.at(matrix, (np.arange(len(places)), np.clip(place, 0, old - 1)), weight)
    return matrix


def _near(x: Array) -> Array:
    return ((_TILT + 2) * x - (_TILT + 3)) * x * x + 1


def _far(x: Array) -> Array:
    return ((_TILT * x - 5 * _TILT) * x + 8 * _TILT) * x - 4 * _TILT


def _step(to: Declared, x: Value, mode: str, old: Sequence[int], new: Sequence[int],
          scale: Sequence[float] | None, wanted: Sequence[Array]) -> Value | None:
    """Adds the step that has these matrices; returns None if there is none."""
    own_mode = _MODES[mode].get(len(old))
    if own_mode is None:
        return None
    for align in (False, True) if mode != "nearest" else (False,):
        for factors in (None, scale) if scale is not None else (None,):
            found = [_own_matrix(mode, align, old[i], new[i], factors[i] if factors else 0,
                                 len(old)) for i in range(len(old))]
            if all(np.abs(a - b).max() < _TOLERANCE for a, b in zip(found, wanted)):
                return to.add("upsample", x, shape=(*x.shape[:2], *new), mode=own_mode,
                              align_corners=align, size=None if factors else list(new),
                              scale_factor=factors and [float(n) for n in factors])
    return None


def _own_matrix(mode: str, align: bool, old: int, new: int, factor: float,
                axes: int) -> Array:
    """Returns the matrix of a program's upsample, as the server computes it."""
    if factor and math.floor(old * factor) != new:
        return np.full((new, old), np.inf)
    ignores = new == old if mode == "linear" else (
        axes == 2 and mode == "nearest" and new in (old, 2 * old))
    if align:
        step = (old - 1) / (new - 1) if new > 1 else 0.0
    else:
        step = 1 / factor if factor and not ignores else old / new
    at = np.arange(new, dtype=np.float64)
    if mode == "nearest":
        places = np.floor(at.astype(np.float32) * np.float32(step)).astype(np.float64)
        return _matrix(mode, np.minimum(places, old - 1), old)
    places = at * step if align else (at + 0.5) * step - 0.5
    if mode == "linear" and not align:
        places = np.maximum(places, 0)
    return _matrix(mode, places, old)


