"""Trains a whole network on a convgrad server: images go up, the loss comes back.

    python train_remote.py                    # ResNet-18, on a server that it starts
    python train_remote.py --target localhost:7070
    python train_remote.py --network small --steps 200 --plot loss.png
    python train_remote.py --loss local --batch 8                     # logits down, any loss
    python train_remote.py --target localhost:7070 --session FILE
                                              # durable: after a kill, run it again to go on

The images are generated: a pattern for each class, with noise. For comparison, PyTorch trains
the same network here from the same weights. The first step has a time of its own, because it
exports the model and makes plans. Exits with 1 if the remote loss of the last steps is too
high: above --expect, by default 1.25 times PyTorch's.
"""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import connecting
import torch
import torch.nn.functional as F
from torch import nn

import convgrad
import convgrad.torch

CLASSES = 10
# Number of last steps whose mean loss is reported; fewer if there are fewer steps.
LAST = 20
# Maximum ratio to PyTorch's loss that rounding can explain.
TOLERANCE = 1.25


class Block(nn.Module):
    """A residual block of ResNet-18."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False),
                                            nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += self.downsample(x)
        return self.relu(y)


def resnet18() -> nn.Module:
    blocks = [Block(c, o, s) for o, c0, s0 in ((64, 64, 1), (128, 64, 2), (256, 128, 2),
                                               (512, 256, 2))
              for c, s in ((c0, s0), (o, 1))]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(512, CLASSES))


def small() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnet18": (resnet18, 224), "small": (small, 32)}


@dataclass
class Run:
    name: str
    losses: list[float] = field(default_factory=list)
    # Times at the start, after the first step and at the end.
    marks: list[float] = field(default_factory=list)

    def mark(self) -> None:
        self.marks.append(time.perf_counter())

    def __str__(self) -> str:
        start, first, end = self.marks
        text = (f"{self.name}: loss {self.losses[0]:.3f}, then {self.last_loss():.3f}; "
                f"{1000 * (first - start):.0f} ms for the first step")
        if len(self.losses) > 1:
            text += f", then {1000 * (end - first) / (len(self.losses) - 1):.0f} ms a step"
        return text

    def last_loss(self) -> float:
        last = self.losses[-LAST:]
        return sum(last) / len(last)


def generate(steps: int, batch: int, size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns batches of images and their classes."""
    generator = torch.Generator().manual_seed(1)
    patterns = F.interpolate(torch.randn(CLASSES, 3, 8, 8, generator=generator), size)
    batches = []
    for _ in range(steps):
        labels = torch.randint(CLASSES, (batch,), generator=generator)
        noise = torch.randn(batch, 3, size, size, generator=generator)
        batches.append((patterns[labels] + noise, labels))
    return batches


def train(run: Run, net: Callable[[torch.Tensor], torch.Tensor],
          optimizer: torch.optim.Optimizer,
          batches: list[tuple[torch.Tensor, torch.Tensor]], first: int = 0,
          save: Callable[[dict[str, Any]], None] = lambda state: None) -> None:
    """Trains locally or remotely with the same code, from the step `first` on."""
    run.mark()
    for step, (images, labels) in enumerate(batches[first:], first):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        save({"step": step + 1})
        run.losses.append(loss.item())
        if step == first:
            run.mark()
    run.mark()


def train_ahead(run: Run, net: convgrad.torch.RemoteNetwork,
                optimizer: convgrad.torch.optim.SGD,
                batches: list[tuple[torch.Tensor, torch.Tensor]], first: int) -> None:
    """Trains with the loss on the server, without waiting for it."""
    run.mark()
    futures = []
    for step, (images, labels) in enumerate(batches[first:], first):
        futures.append(net.submit_train_step(images, labels, optimizer=optimizer,
                                             trainer_state={"step": step + 1}))
        if step == first:
            futures[0].result()
            run.mark()
    run.losses = [future.result() for future in futures]
    run.mark()


def open_or_resume(client: convgrad.Client, path: pathlib.Path) -> convgrad.Session:
    """Resumes the session whose id the file has, or opens a durable one."""
    with contextlib.suppress(FileNotFoundError, convgrad.SessionExpired):
        session = client.session(resume=path.read_bytes(), keep_open=True)
        if session.trainer_state:
            return session
        session.close()  # the program was killed before a step was durable
    session = client.session(durable=True, keep_open=True)
    path.touch(mode=0o600)  # who has the id may use the session
    path.write_bytes(session.id)
    return session


@contextlib.contextmanager
def network(client: convgrad.Client, model: nn.Module,
            path: pathlib.Path | None) -> Iterator[tuple[convgrad.torch.RemoteNetwork, int]]:
    """Yields the network and its first step. With `path` it may have been trained before."""
    if path is None:
        with convgrad.torch.remote(model, client) as net:
            yield net, 0
        return
    with open_or_resume(client, path) as session:
        net = convgrad.torch.remote(model, session, put=not session.trainer_state)
        step = net.trainer_state.get("step", 0)
        if step:
            print(f"goes on after step {step}", flush=True)
        yield net, step
        net.wait()
        session.close()  # it isn't needed any more
        path.unlink()


def plot(runs: list[Run], path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for run, style in zip(runs, ("-", "--")):
        axes.plot(run.losses, style, label=run.name)
    axes.set(xlabel="step", ylabel="training loss", yscale="log")
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> int:
    parser = connecting.new_parser(__doc__)
    parser.add_argument("--network", choices=sorted(NETWORKS), default="resnet18")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--loss", choices=("server", "local"), default="server",
                        help="where the loss is computed")
    parser.add_argument("--session", type=pathlib.Path, metavar="FILE",
                        help="train in a durable session and keep its id in the file")
    parser.add_argument("--plot", metavar="PNG", help="save the losses")
    parser.add_argument("--expect", type=float, metavar="LOSS",
                        help="largest mean loss of the last steps that passes")
    arguments = parser.parse_args()
    if arguments.session and not arguments.target:
        parser.error("--session needs --target, the address of a server with --state_dir")
    make, size = NETWORKS[arguments.network]
    torch.manual_seed(0)
    model = make()
    batches = generate(arguments.steps, arguments.batch, size)
    remote, local = Run("remote"), Run("PyTorch, here")
    settings: dict[str, Any] = dict(lr=0.05, momentum=0.9)
    with connecting.connect(arguments) as client, \
            network(client, model, arguments.session) as (net, first):
        optimizer = convgrad.torch.optim.SGD(net.parameters(), **settings, resume=first > 0)
        if arguments.loss == "server":
            train_ahead(remote, net, optimizer, batches, first)
        else:
            train(remote, net, optimizer, batches, first, net.save)
    if not remote.losses:
        print("no step was left to train")
        return 0
    train(local, model, torch.optim.SGD(model.parameters(), **settings), batches)
    print(remote, local, sep="\n")
    if arguments.plot:
        plot([remote, local], arguments.plot)
    expected = arguments.expect
    if expected is None:
        expected = TOLERANCE * local.last_loss()
    if remote.last_loss() > expected:
        print(f"found a loss of {remote.last_loss():.3f}, expected {expected:.3f} at most")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
