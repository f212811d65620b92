"""Makes small networks of widely used families: torchvision's classes, and blocks as in timm,
segmentation_models_pytorch and the papers."""

from __future__ import annotations

import functools
import importlib.util

import torch
import torch.nn.functional as F
from small_networks import UNet
from torch import nn

IMAGES = (3, 3, 32, 32)


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class ChannelsLast(nn.Module):
    """Applies a layer for features to images."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Tokens(nn.Module):
    """A sequence of patches, with positions and layers, averaged or by a class token."""

    def __init__(self, layers, features=16, patch=8, has_class=False):
        super().__init__()
        self.patches = nn.Conv2d(3, features, patch, patch)
        self.position = nn.Parameter(0.02 * torch.randn(1, 16, features))
        self.cls = nn.Parameter(torch.zeros(1, 1, features)) if has_class else None
        self.layers, self.norm = layers, nn.LayerNorm(features)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        if self.cls is not None:
            x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), dim=1)
        x = self.norm(self.layers(x))
        return x.mean(1) if self.cls is None else x[:, 0]


class Attention(nn.Module):
    """timm's attention; `reduction` as in PVT, `is_cosine` as in Swin v2."""

    def __init__(self, features=16, heads=2, reduction=1, is_cosine=False):
        super().__init__()
        self.heads, self.is_cosine = heads, is_cosine
        self.q, self.kv = nn.Linear(features, features), nn.Linear(features, 2 * features)
        self.proj = nn.Linear(features, features)
        self.reduce = nn.Conv2d(features, features, reduction, reduction) if (
            reduction > 1) else None
        self.logit_scale = nn.Parameter(torch.ones(heads, 1, 1))

    def forward(self, x):
        batch, length, features = x.shape
        kept = x
        if self.reduce is not None:
            kept = self.reduce(x.transpose(1, 2).reshape(batch, features, 4, 4))
            kept = kept.reshape(batch, features, -1).transpose(1, 2)
        q = self.q(x).reshape(batch, length, self.heads, -1).transpose(1, 2)
        k, v = self.kv(kept).reshape(batch, kept.shape[1], 2, self.heads, -1).permute(
            2, 0, 3, 1, 4).unbind(0)
        if self.is_cosine:
            scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
            scores = scores * self.logit_scale.clamp(max=4.6).exp()
            y = scores.softmax(dim=-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(batch, length, features))


def mlp(features, hidden, act=nn.GELU):
    return nn.Sequential(nn.Linear(features, hidden), act(), nn.Linear(hidden, features))


class LayerScale(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gamma = nn.Parameter(0.1 * torch.ones(features))

    def forward(self, x):
        return x.mul_(self.gamma)


def transformer(**attention):
    return nn.Sequential(*(layer for _ in range(2) for layer in (
        Residual(nn.LayerNorm(16), Attention(**attention), LayerScale(16)),
        Residual(nn.LayerNorm(16), mlp(16, 32)))))


class CrossCovariance(nn.Module):
    """XCiT's attention between channels."""

    def __init__(self, features=16, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))

    def forward(self, x):
        batch, length, features = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 4, 1)
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        y = (scores * self.temperature).softmax(-1) @ v
        return self.proj(y.permute(0, 3, 1, 2).reshape(batch, length, features))


