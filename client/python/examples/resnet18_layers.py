"""Times each convolution of a ResNet-18, forward and backward, on a server and locally, and
compares the server's gradients with the contract's bounds. Prints Markdown.

    python resnet18_layers.py --batch 8

Needs the extra [torch]. Exits with 1 if a gradient exceeds its bound.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import NamedTuple

# See digits.py.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import connecting
import torch
import torch.nn.functional as F

import convgrad
import convgrad.torch

UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}

Tensors = tuple[torch.Tensor, ...]


class Layer(NamedTuple):
    channels: int
    filters: int
    kernel: int
    stride: int
    size: int
    count: int  # in the network


LAYERS = (
    Layer(3, 64, 7, 2, 224, 1), Layer(64, 64, 3, 1, 56, 4), Layer(64, 128, 3, 2, 56, 1),
    Layer(64, 128, 1, 2, 56, 1), Layer(128, 128, 3, 1, 28, 3), Layer(128, 256, 3, 2, 28, 1),
    Layer(128, 256, 1, 2, 28, 1), Layer(256, 256, 3, 1, 14, 3), Layer(256, 512, 3, 2, 14, 1),
    Layer(256, 512, 1, 2, 14, 1), Layer(512, 512, 3, 1, 7, 3))


def gradients(conv: Callable[..., torch.Tensor], x: torch.Tensor, w: torch.Tensor,
              dy: torch.Tensor) -> Tensors:
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    return torch.autograd.grad(conv(x, w), (x, w), dy)


def share_of_bound(found: torch.Tensor, exact: torch.Tensor, spread: torch.Tensor,
                   products: int) -> float:
    """Returns the largest error of an element as a share of the allowed error.

    The allowed error is 1.01 u |exact| + 4 sqrt(products + 2) 2^-24 spread. The spread of
    independent zero-mean operands is the larger of |exact| and the root of the same sum
    over squares (proto/correctness.md, "Single results").
    """
    allowed = (1.01 * UNIT[found.dtype] * exact.abs()
               + 4 * (products + 2) ** 0.5 * 2.0**-24 * spread + 2.0**-126)
    return float(((found.double() - exact).abs() / allowed).max())


def worst_share(layer: Layer, found: Tensors, conv: Callable[..., torch.Tensor],
                operands: Tensors) -> float:
    exact = gradients(conv, *(t.double() for t in operands))
    squares = gradients(conv, *(t.double().square() for t in operands))
    x, _, dy = operands
    products = (layer.filters * layer.kernel**2, len(x) * dy.shape[2] * dy.shape[3])
    return max(share_of_bound(f, e, torch.maximum(e.abs(), s.sqrt()), k)
               for f, e, s, k in zip(found, exact, squares, products))


def milliseconds(run: Callable[[], object], repeat: int) -> float:
    """Returns the fastest of some runs, after one warm-up run."""
    run()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def measure(layer: Layer, dtype: torch.dtype, arguments: argparse.Namespace,
            client: convgrad.Client) -> tuple[float, float, float]:
    """Returns milliseconds locally and through the server, and the largest share of the bound.
    """
    window = (layer.stride, layer.kernel // 2)

    def local(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, None, *window)

    def remote(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return convgrad.torch.conv2d(x, w, None, *window, client=client)

    torch.manual_seed(0)
    x = torch.randn(arguments.batch, layer.channels, layer.size, layer.size).to(dtype)
    w = torch.randn(layer.filters, layer.channels, layer.kernel, layer.kernel).to(dtype)
    operands = (x, w, torch.randn_like(local(x, w)))
    return (milliseconds(lambda: gradients(local, *operands), arguments.repeat),
            milliseconds(lambda: gradients(remote, *operands), arguments.repeat),
            worst_share(layer, gradients(remote, *operands), local, operands))


def main() -> int:
    parser = connecting.new_parser(__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=5, help="of which the fastest counts")
    arguments = parser.parse_args()
    print(f"Batch {arguments.batch}, PyTorch {torch.__version__}, "
          f"{torch.get_num_threads()} threads. Milliseconds of one forward and backward; "
          "the error is the worst of a gradient's elements, as a share of its bound.\n")
    print("| layer | in ResNet-18 | f32 local | f32 remote | error | bf16 local "
          "| bf16 remote | error |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    shares = []
    with connecting.connect(arguments) as client:
        for layer in LAYERS:
            cells = [f"{layer.channels}>{layer.filters} {layer.kernel}x{layer.kernel}"
                     f"/{layer.stride} {layer.size}x{layer.size}", str(layer.count)]
            for dtype in (torch.float32, torch.bfloat16):
                *times, share = measure(layer, dtype, arguments, client)
                shares.append(share)
                cells += [*(f"{time:.1f}" for time in times), f"{share:.2f}"]
            print(f"| {' | '.join(cells)} |", flush=True)
    return 0 if max(shares) <= 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
