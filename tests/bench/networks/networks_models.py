"""Makes the networks that networks.py measures, by name, and data for them."""

import torch
import torchvision
from torch import nn

CLASSES = 10


class UNet(nn.Module):
    """Two levels down and up, with batch_norm."""

    def __init__(self):
        super().__init__()

        def double(channels, out):
            return nn.Sequential(
                nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out),
                nn.ReLU(), nn.Conv2d(out, out, 3, padding=1, bias=False),
                nn.BatchNorm2d(out), nn.ReLU())

        self.down1, self.down2, self.bottom = double(3, 32), double(32, 64), double(64, 128)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.ConvTranspose2d(128, 64, 2, 2)
        self.up1 = nn.ConvTranspose2d(64, 32, 2, 2)
        self.join2, self.join1 = double(128, 64), double(64, 32)
        self.last = nn.Conv2d(32, CLASSES, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(self.pool(first))
        y = self.up2(self.bottom(self.pool(second)))
        y = self.up1(self.join2(torch.cat([y, second], 1)))
        return self.last(self.join1(torch.cat([y, first], 1)))


class SmallCnn(nn.Sequential):
    """Eight convolutions of 16 to 128 channels, for images of 32x32."""

    def __init__(self, num_classes):
        layers, channels = [], 3
        for i, out in enumerate((16, 16, 32, 32, 64, 64, 128, 128)):
            stride = 2 if i in (2, 4, 6) else 1
            layers += [nn.Conv2d(channels, out, 3, stride, 1), nn.BatchNorm2d(out), nn.ReLU()]
            channels = out
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(channels, num_classes))


class Segmenter(nn.Module):
    """DeepLabV3 with ResNet-50, whose result is one tensor."""

    def __init__(self, num_classes):
        super().__init__()
        self.model = torchvision.models.segmentation.deeplabv3_resnet50(
            weights=None, weights_backbone=None, num_classes=num_classes)

    def forward(self, x):
        return self.model(x)["out"]


def vit_s16(num_classes, size=224):
    """ViT-S/16 of DeiT (Touvron et al. 2021, table 1)."""
    return torchvision.models.VisionTransformer(size, 16, 12, 6, 384, 1536,
                                                num_classes=num_classes)


def vit_s16_512(num_classes):
    """The same for larger images, where attention has 1,025 queries and keys."""
    return vit_s16(num_classes, 512)


def googlenet(**settings):
    return torchvision.models.googlenet(aux_logits=False, init_weights=True, **settings)


MODELS = torchvision.models
# For each name: constructor, then batch and image size for `speed` and for `accuracy`.
NETWORKS = {
    "resnet18": (MODELS.resnet18, (16, 224), (4, 64)),
    "resnet50": (MODELS.resnet50, (16, 224), (4, 64)),
    "resnext50": (MODELS.resnext50_32x4d, (16, 224), (4, 64)),
    "vgg11_bn": (MODELS.vgg11_bn, (8, 224), (2, 64)),
    "vgg16_bn": (MODELS.vgg16_bn, (8, 224), (2, 64)),
    "mobilenet_v2": (MODELS.mobilenet_v2, (16, 224), (4, 64)),
    "squeezenet": (MODELS.squeezenet1_1, (16, 224), (4, 64)),
    "googlenet": (googlenet, (8, 224), (4, 64)),
    "densenet121": (MODELS.densenet121, (8, 224), (4, 64)),
    "unet": (UNet, (16, 128), (4, 64)),
    "convnext_tiny": (MODELS.convnext_tiny, (8, 224), (4, 64)),
    "efficientnet_b0": (MODELS.efficientnet_b0, (16, 224), (4, 64)),
    "mobilenet_v3_large": (MODELS.mobilenet_v3_large, (16, 224), (4, 64)),
    "swin_t": (MODELS.swin_t, (8, 224), (4, 64)),
    "vit_s16": (vit_s16, (8, 224), (4, 224)),
    "vit_s16_512": (vit_s16_512, (4, 512), (1, 512)),
    "small_cnn": (SmallCnn, (4, 32), (4, 32)),
    "deeplabv3_r50": (Segmenter, (8, 224), (4, 64)),
}
# Their labels are maps.
SEGMENTERS = ("unet", "deeplabv3_r50")


def make(name, seed=1):
    torch.manual_seed(seed)
    build = NETWORKS[name][0]
    model = build() if name == "unet" else build(num_classes=CLASSES)
    for module in model.modules():
        # Removed, because no two libraries draw the same mask.
        if isinstance(module, (nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
    return model.train()


def data(name, batch, size):
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(batch, 3, size, size, generator=generator)
    shape = (batch, size, size) if name in SEGMENTERS else (batch,)
    return images, torch.randint(CLASSES, shape, generator=generator)
