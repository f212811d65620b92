#!/usr/bin/env python3
"""Measures what snapshots cost a training step.

    cost.py [--model=resnet50] [--batch=16] [--size=224] [--rounds=6] [--seconds=20]
                    [--interval=1s]

Needs .cache/torch/bin/python; CONVGRAD_BUILD_DIR has the server. Two servers, one with
--state_dir, train the same model in turns of --seconds. Prints milliseconds a step of each,
their ratio, and what the server says of its snapshots.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import torchvision

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "client" / "python"))

from server_process import ServerProcess

import convgrad
import convgrad.torch


class Trainer:
    """Trains a model on a server of its own."""

    def __init__(self, arguments: argparse.Namespace, *flags: str) -> None:
        torch.manual_seed(0)
        self.server = ServerProcess("--metrics_listen=127.0.0.1:0", *flags)
        self._client = convgrad.Client(self.server.address)
        self.net = convgrad.torch.remote(
            getattr(torchvision.models, arguments.model)(), self._client, durable=bool(flags))
        self._optimizer = convgrad.torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self._batch = (torch.randn(arguments.batch, 3, arguments.size, arguments.size),
                       torch.randint(1000, (arguments.batch,)))

    def step(self) -> None:
        self.net.train_step(*self._batch, optimizer=self._optimizer)

    def turn(self, seconds: float) -> float:
        """Trains for about `seconds`, and returns the milliseconds of a step."""
        begin, steps = time.monotonic(), 0
        while time.monotonic() - begin < seconds:
            self.step()
            steps += 1
        return 1e3 * (time.monotonic() - begin) / steps

    def end(self) -> None:
        self.net.close()
        self._client.close()
        self.server.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--interval", default="1s", help="of the server's snapshots")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain = Trainer(arguments)
        durable = Trainer(arguments, f"--state_dir={folder}/state",
                          f"--snapshot_interval={arguments.interval}")
        for trainer in (plain, durable):
            trainer.step()
        turns = [(plain.turn(arguments.seconds), durable.turn(arguments.seconds))
                 for _ in range(arguments.rounds)]
        written = durable.server.metric('convgrad_snapshots_total{outcome="written"}')
        seconds = durable.server.metric("convgrad_snapshot_seconds_total")
        gigabytes = durable.server.metric("convgrad_snapshot_bytes_total") / 1e9
        for trainer in (plain, durable):
            trainer.end()
    ratio = statistics.median(two / one for one, two in turns)
    print("| model | ms a step | durable | ratio | snapshots | GB | GB/s |\n"
          "|---|--:|--:|--:|--:|--:|--:|\n"
          f"| {arguments.model}, batch {arguments.batch}, {arguments.size} | "
          f"{statistics.median(one for one, _ in turns):.0f} | "
          f"{statistics.median(two for _, two in turns):.0f} | {ratio:.3f} | {written:.0f} | "
          f"{gigabytes:.2f} | {gigabytes / max(seconds, 1e-9):.2f} |")


if __name__ == "__main__":
    main()
