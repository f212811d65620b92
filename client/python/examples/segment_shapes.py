"""Trains a U-Net on a convgrad server to find circles and squares in generated images.

    python segment_shapes.py --picture shapes.png

The network, its activations and Adam are on the server; images go up, the loss comes back.
Exits with 1 if too few pixels of unseen images are right: fewer than --expect, by default
97 % after 250 steps or more.
"""

from __future__ import annotations

import connecting
import torch
import torch.nn.functional as F
from torch import nn

import convgrad
import convgrad.torch

SIZE = 48
CLASSES = ("background", "circle", "square")
STEPS = 250
EXPECTED = 0.97  # after STEPS


class Twice(nn.Sequential):
    """Two convolutions, each with batch_norm and ReLU."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__(
            nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU())


class UNet(nn.Module):
    """Two levels down and up again, with skip connections."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down1, self.down2 = Twice(3, width), Twice(width, 2 * width)
        self.bottom = Twice(2 * width, 4 * width)
        self.grow2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.up2 = Twice(4 * width, 2 * width)
        self.grow1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.up1 = Twice(2 * width, width)
        self.out = nn.Conv2d(width, len(CLASSES), 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        x = self.grow2(self.bottom(F.max_pool2d(second, 2)))
        x = self.grow1(self.up2(torch.cat([second, x], 1)))
        return self.out(self.up1(torch.cat([first, x], 1)))


def generate(batch: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns noisy images of a circle and a square each, and the class of each pixel."""
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    labels = torch.zeros(batch, SIZE, SIZE, dtype=torch.long)
    images = 0.1 * torch.randn(batch, 3, SIZE, SIZE, generator=generator)
    for i in range(batch):
        for kind in (1, 2):
            y, x = torch.randint(8, SIZE - 8, (2,), generator=generator)
            radius = torch.randint(4, 9, (1,), generator=generator)
            if kind == 1:
                inside = (rows - y) ** 2 + (columns - x) ** 2 <= radius**2
            else:
                inside = torch.maximum((rows - y).abs(), (columns - x).abs()) <= radius
            labels[i][inside] = kind
            images[i] += inside * torch.rand(3, 1, 1, generator=generator)
    return images, labels


def draw(images: torch.Tensor, labels: torch.Tensor, found: torch.Tensor, path: str) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return print("no picture: it needs matplotlib, pip install matplotlib")
    figure = Figure(figsize=(2 * len(images), 6), layout="constrained")
    axes = figure.subplots(3, len(images))
    for i, column in enumerate(axes.T):
        column[0].imshow(images[i].permute(1, 2, 0).clamp(0, 1))
        for axis, classes in zip(column[1:], (labels[i], found[i])):
            axis.imshow(classes, vmin=0, vmax=len(CLASSES) - 1)
    for axis, name in zip(axes[:, 0], ("image", "wanted", "found")):
        axis.set_ylabel(name)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=100)
    return print(f"picture: {path}")


def main() -> int:
    parser = connecting.new_parser(__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--picture", metavar="PNG", help="save what is found in unseen images")
    parser.add_argument("--expect", type=float, metavar="SHARE",
                        help=f"the least share of right pixels; default {EXPECTED} from "
                        f"{STEPS} steps on, 0 for fewer")
    arguments = parser.parse_args()
    if arguments.expect is None:
        arguments.expect = EXPECTED if arguments.steps >= STEPS else 0.0
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    with connecting.connect(arguments) as client, \
            convgrad.torch.remote(UNet(), client) as net:
        optimizer = convgrad.torch.optim.Adam(net.parameters(), lr=3e-3)
        losses = []
        for _ in range(arguments.steps):
            images, labels = generate(arguments.batch, generator)
            optimizer.zero_grad()
            losses.append(net.submit_forward_backward(images, labels))
            optimizer.step()
        print(f"loss {losses[0].result():.3f}, then {losses[-1].result():.3f}")
        images, labels = generate(8, generator)
        with torch.no_grad():
            found = net.eval()(images).argmax(1)
    share = float((found == labels).float().mean())
    print(f"{share:.2%} of the pixels of unseen images are right")
    if arguments.picture:
        draw(images, labels, found, arguments.picture)
    if share < arguments.expect:
        print(f"found {share:.2%}, expected {arguments.expect:.2%}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
