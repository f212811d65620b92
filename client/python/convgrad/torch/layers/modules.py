"""Provides torch.nn's convolutions, with gradients from a server. They have the same
constructor and state_dict, and the keywords `client` and `forward`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from convgrad.client import Client
from convgrad.torch.layers.functional import apply
from convgrad.torch.layers.layer import handle_of, make_layer

Tensor = torch.Tensor

# As in functional.py; torch.fx looks up names in each module.
torch.fx.wrap("apply")


class _Remote:
    """Says where a module computes. `client` may also be set later."""

    client: Client | None = None
    forward_on: str = "remote"

    def __init__(self, *args: Any, client: Client | None = None, forward: str = "remote",
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if client is not None:
            handle_of(client)  # checks it
        self.client = client
        self.forward_on = forward


class _Convolution(_Remote):
    def forward(self: Any, input: Tensor) -> Tensor:
        rank, padding = len(self.kernel_size), self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice,
                          mode=self.padding_mode)
            padding = 0
        layer = make_layer(self.client, self.forward_on, rank, stride=self.stride,
                           padding=padding, dilation=self.dilation, groups=self.groups)
        return apply(layer, input, self.weight, self.bias)


class _ConvTranspose(_Remote):
    def forward(self: Any, input: Tensor,
                output_size: Sequence[int] | None = None) -> Tensor:
        rank = len(self.kernel_size)
        output_padding = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, rank,
            self.dilation)
        layer = make_layer(self.client, self.forward_on, rank, stride=self.stride,
                           padding=self.padding, dilation=self.dilation, groups=self.groups,
                           output_padding=output_padding, transposed=True)
        return apply(layer, input, self.weight, self.bias)


class Conv1d(_Convolution, nn.Conv1d):
    """The same as torch.nn.Conv1d."""


class Conv2d(_Convolution, nn.Conv2d):
    """The same as torch.nn.Conv2d."""


class Conv3d(_Convolution, nn.Conv3d):
    """The same as torch.nn.Conv3d."""


class ConvTranspose1d(_ConvTranspose, nn.ConvTranspose1d):
    """The same as torch.nn.ConvTranspose1d."""


class ConvTranspose2d(_ConvTranspose, nn.ConvTranspose2d):
    """The same as torch.nn.ConvTranspose2d."""


class ConvTranspose3d(_ConvTranspose, nn.ConvTranspose3d):
    """The same as torch.nn.ConvTranspose3d."""


class Linear(_Remote, nn.Linear):
    """The same as torch.nn.Linear."""

    def forward(self, input: Tensor) -> Tensor:
        layer = make_layer(self.client, self.forward_on, 0)
        return apply(layer, input, self.weight, self.bias)
