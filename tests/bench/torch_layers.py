#!/usr/bin/env python3
"""Compares ResNet-18's convolutions through convgrad.torch with torch's on this machine.

    torch_layers.py TARGET [--batch 4] [--repeats 5]

For each layer and dtype it prints the milliseconds of forward and backward together, local and
remote; the server's compute time; and the worst gradient element as a share of its bound
(proto/correctness.md, "Single results"). Exits with 1 if an element exceeds its bound.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
import torch.nn.functional as F

import convgrad
import convgrad.torch

# Name, channels in and out, input size, kernel, stride.
LAYERS = [
    ("conv1", 3, 64, 224, 7, 2),
    ("layer1", 64, 64, 56, 3, 1),
    ("layer2.0", 64, 128, 56, 3, 2),
    ("layer2.down", 64, 128, 56, 1, 2),
    ("layer2", 128, 128, 28, 3, 1),
    ("layer3.0", 128, 256, 28, 3, 2),
    ("layer3.down", 128, 256, 28, 1, 2),
    ("layer3", 256, 256, 14, 3, 1),
    ("layer4.0", 256, 512, 14, 3, 2),
    ("layer4.down", 256, 512, 14, 1, 2),
    ("layer4", 512, 512, 7, 3, 1),
]
UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}


class Reports:
    """A client that adds up the server's compute times."""

    def __init__(self, client):
        self.client, self.seconds = client, 0.0

    def __getattr__(self, name):
        def call(*args, **kwargs):
            result = getattr(self.client, name)(*args, **kwargs)
            self.seconds += result.report.seconds.compute + result.report.seconds.reorder
            return result
        return call


def gradients(convolve, x, w, dy):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    return torch.autograd.grad(convolve(x, w), (x, w), dy)


def worst_share(found, x, w, dy, window):
    """Returns the largest error of grad_input and grad_weight divided by its bound."""
    def plain(x, w):
        return F.conv2d(x, w, **window)

    x, w, dy = x.double(), w.double(), dy.double()
    exact = gradients(plain, x, w, dy)
    squares = gradients(plain, x.square(), w.square(), dy.square())
    products = (w.shape[0] * w.shape[2] * w.shape[3],
                dy.shape[0] * dy.shape[2] * dy.shape[3])
    shares = []
    for got, wanted, square, k in zip(found, exact, squares, products):
        size = torch.maximum(wanted.abs(), square.sqrt())
        bound = (1.01 * UNIT[got.dtype] * wanted.abs()
                 + 4 * (k + 2) ** 0.5 * 2.0**-24 * size + 2.0**-126)
        shares.append(((got.double() - wanted).abs() / bound).max().item())
    return max(shares)


def milliseconds(convolve, x, w, dy, repeats):
    gradients(convolve, x, w, dy)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        gradients(convolve, x, w, dy)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def measure(layer, dtype, arguments, reports):
    name, c, o, size, kernel, stride = layer
    window = dict(stride=stride, padding=kernel // 2)
    x = torch.randn(arguments.batch, c, size, size).to(dtype)
    w = (torch.randn(o, c, kernel, kernel) / (c * kernel**2) ** 0.5).to(dtype)
    dy = torch.randn_like(F.conv2d(x, w, **window))

    def remote(x, w):
        return convgrad.torch.conv2d(x, w, client=reports, **window)

    local_ms = milliseconds(lambda x, w: F.conv2d(x, w, **window), x, w, dy,
                            arguments.repeats)
    reports.seconds = 0.0
    remote_ms = milliseconds(remote, x, w, dy, arguments.repeats)
    server_ms = 1e3 * reports.seconds / (arguments.repeats + 1)
    share = worst_share(gradients(remote, x, w, dy), x, w, dy, window)
    print(f"| {name} | {c}-{o}, {kernel}x{kernel}/{stride}, {size} | "
          f"{str(dtype).removeprefix('torch.')} | {local_ms:.1f} | {remote_ms:.1f} | "
          f"{server_ms:.1f} | {share:.2f} |", flush=True)
    return share


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", help="the server's address")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    print("| layer | shape | dtype | local ms | remote ms | of which server | worst / bound |")
    print("|---|---|---|---|---|---|---|")
    with convgrad.Client(arguments.target) as client:
        worst = max(measure(layer, dtype, arguments, Reports(client))
                    for layer in LAYERS for dtype in UNIT)
    return 0 if worst <= 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
