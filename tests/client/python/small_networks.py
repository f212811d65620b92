"""Makes networks of typical kinds, small enough for tests."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False),
                                            nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    """A ResNet like torchvision's, with a stem and two blocks."""

    def __init__(self, classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layers = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))


class Vgg(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(2, 2),
            nn.Conv2d(8, 12, 3, padding=1), nn.LeakyReLU(0.1), nn.AvgPool2d(2))
        self.classifier = nn.Sequential(
            nn.Linear(12 * 16, 16), nn.ReLU(True), nn.Dropout(0.0), nn.Linear(16, classes))

    def forward(self, x):
        x = self.features(x)
        return self.classifier(x.view(x.size(0), -1))


class DenseNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8 + 4 * i) for i in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(8 + 4 * i, 4, 3, padding=1) for i in range(3))
        self.fc = nn.Linear(20, classes)

    def forward(self, x):
        features = [self.stem(x)]
        for norm, conv in zip(self.norms, self.convs):
            features.append(conv(F.relu(norm(torch.cat(features, 1)), inplace=True)))
        x = F.avg_pool2d(torch.cat(features, dim=1), 2)
        return self.fc(F.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


class UNet(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.down1 = nn.Conv2d(3, 6, 3, padding=1)
        self.down2 = nn.Conv2d(6, 12, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(12, 12, 3, padding="same")
        self.up = nn.ConvTranspose2d(12, 6, 2, stride=2)
        self.smooth = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.narrow = nn.Conv2d(12, 6, 1)
        self.out = nn.Conv2d(18, classes, 1)

    def forward(self, x):
        first = F.silu(self.down1(x))
        second = F.relu(self.down2(first))
        second = torch.sigmoid(self.middle(second)) * second
        up, smooth = self.up(second), self.narrow(self.smooth(second))
        return self.out(torch.cat([first, up, smooth], 1))


class Mobile(nn.Module):
    """Depthwise convolutions and a squeeze-and-excite, as in MobileNetV2 and later."""

    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8),
                                  nn.ReLU6(inplace=True))
        self.depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False),
                                       nn.BatchNorm2d(8), nn.ReLU6(inplace=True))
        self.squeeze = nn.Conv2d(8, 2, 1)
        self.excite = nn.Conv2d(2, 8, 1)
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        x = self.stem(x)
        y = self.depthwise(x)
        scale = torch.sigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        x = x + scale * y
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


NETWORKS = {kind.__name__: kind for kind in (ResNet, Vgg, DenseNet, UNet, Mobile)}
SHAPE = (4, 3, 16, 16)


def make(kind, seed=0):
    torch.manual_seed(seed)
    return NETWORKS[kind]()


def images(*shape, seed=1):
    return torch.randn(shape or SHAPE, generator=torch.Generator().manual_seed(seed))


def integers(*shape, seed=1, most=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-most, most + 1, shape, generator=generator).float()


class OfIntegers(nn.Module):
    """Has convolution, linear, add, mul, concat, max_pool and relu of small integers."""

    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(2, 3, 3, padding=1)
        self.other = nn.Conv2d(2, 3, 1)
        self.fc = nn.Linear(6 * 9, 4)
        for parameter in self.parameters():
            parameter.data = integers(*parameter.shape, seed=parameter.numel())

    def forward(self, x):
        one, other = F.relu(self.one(x)), self.other(x)
        both = torch.cat([one + other, one * other], 1)
        return self.fc(F.max_pool2d(both, 2).flatten(1))
