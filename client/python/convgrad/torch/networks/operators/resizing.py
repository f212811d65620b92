"""Steps that give images another size, by functions with the arguments of ATen's operators."""

from __future__ import annotations

from typing import Any

import torch

from convgrad.torch.networks.operators.layers import ints
from convgrad.torch.networks.operators.tokens import product
from convgrad.torch.networks.operators.values import Importer, Value, text_of
from convgrad.torch.networks.operators.views import as_value, taken, transpose

# Untyped, because types are checked with PyTorch 1.13, which lacks some of its functions.
_TORCH: Any = torch


def upsample(mode: str) -> Any:
    """Returns the row of an interpolation."""
    def row(to: Importer, x: Value, size: Any, *attributes: Any) -> Value:
        *align_corners, scales = attributes  # the former not of "nearest"
        return to.add("upsample", as_value(to, x), size=ints(size), mode=mode,
                      align_corners=any(align_corners),
                      scale_factor=None if scales is None else [float(n) for n in scales])

    return row


def nearest_exact(axes: int) -> Any:
    """Returns the row of an interpolation that takes places along each axis."""
    def row(to: Importer, x: Value, size: Any, scales: Any) -> Value:
        x = as_value(to, x)
        operator = getattr(_TORCH.ops.aten, f"_upsample_nearest_exact{axes}d").vec
        for i, extent in enumerate(x.shape[2:]):
            places = torch.arange(extent, dtype=torch.float64).reshape(
                1, 1, *[1] * i, -1, *[1] * (axes - 1 - i))
            found = _resized(operator, places, [to.shape[2 + i] if j == i else 1
                                                for j in range(axes)], [],
                             scales and [scales[i] if j == i else 1 for j in range(axes)])
            x = taken(to, x, 2 + i, found.reshape(-1).long())
        return x

    return row


def by_matrices(name: str) -> Any:
    """Returns the row of an operator that is linear along each axis of a parameter's result,
    such as embeddings of positions. Products with matrices would spread an image's NaN."""
    def row(to: Importer, x: Value, size: Any, *attributes: Any) -> Value:
        x, shape = as_value(to, x), to.shape
        if not all(isinstance(n, int) for n in x.shape):
            raise to.refuse(f"{name} of {text_of(x.shape)}",
                            "one of parameters; of data, the same without antialias")
        *flags, scales = attributes
        operator = getattr(_TORCH.ops.aten, name).vec
        matrices = _matrices(operator, x.shape, shape, flags, scales)
        if matrices is None:
            raise to.refuse(f"{name} of {text_of(x.shape)} as {text_of(shape)}",
                            "an operator that treats each axis by itself")
        for axis, matrix in enumerate(matrices, 2):
            turned = transpose(to, x, axis, -1)
            x = transpose(to, product(to, turned, to.constant(matrix.float())), axis, -1)
        return x

    return row


def _matrices(operator: Any, old: Any, new: Any, flags: Any,
              scales: Any) -> list[torch.Tensor] | None:
    """Returns for each axis what the operator makes of each place, by row. None if the operator
    makes something else of an image than the products with them."""
    axes = len(new) - 2
    found = []
    for at in range(axes):
        # Images two wide: PyTorch 2.15 is wrong along an axis if the last one's extent is 1.
        places = torch.eye(old[2 + at], dtype=torch.float64).reshape(
            1, old[2 + at], *(old[2 + at] if i == at else 1 for i in range(axes)))
        images = places.repeat(1, 1, *(1 if i == at else 2 for i in range(axes)))
        made = _resized(operator, images, [new[2 + i] if i == at else 2 for i in range(axes)],
                        flags, scales and [scales[i] if i == at else 1 for i in range(axes)])
        found.append(made[(0, slice(None), *(slice(None) if i == at else 0
                                             for i in range(axes)))])
    image = torch.rand(1, 1, *old[2:], dtype=torch.float64,
                       generator=torch.Generator().manual_seed(0))
    product_of_all = image
    for axis, matrix in enumerate(found, 2):
        product_of_all = (product_of_all.movedim(axis, -1) @ matrix).movedim(-1, axis)
    is_same = torch.allclose(_resized(operator, image, list(new[2:]), flags, scales),
                             product_of_all, rtol=1e-5, atol=1e-6)
    return found if is_same else None


def _resized(operator: Any, images: torch.Tensor, size: Any, flags: Any,
             scales: Any) -> torch.Tensor:
    return operator(images, size if scales is None else None, *flags,
                    None if scales is None else [float(one) for one in scales])
