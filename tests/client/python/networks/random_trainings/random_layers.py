"""Makes layers with random settings, for random_networks.py."""

from __future__ import annotations

import math
import random

from torch import nn

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
AVERAGE_POOLS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
ADAPTIVE_POOLS = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33)


class Layers:
    """Draws layers for values of `axes` spatial axes."""

    def __init__(self, rng: random.Random, axes: int) -> None:
        self._rng = rng
        self._axes = axes

    def chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def channels(self) -> int:
        return self._rng.choice(CHANNELS)

    def ints(self, low: int, high: int):
        """Returns a number, or one for each axis."""
        if self.chance(0.4):
            return self._rng.randint(low, high)
        return tuple(self._rng.randint(low, high) for _ in range(self._axes))

    def each(self, value) -> tuple:
        return value if isinstance(value, tuple) else (value,) * self._axes

    def conv(self, channels: int) -> nn.Module:
        rng = self._rng
        groups, out = self._groups(channels, (1, 1, 2, 3))
        kernel = rng.choice((1, 3)) if self.chance(0.4) else self.ints(
            1, 5 if self._axes < 3 else 3)
        stride = rng.choice((1, 1, 1, self.ints(1, 3)))
        dilation = rng.choice((1, 1, 1, self.ints(1, 3)))
        padding = self.ints(0, 2)
        if self.chance(0.15):
            padding, stride = "same", 1
        elif self.chance(0.05):
            padding = "valid"
        return CONVOLUTIONS[self._axes - 1](channels, out, kernel, stride, padding, dilation,
                                            groups, bias=self.chance(0.6))

    def conv_transpose(self, channels: int) -> nn.Module:
        rng = self._rng
        groups, out = self._groups(channels, (1, 2))
        stride = rng.randint(1, 3)
        return TRANSPOSED[self._axes - 1](
            channels, out, self.ints(1, 4 if self._axes < 3 else 3), stride, rng.randint(0, 1),
            rng.randint(0, stride - 1), groups, self.chance(0.6), rng.choice((1, 1, 2)))

    def same_conv(self, channels: int) -> nn.Module:
        """Returns a convolution whose results have the shape of its inputs."""
        kernel = self._rng.choice((1, 3))
        return CONVOLUTIONS[self._axes - 1](channels, channels, kernel, 1, kernel // 2,
                                            bias=False)

    def pointwise(self, channels: int) -> nn.Module:
        return CONVOLUTIONS[self._axes - 1](channels, channels, 1)

    def norm(self, channels: int) -> nn.Module:
        rng = self._rng
        norm = NORMS[self._axes - 1](
            channels, eps=rng.choice((1e-5, 1e-3, 0.1)),
            momentum=rng.choice((0.1, 0.1, None, 0.0, 1.0, 0.37)), affine=self.chance(0.8),
            track_running_stats=self.chance(0.85))
        if norm.affine:
            nn.init.uniform_(norm.weight, -1, 1.5)
            nn.init.uniform_(norm.bias, -1, 1)
        if norm.track_running_stats:
            nn.init.uniform_(norm.running_mean, -0.5, 0.5)
            nn.init.uniform_(norm.running_var, 0.3, 2)
        return norm

    def plain_norm(self, channels: int) -> nn.Module:
        return NORMS[self._axes - 1](channels)

    def activation(self) -> nn.Module:
        slope = self._rng.choice((0.01, 0.2, 1.5))
        return self._rng.choice((
            nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(), nn.ReLU6(inplace=True),
            nn.LeakyReLU(slope), nn.LeakyReLU(0.1, inplace=True), nn.Sigmoid(), nn.SiLU(),
            nn.SiLU(inplace=True)))

    def max_pool(self) -> nn.Module:
        rng = self._rng
        kernel = self.ints(1, 4)
        return MAX_POOLS[self._axes - 1](
            kernel, rng.choice((None, self.ints(1, 3))), self._half(kernel),
            rng.choice((1, 1, self.ints(1, 2))), ceil_mode=self.chance(0.5))

    def average_pool(self) -> nn.Module:
        rng = self._rng
        kernel = self.ints(1, 4)
        settings = dict(ceil_mode=self.chance(0.5), count_include_pad=self.chance(0.5))
        padding = self._half(kernel)
        if self._axes == 1:
            kernel, padding = self.each(kernel)[0], padding[0]
        elif self.chance(0.2):
            settings["divisor_override"] = rng.randint(1, 7)
        stride = self.ints(1, 3) if self._axes > 1 else rng.randint(1, 3)
        return AVERAGE_POOLS[self._axes - 1](kernel, rng.choice((None, stride)), padding,
                                             **settings)

    def adaptive_pool(self, sizes=None) -> nn.Module:
        return ADAPTIVE_POOLS[self._axes - 1](sizes or self.ints(1, 6))

    def upsample(self) -> nn.Module:
        rng = self._rng
        settings = dict(mode="nearest")
        if self.chance(0.5):
            settings = dict(mode=("linear", "bilinear", "trilinear")[self._axes - 1],
                            align_corners=rng.choice((None, True, False)))
        if self.chance(0.5):
            limit = {1: 30, 2: 18, 3: 8}[self._axes]
            sizes = tuple(rng.randint(2, limit) for _ in range(self._axes))
            settings["size"] = sizes[0] if self.chance(0.3) else sizes
        elif self.chance(0.7):
            settings["scale_factor"] = rng.choice((2, 2, 3, 1.5, 0.5, 0.7, 1.0))
        else:
            settings["scale_factor"] = tuple(
                rng.choice((1.0, 2.0, 0.5, 1.7, 0.6)) for _ in range(self._axes))
        return nn.Upsample(**settings)

    def nothing(self) -> nn.Module:
        """Returns a layer that changes no value."""
        if self.chance(0.5):
            return nn.Identity()
        return nn.Dropout(0.0, inplace=self.chance(0.3))

    def head_activation(self) -> nn.Module:
        return self._rng.choice((nn.ReLU(), nn.ReLU(inplace=True), nn.SiLU(), nn.Sigmoid()))

    def _groups(self, channels: int, multiples: tuple[int, ...]) -> tuple[int, int]:
        """Returns groups and channels of the result."""
        divisors = [d for d in range(2, channels + 1) if channels % d == 0]
        if divisors and self.chance(0.3):
            groups = self._rng.choice(divisors)
            return groups, groups * self._rng.choice(multiples)
        return 1, self.channels()

    def _half(self, kernel) -> tuple[int, ...]:
        """Returns paddings that a pooling accepts."""
        return tuple(self._rng.randint(0, size // 2) for size in self.each(kernel))


def elements(shape) -> int:
    return math.prod(shape)
