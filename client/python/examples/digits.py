"""Trains a small CNN on handwritten digits, with every convolution on a convgrad server.

    python digits.py                             # float32, on a server that it starts
    python digits.py --target localhost:7070     # on a server that runs
    python digits.py --compare                   # also trains locally
    python digits.py --bf16 --plot digits.png

Needs the extra [examples]. Exits with 1 if the accuracy is too low: below --expect, by
default 97 % after 15 epochs or more.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field

# Without this, torch's idle threads would spin on the cores of a server on the same machine,
# and a step would take four times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import connecting
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from tqdm import tqdm

import convgrad
import convgrad.torch

BATCH = 64
EPOCHS = 15
EXPECTED_ACCURACY = 0.97  # after EPOCHS


@dataclass
class Run:
    """One training: its settings and its results."""

    name: str
    seed: int
    client: convgrad.Client | None
    bf16: bool = False
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)  # after each epoch
    seconds: float = 0.0
    convolution_seconds: float = 0.0


def make_model(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10))


def load() -> tuple[torch.Tensor, ...]:
    """Returns images and labels for the training, then for the test."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    train, test = train_test_split(torch.arange(len(labels)), test_size=0.25,
                                   stratify=digits.target, random_state=0)
    return images[train], labels[train], images[test], labels[test]


def precision(run: Run) -> contextlib.AbstractContextManager[object]:
    """Computes in bf16; weights, their gradients and the loss stay float32."""
    if run.bf16:
        return torch.autocast("cpu", dtype=torch.bfloat16)
    return contextlib.nullcontext()


class ConvolutionClock:
    """Measures the time of a client's calls."""

    def __init__(self, client: convgrad.Client, run: Run) -> None:
        self._client, self._run = client, run

    def __getattr__(self, name: str) -> object:
        method = getattr(self._client, name)

        def timed(*args: object, **kwargs: object) -> object:
            start = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self._run.convolution_seconds += time.perf_counter() - start

        return timed


def train(run: Run, epochs: int, data: tuple[torch.Tensor, ...]) -> nn.Sequential:
    images, labels, test_images, test_labels = data
    model = make_model(run.seed)
    if run.client is not None:
        convgrad.torch.offload(model, ConvolutionClock(run.client, run))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    order = torch.Generator().manual_seed(run.seed)
    start = time.perf_counter()
    steps = -(-len(labels) // BATCH)
    with tqdm(total=epochs * steps, desc=f"{run.name}, seed {run.seed}",
              disable=None) as bar:
        for _ in range(epochs):
            for batch in torch.randperm(len(labels), generator=order).split(BATCH):
                optimizer.zero_grad()
                with precision(run):
                    scores = model(images[batch])
                loss = F.cross_entropy(scores.float(), labels[batch])
                loss.backward()
                optimizer.step()
                run.losses.append(loss.item())
                bar.update()
            run.accuracies.append(accuracy(run, model, test_images, test_labels))
            bar.set_postfix(accuracy=f"{run.accuracies[-1]:.2%}")
    run.seconds = time.perf_counter() - start
    return model


@torch.no_grad()
def accuracy(run: Run, model: nn.Module, images: torch.Tensor,
             labels: torch.Tensor) -> float:
    with precision(run):
        return float((model(images).argmax(1) == labels).float().mean())


def plot(runs: list[Run], path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for run in runs:
        remote = run.client is not None
        style = dict(color=f"C{run.seed % 10}", linestyle="-" if remote else "--",
                     linewidth=1 if remote else 2.5, alpha=1 if remote else 0.4,
                     label=f"{run.name}, seed {run.seed}")
        left.plot(run.losses, **style)
        right.plot(range(1, len(run.accuracies) + 1), run.accuracies, **style)
    left.set(xlabel="step", ylabel="training loss", yscale="log")
    right.set(xlabel="epoch", ylabel="test accuracy", ylim=(0.8, 1.0))
    right.legend()
    figure.savefig(path, dpi=120)
    print(f"curves: {path}")


def report(run: Run) -> None:
    line = (f"{run.name}, seed {run.seed}: accuracy {run.accuracies[-1]:.2%}, "
            f"{run.seconds:.1f} s")
    if run.client is not None:
        share = run.convolution_seconds / run.seconds
        line += f", of which {run.convolution_seconds:.1f} s ({share:.0%}) in remote calls"
    print(line)


def main() -> int:
    parser = connecting.new_parser(__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--bf16", action="store_true",
                        help="compute in bf16; weights stay float32")
    parser.add_argument("--compare", action="store_true", help="train locally, too")
    parser.add_argument("--plot", metavar="PNG", help="save loss and accuracy")
    parser.add_argument("--expect", type=float, metavar="ACCURACY",
                        help=f"the least that is right; default {EXPECTED_ACCURACY} from "
                        f"{EPOCHS} epochs on, 0 for fewer")
    arguments = parser.parse_args()
    if arguments.expect is None:
        arguments.expect = EXPECTED_ACCURACY if arguments.epochs >= EPOCHS else 0.0
    data = load()
    kind = "bf16" if arguments.bf16 else "f32"
    runs = []
    with connecting.connect(arguments) as client:
        for seed in range(arguments.seeds):
            runs.append(Run(f"remote {kind}", seed, client, arguments.bf16))
            if arguments.compare:
                runs.append(Run(f"local {kind}", seed, None, arguments.bf16))
        for run in runs:
            train(run, arguments.epochs, data)
    for run in runs:
        report(run)
    if arguments.compare:
        for remote, local in zip(runs[::2], runs[1::2]):
            gaps = [abs(a - b) for a, b in zip(remote.losses, local.losses)]
            print(f"seed {remote.seed}: remote and local losses differ by {max(gaps):.2e} at "
                  f"most, {sum(gaps) / len(gaps):.2e} on average; accuracies by "
                  f"{abs(remote.accuracies[-1] - local.accuracies[-1]):.2%}")
    if arguments.plot:
        plot(runs, arguments.plot)
    worst = min(run.accuracies[-1] for run in runs)
    if worst < arguments.expect:
        print(f"found an accuracy of {worst:.2%}, expected {arguments.expect:.2%}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
