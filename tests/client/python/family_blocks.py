"""Makes small networks of blocks as in timm, segmentation_models_pytorch and the papers."""

from __future__ import annotations

from family_attention import (
    ChannelsLast,
    CrossCovariance,
    Flat,
    LayerScale,
    Mixing,
    MultiQuery,
    RelativeAttention,
    Residual,
    Tokens,
    TwoHeads,
    mlp,
    transformer,
)
from family_convolutions import (
    Aggregation,
    Branches,
    CrossStage,
    DecodedUNet,
    Ghost,
    GlobalResponseNorm,
    HighResolution,
    Pooling,
    Scaled,
    SelectiveKernel,
    Shrinking,
    SplitAttention,
    StandardizedConv,
    conv_norm,
)
from small_networks import UNet
from torch import nn


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
    "LeViT": lambda: nn.Sequential(
        conv_norm(3, 8, 3, 4, act=nn.Hardswish), conv_norm(8, 16, 3, 2, act=nn.Hardswish),
        Flat(Residual(RelativeAttention(has_norms=True)),
             Residual(mlp(16, 32, nn.Hardswish)),
             RelativeAttention(has_norms=True, reduction=2)), TwoHeads()),
    "CoAtNet": _head(
        lambda: conv_norm(3, 8, 3, 4, act=nn.GELU), lambda: Shrinking(8, 16),
        lambda: Flat(Residual(nn.LayerNorm(16), RelativeAttention()),
                     Residual(nn.LayerNorm(16), mlp(16, 32))), channels=16),
    "EfficientFormer": _head(
        lambda: conv_norm(3, 8, 3, 4), lambda: Scaled(8, Pooling()),
        lambda: Scaled(8, conv_norm(8, 16, 1, act=nn.GELU),
                       conv_norm(16, 8, 1, act=nn.Identity)),
        lambda: conv_norm(8, 16, 3, 2, act=nn.Identity),
        lambda: Flat(Residual(nn.LayerNorm(16), RelativeAttention(), LayerScale(16)),
                     Residual(nn.LayerNorm(16), mlp(16, 32), LayerScale(16))), channels=16),
    "MobileNetV4": _head(
        lambda: conv_norm(3, 16, 3, 4), lambda: Residual(  # a universal inverted bottleneck
            nn.Conv2d(16, 16, 5, padding=2, groups=16, bias=False), nn.BatchNorm2d(16),
            conv_norm(16, 32, 1), conv_norm(32, 32, 3, groups=32),
            nn.Conv2d(32, 16, 1, bias=False), nn.BatchNorm2d(16)),
        lambda: Scaled(16, nn.BatchNorm2d(16), MultiQuery()), channels=16),
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
    "ResNeSt": _head(stem, lambda: Residual(conv_norm(8, 8, 1), SplitAttention(8)), nn.ReLU),
    "DLA": _head(stem, lambda: Aggregation(8, 12), channels=12),
    "SKNet": _head(stem, lambda: SelectiveKernel(8)),
    "CSPNet": _head(stem, lambda: CrossStage(8), nn.Mish),
    "HRNet": lambda: nn.Sequential(stem(), nn.ReLU(), HighResolution()),
    "GroupNorm ResNet": _head(stem, lambda: Residual(
        nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ELU(),
        nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(4, 8)), nn.Softplus),
    "NFNet": _head(stem, lambda: Residual(StandardizedConv(8, 8, 3), nn.SiLU(),
                                          StandardizedConv(8, 8, 3)), lambda: nn.PReLU(8)),
    "U-Net": lambda: UNet(4), "U-Net with an encoder": DecodedUNet,
    "GAN's generator": generator,
    "GAN's discriminator": discriminator,
}
