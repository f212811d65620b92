"""Computes PyTorch's convolutions and their gradients, or whole networks, on a convgrad server.

    client = convgrad.Client("localhost:7070")
    print(convgrad.torch.offload(model, client))  # in place; then train as ever
    layer = convgrad.torch.Conv2d(3, 64, 3, client=client)
    net = convgrad.torch.remote(model, client)  # whole: parameters and optimizer, too

The server computes derivatives of any order. A ReLU is never fused, because torch's gradient at
NaN differs.
"""

from convgrad.torch import optim
from convgrad.torch.layers.functional import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    linear,
)
from convgrad.torch.layers.modules import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Linear,
)
from convgrad.torch.networks.attached import AttachedNetwork
from convgrad.torch.networks.explaining import Explanation, explain
from convgrad.torch.networks.network import RemoteNetwork, remote
from convgrad.torch.networks.parameters import RemoteParameter
from convgrad.torch.offloading import Offloaded, offload, restore
from convgrad.torch.tensors import check_numpy

__all__ = [
    "AttachedNetwork", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d", "Explanation", "Linear", "Offloaded", "RemoteNetwork", "RemoteParameter",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "explain", "linear", "offload", "optim", "remote", "restore",
]

check_numpy()
