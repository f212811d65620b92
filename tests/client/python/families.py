"""Makes small networks of widely used families."""

from __future__ import annotations

import importlib.util

import torch
from family_blocks import BLOCKS
from family_classes import TORCHVISION
from torch import nn

IMAGES = (3, 3, 32, 32)
# Larger shapes, because a batch_norm of few values would amplify all errors.
SHAPES = {**dict.fromkeys(("R(2+1)D", "S3D", "MViT"), (4, 3, 4, 32, 32)), **dict.fromkeys(
    ("ResNet", "ResNeXt", "MNASNet", "ShuffleNetV2", "DLA"), (4, 3, 64, 64))}
FAMILIES = (*BLOCKS, *TORCHVISION)


def make(family, seed=0):
    """Returns a model of the family and an input; None if torchvision isn't installed."""
    torch.manual_seed(seed)
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
