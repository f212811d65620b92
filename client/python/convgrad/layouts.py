"""Defines element types and memory layouts of arrays, with the wire's names."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from convgrad.errors import invalid
from convgrad.v1 import tensor_pb2

Array = npt.NDArray[Any]
Dims = tuple[int, ...]

DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
}
# Sessions keep the additional types, and programs take them as inputs: images and class
# indices.
KEPT_DTYPES = DTYPES | {"u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16),
                        "i64": np.dtype(np.int64)}
ACTIVATION_LAYOUTS = ("NCX", "NXC", "NDC1HWC0")
WEIGHT_LAYOUTS = ("OIX", "OXI", "XIO", "FRACTAL_Z_3D")
# Maps names that spell the axes to the general ones, e.g. NHWC to NXC.
_ALIASES = {name.replace("X", axes): name for name in ("NCX", "NXC", "OIX", "OXI", "XIO")
            for axes in ("W", "HW", "DHW")}
_BLOCKED = ("NDC1HWC0", "FRACTAL_Z_3D")
_FRACTAL_BLOCK = 16


def text_of(dims: Sequence[int]) -> str:
    return "[" + ",".join(map(str, dims)) + "]"


def fits(value: int) -> bool:
    """Returns whether `value` fits 64 bits with a sign."""
    return -2**63 <= value < 2**63


def name_of_dtype(dtype: npt.DTypeLike, field: str,
                  known: Mapping[str, np.dtype[Any]] = DTYPES) -> str:
    """Returns the name among `known`, e.g. "f32". Raises InvalidArgument naming `field`."""
    if isinstance(dtype, str) and dtype in known:
        return dtype
    found: object = dtype
    with contextlib.suppress(TypeError):
        # NumPy's "f16" has 16 bytes.
        is_ours = isinstance(dtype, str) and dtype in KEPT_DTYPES
        found = dtype if is_ours else np.dtype(dtype)
        for name, one in known.items():
            # A big-endian dtype isn't equal, because the wire is little-endian.
            if found == one:
                return name
    names = [str(one) for one in known.values()]
    raise invalid("DTYPE_MISMATCH", field, found, f"{', '.join(names[:-1])} or {names[-1]}")


def wire_dtype(name: str) -> Any:
    return tensor_pb2.DataType.Value(f"DATA_TYPE_{name.upper()}")


def layout_named(name: str) -> str:
    """Returns the contract's name of a layout; an unknown name is returned unchanged."""
    return _ALIASES.get(name, name)


def wire_layout(name: str, field: str) -> Any:
    known = ACTIVATION_LAYOUTS + WEIGHT_LAYOUTS
    if name not in known:
        raise invalid("INVALID_ENUM", field, name,
                      ", ".join(known) + ", or with X spelt out, e.g. NHWC")
    return tensor_pb2.Layout.Value(f"LAYOUT_{name}")


def is_blocked(layout: str) -> bool:
    return layout in _BLOCKED


def default_c0(dtype: str) -> int:
    return 8 if dtype == "f32" else 16


@dataclass(frozen=True)
class Descriptor:
    """Describes a tensor. `dims` are logical and don't depend on the layout."""

    dtype: str
    layout: str
    dims: Dims
    c0: int = 0
    groups: int = 1  # of a FRACTAL_Z_3D weight

    def __str__(self) -> str:
        block = f"/{self.c0}" if is_blocked(self.layout) else ""
        return f"{self.dtype}:{self.layout}{block}{text_of(self.dims)}"

    def shape(self) -> Dims:
        """Returns the shape of a packed array with this descriptor."""
        if is_blocked(self.layout):
            return self._blocked_shape()
        return tuple(self.dims[axis] for axis in memory_order(self.layout, len(self.dims)))

    def byte_size(self) -> int:
        """Returns the packed size in bytes; 0 if an extent is 0."""
        is_padded = is_blocked(self.layout) and 0 not in self.dims
        packed = self._blocked_shape() if is_padded else self.dims
        return math.prod(packed) * KEPT_DTYPES[self.dtype].itemsize

    def _blocked_shape(self) -> Dims:
        outer, inner = (*self.dims, 1, 1)[:2]
        depth, height, width = ((1, 1, 1) + self.dims[2:])[-3:]
        if self.layout == "NDC1HWC0":
            return (outer, depth, -(-inner // self.c0), height, width, self.c0)
        icg, ocg = max(inner, 1), max(outer // self.groups, 1)
        period = math.lcm(math.lcm(icg, self.c0) // icg,
                          math.lcm(ocg, _FRACTAL_BLOCK) // ocg)
        fused = min(period, self.groups)
        c1 = -(-fused * icg // self.c0)
        n1 = -(-fused * ocg // _FRACTAL_BLOCK)
        super_groups = -(-self.groups // fused)
        return (super_groups * depth * c1 * height * width, n1, _FRACTAL_BLOCK, self.c0)


def memory_order(layout: str, rank: int) -> Dims:
    """Returns the logical axes of a row-major layout, outermost first."""
    axes = tuple(range(rank))
    if rank < 2:
        return axes
    if layout in ("NXC", "OXI"):
        return (0, *axes[2:], 1)
    if layout == "XIO":
        return (*axes[2:], 1, 0)
    return axes


def logical_dims(shape: Dims, layout: str) -> Dims:
    """Returns the logical dims of an array with a row-major layout."""
    if len(shape) < 2:
        return shape
    dims = [0] * len(shape)
    for extent, axis in zip(shape, memory_order(layout, len(shape))):
        dims[axis] = extent
    return tuple(dims)


def pack(array: Array, layout: str) -> tuple[Array, str]:
    """Returns the array packed as on the wire, and its layout.

    Copies nothing if the memory has the order of another layout of the same role, e.g. an NCX
    array with channels-last strides.
    """
    if array.flags.c_contiguous or is_blocked(layout) or array.ndim < 3:
        return np.ascontiguousarray(array), layout
    own = memory_order(layout, array.ndim)
    for other in ACTIVATION_LAYOUTS if layout in ACTIVATION_LAYOUTS else WEIGHT_LAYOUTS:
        if is_blocked(other) or other == layout:
            continue
        view = array.transpose([own.index(axis) for axis in memory_order(other, array.ndim)])
        if view.flags.c_contiguous:
            return view, other
    return np.ascontiguousarray(array), layout
