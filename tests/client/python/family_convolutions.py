"""Makes layers of images: blocks of convolutions as in timm and the papers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from family_attention import Residual
from torch import nn


class GlobalResponseNorm(nn.Module):
    """ConvNeXt v2's norm, as in timm."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        norm = x.norm(p=2, dim=(1, 2), keepdim=True)
        scale = norm / (norm.mean(dim=-1, keepdim=True) + 1e-6)
        return x + torch.addcmul(self.bias.view(1, 1, 1, -1), self.weight.view(1, 1, 1, -1),
                                 x * scale)


class Pooling(nn.Module):
    """PoolFormer's token mixer."""

    def forward(self, x):
        return F.avg_pool2d(x, 3, 1, 1, count_include_pad=False) - x


class Ghost(nn.Module):
    """GhostNet's module: half of the features are cheap convolutions of the others."""

    def __init__(self, channels, out):
        super().__init__()
        self.primary = nn.Sequential(nn.Conv2d(channels, out // 2, 1, bias=False),
                                     nn.BatchNorm2d(out // 2), nn.ReLU(inplace=True))
        self.cheap = nn.Sequential(
            nn.Conv2d(out // 2, out // 2, 3, 1, 1, groups=out // 2, bias=False),
            nn.BatchNorm2d(out // 2), nn.ReLU(inplace=True))

    def forward(self, x):
        first = self.primary(x)
        return torch.cat([first, self.cheap(first)], dim=1)[:, :first.shape[1] * 2]


class Branches(nn.Module):
    """RepVGG's block."""

    def __init__(self, channels):
        super().__init__()
        self.dense = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                                   nn.BatchNorm2d(channels))
        self.point = nn.Sequential(nn.Conv2d(channels, channels, 1, bias=False),
                                   nn.BatchNorm2d(channels))
        self.identity = nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(self.dense(x) + self.point(x) + self.identity(x))


class SelectiveKernel(nn.Module):
    """SKNet's unit: a softmax weighs branches by channel."""

    def __init__(self, channels):
        super().__init__()
        self.paths = nn.ModuleList(nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=d, dilation=d), nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True)) for d in (1, 2))
        self.reduce, self.select = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, 2 * channels, 1)

    def forward(self, x):
        paths = torch.stack([path(x) for path in self.paths], dim=1)
        scores = paths.sum(1).mean((2, 3), keepdim=True)
        scores = self.select(F.relu(self.reduce(scores)))
        batch, channels = scores.shape[:2]
        weights = torch.softmax(scores.view(batch, 2, channels // 2, 1, 1), dim=1)
        return (paths * weights).sum(dim=1)


class CrossStage(nn.Module):
    """CSPNet's stage: half of the channels bypass the blocks."""

    def __init__(self, channels):
        super().__init__()
        self.block = Residual(nn.Conv2d(channels // 2, channels // 2, 3, padding=1),
                              nn.BatchNorm2d(channels // 2), nn.LeakyReLU(0.1))
        self.fuse = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        passed, worked = x.chunk(2, dim=1)
        return self.fuse(torch.cat([passed, self.block(worked)], dim=1))


class HighResolution(nn.Module):
    """HRNet's exchange between two resolutions."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(8, 16, 3, 2, 1)
        self.up = nn.Sequential(nn.Conv2d(16, 8, 1), nn.BatchNorm2d(8),
                                nn.Upsample(scale_factor=2, mode="nearest"))
        self.out = nn.Conv2d(24, 4, 1)

    def forward(self, x):
        low = F.relu(self.down(x))
        high = F.relu(x + self.up(low))
        wide = F.interpolate(low, size=high.shape[-2:], mode="bilinear", align_corners=False)
        return self.out(torch.cat([high, wide], 1))


class StandardizedConv(nn.Conv2d):
    """NFNet's convolution; BiT's has no gain."""

    def __init__(self, *args):
        super().__init__(*args, padding="same")
        self.gain = nn.Parameter(torch.ones(self.out_channels, 1, 1, 1))

    def forward(self, x):
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True)
        weight = (self.weight - mean) * torch.rsqrt(variance + 1e-6) * self.gain
        return F.conv2d(F.pad(x, (1, 1, 1, 1)), weight, self.bias)


def conv_norm(channels, out, kernel=3, stride=1, groups=1, act=nn.ReLU):
    """Returns a convolution without bias, a batch_norm and an activation."""
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out), act())


class SplitAttention(nn.Module):
    """ResNeSt's convolution."""

    def __init__(self, channels, radix=2):
        super().__init__()
        self.radix = radix
        self.conv = conv_norm(channels, channels * radix, groups=radix)
        self.fc1 = conv_norm(channels, 8, 1)
        self.fc2 = nn.Conv2d(8, channels * radix, 1)

    def forward(self, x):
        x = self.conv(x)
        batch, channels = x.shape[0], x.shape[1] // self.radix
        x = x.reshape(batch, self.radix, channels, *x.shape[2:])
        scores = self.fc2(self.fc1(x.sum(dim=1).mean((2, 3), keepdim=True)))
        weights = F.softmax(scores.view(batch, 1, self.radix, -1).transpose(1, 2), dim=1)
        return (x * weights.reshape(batch, self.radix, channels, 1, 1)).sum(dim=1)


class Aggregation(nn.Module):
    """DLA's tree of two levels: a node takes the outputs of both of its blocks, the root takes
    the nodes and the first one's input."""

    def __init__(self, channels, out):
        super().__init__()
        self.project = nn.Sequential(nn.Conv2d(channels, out, 1, bias=False),
                                     nn.BatchNorm2d(out))
        self.blocks = nn.ModuleList(nn.Sequential(
            conv_norm(out if i else channels, out, stride=1 if i else 2),
            nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out))
            for i in range(4))
        self.node, self.root = conv_norm(2 * out, out, 1), conv_norm(4 * out, out, 1)

    def forward(self, x):
        bottom = F.max_pool2d(x, 2, 2)
        one = F.relu(self.blocks[0](x) + self.project(bottom))
        two = F.relu(self.blocks[1](one) + one)
        node = self.node(torch.cat([two, one], 1))
        three = F.relu(self.blocks[2](node) + node)
        four = F.relu(self.blocks[3](three) + three)
        return self.root(torch.cat([four, three, self.project(bottom), node], 1))


class SqueezeExcite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x):
        scale = self.expand(F.silu(self.reduce(x.mean((2, 3), keepdim=True))))
        return x * scale.sigmoid()


class Shrinking(nn.Module):
    """CoAtNet's convolutional block: half the size, with a pooled shortcut."""

    def __init__(self, channels, out):
        super().__init__()
        self.shortcut = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(channels, out, 1))
        self.block = nn.Sequential(
            nn.BatchNorm2d(channels), conv_norm(channels, 16, 1, act=nn.GELU),
            conv_norm(16, 16, 3, 2, groups=16, act=nn.GELU), SqueezeExcite(16),
            nn.Conv2d(16, out, 1))

    def forward(self, x):
        return self.shortcut(x) + self.block(x)


class Scaled(nn.Module):
    """A residual with a factor for each channel, as in EfficientFormer and MobileNetV4."""

    def __init__(self, channels, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.gamma = nn.Parameter(0.1 * torch.ones(channels))

    def forward(self, x):
        return x + self.layers(x) * self.gamma.view(1, -1, 1, 1)


class DecodedUNet(nn.Module):
    """A U-Net as in segmentation_models_pytorch: an encoder's features, nearest upsampling,
    and attention of channels and places."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.ModuleList((conv_norm(3, 8, 3, 2), conv_norm(8, 12, 3, 2),
                                      conv_norm(12, 16, 3, 2)))
        self.decoder = nn.ModuleList(
            nn.Sequential(conv_norm(channels, out), conv_norm(out, out))
            for channels, out in ((28, 12), (20, 8), (8, 8)))
        self.channels = SqueezeExcite(12)
        self.places = nn.Sequential(nn.Conv2d(12, 1, 1), nn.Sigmoid())
        self.head = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x):
        features = []
        for layer in self.encoder:
            x = layer(x)
            features.append(x)
        for i, layer in enumerate(self.decoder):
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            if i < 2:
                x = torch.cat([x, features[1 - i]], dim=1)
            x = layer(x)
            if i == 0:
                x = self.channels(x) + x * self.places(x)
        return self.head(x)
