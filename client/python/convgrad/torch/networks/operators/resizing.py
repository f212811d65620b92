"""Steps that give images another size, by functions with the arguments of ATen's operators."""

from __future__ import annotations

from typing import Any

import torch

from convgrad.torch.networks.operators.layers import ints
from convgrad.torch.networks.operators.tokens import product
from convgrad.torch.networks.operators.values import Importer, Value, text_of
from convgrad.torch.networks.operators.views import as_value, permute

# Some of which PyTorch 1.13 lacks, by which types are checked.
_TORCH: Any = torch


def upsample_nearest(to: Importer, x: Value, size: Any, scales: Any) -> Value:
    return _upsample(to, x, "nearest", False, size, scales)


def upsample_bilinear(to: Importer, x: Value, size: Any, align_corners: bool,
                      scales: Any) -> Value:
    return _upsample(to, x, "bilinear", align_corners, size, scales)


def upsample_bicubic(to: Importer, x: Value, size: Any, align_corners: bool,
                     scales: Any) -> Value:
    return _upsample(to, x, "bicubic", align_corners, size, scales)


def _upsample(to: Importer, x: Value, mode: str, align_corners: bool, size: Any,
              scales: Any) -> Value:
    return to.add("upsample", x, size=ints(size), mode=mode, align_corners=align_corners,
                  scale_factor=None if scales is None else [float(one) for one in scales])


def by_matrices(name: str) -> Any:
    """Returns the row of an operator that is linear along each axis of a parameter's result,
    such as embeddings of positions. Products with matrices would spread an image's NaN."""
    def row(to: Importer, x: Value, size: Any, *attributes: Any) -> Value:
        x, shape = as_value(to, x), to.shape
        if not all(isinstance(n, int) for n in x.shape):
            raise to.refuse(f"{name} of {text_of(x.shape)}", "parameters, without the batch")
        *flags, scales = attributes
        operator = getattr(_TORCH.ops.aten, name).vec
        for axis in range(2, len(shape)):
            matrix = _matrix(operator, x.shape[axis], axis - 2, shape, flags, scales)
            order = list(range(len(shape)))
            order[axis], order[-1] = order[-1], order[axis]
            wide = product(to, permute(to, x, order), to.constant(matrix))
            x = permute(to, wide, order)
        return x

    return row


def _matrix(operator: Any, extent: int, at: int, shape: Any, flags: Any,
            scales: Any) -> torch.Tensor:
    """Returns what the operator makes of each place of an axis, by row."""
    axes = len(shape) - 2
    places = torch.eye(extent, dtype=torch.float64)
    images = places.reshape(1, extent, *(extent if i == at else 1 for i in range(axes)))
    size = [shape[2 + i] if i == at else 1 for i in range(axes)]
    factors = None if scales is None else [
        float(scales[i]) if i == at else 1.0 for i in range(axes)]
    made = operator(images, size if scales is None else None, *flags, factors)
    return made.reshape(extent, shape[2 + at]).float()