class Mixing(nn.Module):
    """MLP-Mixer's layer."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.tokens, self.channels = mlp(16, 24), mlp(16, 32)

    def forward(self, x):
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


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


def stem(channels=8):
    return nn.Conv2d(3, channels, 4, 4)


def generator():
    return nn.Sequential(
        nn.ConvTranspose2d(3, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
        nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator():
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(8, 16, 4, 2, 1),
        nn.InstanceNorm2d(16, affine=True), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 1, 8), nn.Flatten())


def _head(*layers, channels=8):
    return lambda: nn.Sequential(*(layer() for layer in layers), nn.AdaptiveAvgPool2d(1),
                                 nn.Flatten(), nn.Linear(channels, 5))


# For each family, a function that makes a network.
BLOCKS = {
    "ViT": lambda: Tokens(transformer(), has_class=True),
    "DeiT": lambda: Tokens(transformer(heads=4), has_class=True),
    "PVT": lambda: Tokens(transformer(reduction=2)),
    "Swin v2's attention": lambda: Tokens(transformer(is_cosine=True)),
    "XCiT": lambda: Tokens(nn.Sequential(Residual(nn.LayerNorm(16), CrossCovariance()))),
    "MLP-Mixer": lambda: Tokens(nn.Sequential(Mixing(), Mixing())),
    "ConvNeXt v2": _head(stem, lambda: Residual(
        nn.Conv2d(8, 8, 7, padding=3, groups=8), ChannelsLast(nn.Sequential(
            nn.LayerNorm(8), nn.Linear(8, 32), nn.GELU(), GlobalResponseNorm(32),
            nn.Linear(32, 8))))),
    "ConvMixer": _head(stem, nn.GELU, lambda: nn.BatchNorm2d(8), lambda: Residual(
        nn.Conv2d(8, 8, 5, groups=8, padding="same"), nn.GELU(), nn.BatchNorm2d(8))),
    "PoolFormer": _head(stem, lambda: Residual(nn.GroupNorm(1, 8), Pooling()), lambda: Residual(
        ChannelsLast(nn.LayerNorm(8)), nn.Conv2d(8, 16, 1), nn.GELU(), nn.Conv2d(16, 8, 1))),
    "GhostNet": _head(stem, lambda: Ghost(8, 8), lambda: nn.Conv2d(8, 8, 1), nn.Hardswish),
    "RepVGG": _head(stem, lambda: Branches(8), lambda: Branches(8)),
    "SKNet": _head(stem, lambda: SelectiveKernel(8)),
    "CSPNet": _head(stem, lambda: CrossStage(8), nn.Mish),
    "HRNet": lambda: nn.Sequential(stem(), nn.ReLU(), HighResolution()),
    "GroupNorm ResNet": _head(stem, lambda: Residual(
        nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ELU(),
        nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(4, 8)), nn.Softplus),
    "NFNet": _head(stem, lambda: Residual(StandardizedConv(8, 8, 3), nn.SiLU(),
                                          StandardizedConv(8, 8, 3)), lambda: nn.PReLU(8)),
    "U-Net": lambda: UNet(4), "GAN's generator": generator,
    "GAN's discriminator": discriminator,
}


def _convnext(models):
    config = models.convnext.CNBlockConfig
    return models.ConvNeXt([config(8, 16, 1), config(16, None, 1)], num_classes=5)


def _efficientnet(models, is_fused):
    of = models.efficientnet
    config = of.FusedMBConvConfig if is_fused else of.MBConvConfig
    return models.EfficientNet([config(4, 3, 2, 8, 8, 1), of.MBConvConfig(4, 5, 2, 8, 16, 1)],
                               dropout=0.0, stochastic_depth_prob=0.0, num_classes=5,
                               last_channel=32)


def _mobilenet_v3(models):
    config = functools.partial(models.mobilenetv3.InvertedResidualConfig, width_mult=1.0)
    return models.MobileNetV3([config(16, 3, 16, 16, True, "RE", 2, 1),
                               config(16, 5, 32, 16, True, "HS", 1, 1)], 32, 5, dropout=0.0)


def _regnet(models):
    params = models.regnet.BlockParams.from_init_params(4, 8, 8.0, 2.0, 8, se_ratio=0.25)
    return models.RegNet(params, num_classes=5)


def _resnet(models, **keywords):
    of = models.resnet
    return models.ResNet(of.Bottleneck, [1, 1, 1, 1], num_classes=5, **keywords)


def _segmentation(models, kind):
    of = models.segmentation
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.BatchNorm2d(8), nn.ReLU())

    class Backbone(nn.Module):
        def __init__(self):
            super().__init__()
            self.low, self.high = backbone, nn.Conv2d(8, 16, 3, 2, 1)

        def forward(self, x):
            low = self.low(x)
            return {"low": low, "high": self.high(low), "out": low}

    if kind == "LR-ASPP":
        return of.LRASPP(Backbone(), 8, 16, num_classes=4, inter_channels=8)
    head = of.fcn.FCNHead(8, 4) if kind == "FCN" else of.deeplabv3.DeepLabHead(8, 4, (2, 3))
    made = of.FCN if kind == "FCN" else of.DeepLabV3
    return made(Backbone(), head)


def _video(models):
    of = models.video.resnet
    return of.VideoResNet(of.BasicBlock, [of.Conv2Plus1D] * 4, [1, 1, 1, 1], of.R2Plus1dStem,
                          num_classes=5)


# For each family in torchvision, a function that makes a small network of its class.
TORCHVISION = {
    "ResNet": _resnet,
    "ResNeXt": lambda m: _resnet(m, groups=4, width_per_group=4),
    "DenseNet": lambda m: m.DenseNet(8, (2, 2), 16, num_classes=5),
    "VGG": lambda m: nn.Sequential(m.vgg.make_layers([8, "M", 16, "M"], True), nn.Flatten(),
                                   nn.Linear(16 * 64, 5)),
    "MobileNetV2": lambda m: m.MobileNetV2(
        5, 0.25, [[1, 16, 1, 1], [6, 24, 1, 2]], dropout=0.0),
    "MobileNetV3": _mobilenet_v3,
    "MNASNet": lambda m: m.MNASNet(0.1, 5, dropout=0.0),
    "ShuffleNetV2": lambda m: m.ShuffleNetV2([1, 1, 1], [8, 16, 32, 64, 64], 5),
    "EfficientNet": lambda m: _efficientnet(m, False),
    "EfficientNet v2": lambda m: _efficientnet(m, True),
    "RegNetY": _regnet, "ConvNeXt": _convnext,
    "Vision Transformer": lambda m: m.VisionTransformer(
        32, 8, 2, 2, 16, 32, num_classes=5),
    "Swin": lambda m: m.SwinTransformer(
        [4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=5, stochastic_depth_prob=0.0),
    "MaxViT": lambda m: m.MaxVit((32, 32), 8, 2, [8, 16], [1, 1], 4, 0.0, num_classes=5),
    "FCN": lambda m: _segmentation(m, "FCN"),
    "DeepLabV3": lambda m: _segmentation(m, "DeepLabV3"),
    "LR-ASPP": lambda m: _segmentation(m, "LR-ASPP"), "R(2+1)D": _video,
}
# Larger shapes, because a batch_norm of few values would amplify all errors.
SHAPES = {"R(2+1)D": (4, 3, 4, 32, 32), **dict.fromkeys(
    ("ResNet", "ResNeXt", "MNASNet", "ShuffleNetV2"), (4, 3, 64, 64))}
FAMILIES = (*BLOCKS, *TORCHVISION)


def make(family):
    """Returns a model of the family and an input; None if torchvision isn't installed."""
    torch.manual_seed(0)
    if family in BLOCKS:
        model = BLOCKS[family]()
    else:
        if importlib.util.find_spec("torchvision") is None:
            return None
        from torchvision import models
        model = TORCHVISION[family](models)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # no two libraries draw the same mask
    for parameter in model.parameters():
        if parameter.dim() <= 1 or not parameter.any():  # also parameters that begin as zeros
            parameter.data += 0.1 * torch.randn(parameter.shape)
    return model, torch.randn(SHAPES.get(family, IMAGES))
