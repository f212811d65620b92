"""Compares a server's results with torch's in float64; torch's float32 error is the measure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

# The allowed error: a multiple of torch's float32 error, plus a share of the largest element,
# plus a constant.
_TIMES_TORCHS_ERROR = 30
_OF_SCALE = 3e-5
_ALONE = 1e-6
# Training has diverged beyond this size, so float32 results are meaningless.
_LARGEST = 1e15


@dataclass
class Comparison:
    """Collects differences between results."""

    where: str = ""
    differences: list[str] = field(default_factory=list)
    compared: int = 0

    def fault(self, text: str) -> None:
        self.differences.append(f"{self.where}: {text}")

    def equal(self, name: str, found: object, expected: object) -> None:
        if found != expected:
            self.fault(f"{name}: found {found}, torch has {expected}")

    def tensor(self, name: str, found: torch.Tensor, double: torch.Tensor,
               single: torch.Tensor) -> None:
        self.compared += 1
        if found.shape != double.shape or found.dtype != single.dtype:
            return self.fault(f"{name}: found {tuple(found.shape)} {found.dtype}, torch has "
                              f"{tuple(double.shape)} {single.dtype}")
        found, double, single = (t.detach().double() for t in (found, double, single))
        scale = _largest(double)
        if not math.isfinite(_largest(single)) or not scale < _LARGEST:
            return None
        allowed = _TIMES_TORCHS_ERROR * _largest(single - double) + _OF_SCALE * scale + _ALONE
        error = _largest(found - double)
        if not error <= allowed:
            self.fault(f"{name}: error {error:.3g}, allowed {allowed:.3g}, "
                       f"largest {scale:.3g}")
        return None

    def gradient(self, name: str, found, double, single) -> None:
        self.equal(f"gradient of {name}: None", found is None, double is None)
        if found is not None and double is not None:
            self.tensor(f"gradient of {name}", found, double, single)

    def gradients(self, net, double, single) -> None:
        found = net.gradients()
        singles = dict(single.named_parameters())
        for name, parameter in double.named_parameters():
            self.gradient(name, found.get(name), parameter.grad, singles[name].grad)

    def state(self, found, double, single) -> None:
        self.equal("state_dict", list(found), list(double))
        for name in found.keys() & double.keys():
            self.tensor(name, found[name], double[name], single[name])


def _largest(tensor: torch.Tensor) -> float:
    return tensor.abs().max().item() if tensor.numel() else 0.0
