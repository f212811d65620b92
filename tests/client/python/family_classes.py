"""Makes small networks of torchvision's classes."""

from __future__ import annotations

import functools
import importlib

from torch import nn


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


def _s3d(models):
    of = importlib.import_module(models.__name__ + ".video.s3d")  # also a function's name
    return nn.Sequential(
        of.TemporalSeparableConv(3, 8, 3, 2, 1, nn.BatchNorm3d),
        nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)),
        of.SepInceptionBlock3D(8, 4, 4, 6, 2, 4, 4, nn.BatchNorm3d),
        nn.AvgPool3d((2, 8, 8), 1), nn.Conv3d(18, 5, 1), nn.Flatten())


def _mvit(models):
    of = models.video.mvit
    wide = [3, 3, 3]
    return of.MViT((32, 32), 4, [
        of.MSBlockConfig(1, 16, 16, wide, wide, [1, 1, 1], [1, 2, 2]),
        of.MSBlockConfig(2, 16, 32, wide, wide, [1, 2, 2], [1, 2, 2])],
        residual_pool=True, residual_with_cls_embed=False, rel_pos_embed=True,
        proj_after_attn=True, num_classes=5)


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
    "S3D": _s3d, "MViT": _mvit,
}
