#!/usr/bin/env python3
"""Compares training steps of `remote(model)` without an address with PyTorch's here.

    networks_local.py [--networks=resnet18,...] [--batch=16] [--size=224] [--loaders=2]

The setup is that of a user who installed `convgrad[server]` and configured nothing: the server
is a child process that convgrad starts, tensors pass through shared memory, and no environment
variable is set. All runners take turns in each round: ours one step at a time, and with steps
submitted ahead; PyTorch eager in channels first and last; torch.compile (inductor) likewise.
With --loaders each step takes its images from a DataLoader with that many worker processes,
which crop, resize and normalize pictures. Prints a Markdown table: the least milliseconds per
step, and ours divided by the best of eager and of torch.compile, with geometric means.
"""

import argparse
import statistics
import time

import torch
from networks_models import CLASSES, NETWORKS, SEGMENTERS, data, make
from torch.nn import functional as F

import convgrad.torch

LAYOUTS = {"first": torch.contiguous_format, "last": torch.channels_last}
EAGER = ("eager-first", "eager-last")
COMPILED = ("compiled-first", "compiled-last")


class Pictures(torch.utils.data.Dataset):
    """Pictures of 256 x 256 that each access crops, resizes and normalizes."""

    def __init__(self, size, has_maps):
        self._size = size
        self._has_maps = has_maps
        self._pictures = torch.randint(256, (64, 3, 256, 256), dtype=torch.uint8)

    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        top = index % 24
        crop = self._pictures[index % 64, :, top:top + 224, top:top + 224].float()[None]
        image = F.interpolate(crop, (self._size, self._size), mode="bilinear")[0]
        label = torch.randint(CLASSES, (self._size, self._size) if self._has_maps else ())
        return (image / 255 - 0.5) / 0.25, label


class InProcess:
    """A model that PyTorch trains in this process."""

    def __init__(self, name, layout, is_compiled):
        self._layout = LAYOUTS[layout]
        model = make(name).to(memory_format=self._layout)
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        self._run = torch.compile(model) if is_compiled else model

    def train(self, batches):
        for images, labels in batches:
            self._optimizer.zero_grad()
            logits = self._run(images.contiguous(memory_format=self._layout))
            loss = F.cross_entropy(logits, labels)
            loss.backward()
            self._optimizer.step()
            loss.item()


class Ours:
    """The model on the server that `remote` starts beside this process."""

    def __init__(self, name, is_ahead):
        self._net = convgrad.torch.remote(make(name))
        self._optimizer = convgrad.torch.optim.SGD(self._net.parameters(), lr=0.01,
                                                   momentum=0.9)
        self._is_ahead = is_ahead

    def train(self, batches):
        if not self._is_ahead:
            for images, labels in batches:
                self._net.train_step(images, labels, optimizer=self._optimizer)
            return
        losses = [self._net.submit_train_step(*batch, optimizer=self._optimizer)
                  for batch in batches]
        for loss in losses:
            loss.result()


def batches_of(name, batch, size, loaders):
    """Yields batches of a network endlessly."""
    if not loaders:
        fixed = data(name, batch, size)
        while True:
            yield fixed
    pictures = Pictures(size, name in SEGMENTERS)
    yield from torch.utils.data.DataLoader(pictures, batch, num_workers=loaders)


def measure(runners, batches, rounds, steps):
    """Returns the least milliseconds per step of each runner."""
    least = dict.fromkeys(runners, float("inf"))
    for runner in runners.values():
        runner.train([next(batches) for _ in range(2)])
    for _ in range(rounds):
        for kind, runner in runners.items():
            start = time.perf_counter()
            runner.train(next(batches) for _ in range(steps))
            least[kind] = min(least[kind], (time.perf_counter() - start) / steps * 1000)
    return least


def words(text):
    return text.split(",")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=words,
                        default=["resnet18", "resnet50", "mobilenet_v2", "unet"])
    parser.add_argument("--batch", type=int, help="default: the network's own")
    parser.add_argument("--size", type=int, help="of images; default: the network's own")
    parser.add_argument("--loaders", type=int, default=0, help="processes of a DataLoader")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="in each round")
    options = parser.parse_args()
    kinds = EAGER + (() if options.no_compile else COMPILED)
    print(f"| network | batch | image | ours, ms | ahead | {' | '.join(kinds)} "
          "| ours / eager | ours / best |\n" + "|---|" + "--:|" * (6 + len(kinds)))
    over = {"eager": [], "best": []}
    for name in options.networks:
        batch, size = NETWORKS[name][1]
        batch, size = options.batch or batch, options.size or size
        runners = {"ours": Ours(name, False), "ahead": Ours(name, True)}
        for kind in kinds:
            how, layout = kind.split("-")
            runners[kind] = InProcess(name, layout, how == "compiled")
        times = measure(runners, batches_of(name, batch, size, options.loaders),
                        options.rounds, options.steps)
        ours = min(times["ours"], times["ahead"])
        over["eager"].append(ours / min(times[kind] for kind in EAGER))
        over["best"].append(ours / min(times[kind] for kind in kinds))
        print(f"| {name} | {batch} | {size} | "
              + " | ".join(f"{value:.1f}" for value in times.values())
              + f" | {over['eager'][-1]:.2f} | {over['best'][-1]:.2f} |", flush=True)
    print("geomean over eager's best "
          f"{statistics.geometric_mean(over['eager']):.3f}, over the best of all "
          f"{statistics.geometric_mean(over['best']):.3f}")


if __name__ == "__main__":
    main()
