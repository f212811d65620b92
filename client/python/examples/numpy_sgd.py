"""Learns one convolution with NumPy alone: finds the filter that produced some images.

    python numpy_sgd.py    # --target localhost:7070: on a server that runs
"""

from __future__ import annotations

import connecting
import numpy as np

import convgrad


def learn(client: convgrad.Client, steps: int) -> float:
    """Returns the largest difference from the correct filter."""
    rng = np.random.default_rng(0)
    wanted = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    weight = np.zeros_like(wanted)
    bias = np.zeros(4, np.float32)
    for step in range(steps):
        images = rng.standard_normal((16, 3, 12, 12)).astype(np.float32)
        target = client.conv_forward(images, wanted, padding=1).output + 0.5
        output = client.conv_forward(images, weight, bias, padding=1).output
        error = output - target
        gradients = client.conv_backward(
            error / error[:, 0].size, images, weight, padding=1,
            gradients={"grad_weight", "grad_bias"})
        weight -= 0.5 * gradients.grad_weight
        bias -= 0.5 * gradients.grad_bias
        if step % 10 == 0:
            print(f"step {step:3}: mean squared error {np.square(error).mean():.2e}")
    return float(max(np.abs(weight - wanted).max(), np.abs(bias - 0.5).max()))


def main() -> int:
    parser = connecting.new_parser(__doc__)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    with connecting.connect(arguments) as client:
        difference = learn(client, arguments.steps)
    print(f"the filter that was found differs by {difference:.1e} at most")
    return 0 if difference < 1e-3 else 1


if __name__ == "__main__":
    raise SystemExit(main())
