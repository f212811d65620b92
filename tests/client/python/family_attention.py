"""Makes layers of tokens: attention and mixing, as in timm and the papers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


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


class RelativeAttention(nn.Module):
    """Attention with a learned bias for each distance of a grid's places, as in CoAtNet; with
    batch_norm in place of a bias, as in LeViT."""

    def __init__(self, features=16, heads=2, side=4, has_norms=False, reduction=1):
        super().__init__()
        self.heads, self.reduction, self.side = heads, reduction, side
        self.q = self._linear(features, features, has_norms)
        self.kv = self._linear(features, 2 * features, has_norms)
        self.proj = self._linear(features, features, has_norms)
        self.act = nn.Hardswish() if has_norms else nn.Identity()
        places = torch.stack(torch.meshgrid(2 * [torch.arange(side)], indexing="ij")).flatten(1)
        kept = places.view(2, side, side)[:, ::reduction, ::reduction].flatten(1)
        distance = (kept[:, :, None] - places[:, None]).abs()
        self.register_buffer("distances", distance[0] * side + distance[1])
        self.biases = nn.Parameter(0.1 * torch.randn(heads, side * side))

    def _linear(self, features, out, has_norms):
        if not has_norms:
            return nn.Linear(features, out)
        return nn.Sequential(nn.Linear(features, out, bias=False), RowsNorm(out))

    def forward(self, x):
        batch, length, features = x.shape
        kept = x.view(batch, self.side, self.side, features)[
            :, ::self.reduction, ::self.reduction].flatten(1, 2)
        q = self.q(kept).view(batch, kept.shape[1], self.heads, -1).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, self.heads, -1).chunk(2, dim=3)
        scores = q @ k.permute(0, 2, 3, 1) * q.shape[-1]**-0.5 + self.biases[:, self.distances]
        y = scores.softmax(dim=-1) @ v.transpose(1, 2)
        return self.proj(self.act(y.transpose(1, 2).reshape(batch, kept.shape[1], features)))


class RowsNorm(nn.BatchNorm1d):
    """LeViT's batch_norm of tokens' features."""

    def forward(self, x):
        return super().forward(x.flatten(0, 1)).reshape_as(x)


class Flat(nn.Module):
    """Applies layers for tokens to images."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        y = self.layers(x.flatten(2).transpose(1, 2))
        side = round(y.shape[1]**0.5)
        return y.transpose(1, 2).reshape(x.shape[0], -1, side, side)


class TwoHeads(nn.Module):
    """The classifiers of a distilled LeViT, whose mean is the output."""

    def __init__(self, features=16):
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm1d(features) for _ in range(2))
        self.heads = nn.ModuleList(nn.Linear(features, 5) for _ in range(2))

    def forward(self, x):
        x = x.flatten(2).mean(2)
        one, other = (head(norm(x)) for norm, head in zip(self.norms, self.heads))
        return (one + other) / 2


class MultiQuery(nn.Module):
    """MobileNetV4's attention: all heads share keys and values of a smaller image."""

    def __init__(self, channels=16, heads=2):
        super().__init__()
        self.heads = heads
        self.q = nn.Conv2d(channels, channels, 1, bias=False)
        self.k, self.v = (nn.Sequential(
            nn.Conv2d(channels, channels, 3, 2, 1, groups=channels, bias=False),
            nn.BatchNorm2d(channels), nn.Conv2d(channels, channels // heads, 1, bias=False))
            for _ in range(2))
        self.proj = nn.Conv2d(channels, channels, 1, bias=False)

    def forward(self, x):
        batch, channels, height, width = x.shape
        q = self.q(x).view(batch, self.heads, -1, height * width).transpose(2, 3)
        k, v = (layer(x).flatten(2).transpose(1, 2).unsqueeze(1) for layer in (self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(2, 3).reshape(batch, channels, height, width))
