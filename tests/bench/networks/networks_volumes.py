#!/usr/bin/env python3
"""Times 3-D networks with nothing configured, beside PyTorch's here, in f32.

    networks_volumes.py [--networks=r3d_18,mc3_18,unet] [--rounds=3]

The server is a child process, as for networks_local.py. Ours runs with Winograd's algorithm
("fast") and without ("direct"); PyTorch in channels first and last. All take turns. Prints a
Markdown table: the least milliseconds of a training step and of inference, and the fast ones
divided by PyTorch's better format.
"""

import argparse
import time

import torch
import torchvision
from networks_models import CLASSES
from torch import nn
from torch.nn import functional as F

import convgrad.torch

LAYOUTS = {"first": torch.contiguous_format, "last": torch.channels_last_3d}
VIDEO = torchvision.models.video


class UNet(nn.Module):
    """Two levels down and up, for volumes of one channel."""

    def __init__(self):
        super().__init__()

        def double(channels, out):
            return nn.Sequential(
                nn.Conv3d(channels, out, 3, padding=1), nn.BatchNorm3d(out), nn.ReLU(),
                nn.Conv3d(out, out, 3, padding=1), nn.BatchNorm3d(out), nn.ReLU())

        self.down1, self.down2, self.bottom = double(1, 32), double(32, 64), double(64, 128)
        self.pool = nn.MaxPool3d(2)
        self.up2, self.join2 = nn.ConvTranspose3d(128, 64, 2, 2), double(128, 64)
        self.up1, self.join1 = nn.ConvTranspose3d(64, 32, 2, 2), double(64, 32)
        self.last = nn.Conv3d(32, CLASSES, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(self.pool(first))
        y = self.up2(self.bottom(self.pool(second)))
        y = self.up1(self.join2(torch.cat([y, second], 1)))
        return self.last(self.join1(torch.cat([y, first], 1)))


# Constructor, dims of the input, and whether each position has a label.
NETWORKS = {
    "r3d_18": (lambda: VIDEO.r3d_18(num_classes=CLASSES), (2, 3, 8, 112, 112), False),
    "mc3_18": (lambda: VIDEO.mc3_18(num_classes=CLASSES), (2, 3, 8, 112, 112), False),
    "unet": (UNet, (1, 1, 32, 48, 48), True),
}


class InProcess:
    def __init__(self, make, layout):
        self._layout = LAYOUTS[layout]
        self._trained, self._model = (make().to(memory_format=self._layout) for _ in range(2))
        self._model.eval()
        self._optimizer = torch.optim.SGD(self._trained.parameters(), lr=0.01, momentum=0.9)

    def train(self, x, labels):
        self._optimizer.zero_grad()
        loss = F.cross_entropy(self._trained(x.contiguous(memory_format=self._layout)), labels)
        loss.backward()
        self._optimizer.step()
        loss.item()

    def infer(self, x, labels):
        with torch.no_grad():
            self._model(x.contiguous(memory_format=self._layout))


class Ours:
    def __init__(self, make, is_fast):
        self._trained, self._model = (convgrad.torch.remote(make(), fast=is_fast)
                                      for _ in range(2))
        self._model.eval()
        self._optimizer = convgrad.torch.optim.SGD(self._trained.parameters(), lr=0.01,
                                                   momentum=0.9)

    def train(self, x, labels):
        self._trained.train_step(x, labels, optimizer=self._optimizer)

    def infer(self, x, labels):
        with torch.no_grad():
            self._model(x)


def measure(runners, part, batch, rounds):
    """Returns the least milliseconds of each runner, of two calls in each round."""
    least = dict.fromkeys(runners, float("inf"))
    for i in range(rounds + 1):  # the first one warms up
        for kind, runner in runners.items():
            for _ in range(2):
                start = time.perf_counter()
                getattr(runner, part)(*batch)
                spent = (time.perf_counter() - start) * 1000
                least[kind] = min(least[kind], spent) if i else least[kind]
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=lambda text: text.split(","), default=[*NETWORKS])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    kinds = ("direct", "fast", *LAYOUTS)
    print(f"| network | | {' | '.join(kinds)} | fast / PyTorch |\n"
          "|---|---|" + "--:|" * (len(kinds) + 1))
    for name in options.networks:
        make, dims, has_maps = NETWORKS[name]
        torch.manual_seed(1)
        batch = torch.randn(dims), torch.randint(CLASSES, (dims[0], *dims[2:] * has_maps))
        runners = {"direct": Ours(make, False), "fast": Ours(make, True)}
        runners |= {layout: InProcess(make, layout) for layout in LAYOUTS}
        for part in ("train", "infer"):
            least = measure(runners, part, batch, options.rounds)
            ratio = least["fast"] / min(least[layout] for layout in LAYOUTS)
            times = " | ".join(f"{least[kind]:.1f}" for kind in kinds)
            print(f"| {name} | {part} | {times} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
