#!/usr/bin/env python3
"""Compares whole networks on a server with the same networks in PyTorch and elsewhere.

    networks.py speed    [--networks=resnet18,...] [--dtypes=f32,bf16] [--runners=ours,...]
    networks.py idle     [--networks=resnet18] [--dtypes=f32]
    networks.py curves   [--networks=digits,resnet18] [--out=build/bench]
    networks.py accuracy [--networks=resnet18,...] [--dtypes=f32]

Each command starts a server on this machine (--build) and calls it over TCP.

`speed` runs all runners in turn in each round. Training runners are: the server, with steps
submitted ahead and the loss computed there; PyTorch in this process, eager and compiled,
channels first and last; a Ray actor and a torch RPC worker that hold PyTorch's model. Then it
measures inference, also with ONNX Runtime and OpenVINO. It prints Markdown tables:
milliseconds per step, minimum and median of the rounds; ours divided by the others' best, with
geometric means; bytes of a step, counted by the server; peaks of resident memory, each in a
process that only trains.

`idle` sends training steps ten ahead, and prints the share of the time in which the server's
worker computes nothing.

`curves` trains 200 steps on the server and in PyTorch's four settings (1 and 2 threads,
channels first and last). It plots the losses, and compares the mean of the last 20 with the
spread of PyTorch's.

`accuracy` compares outputs, input gradients and each parameter's gradient with float64. It
prints each error divided by the worst of PyTorch's in these four settings. It omits gradients
that are zero in theory, such as that of a bias before a batch_norm.

Needs PyTorch and torchvision (`deploy/dependencies test`); `deploy/dependencies peers`
installs the other runners for PYTHONPATH=.cache/peers.
"""

import argparse

# Imported first, because it sets how threads wait before PyTorch is loaded.
import networks_runners  # noqa: F401  isort: skip
from networks_accuracy import accuracy
from networks_curves import curves
from networks_idle import idle
from networks_models import NETWORKS
from networks_speed import RUNNERS, speed

COMMANDS = {"speed": speed, "idle": idle, "curves": curves, "accuracy": accuracy}


def words(text):
    return text.split(",")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--networks", type=words, help="default: the command's own")
    parser.add_argument("--dtypes", type=words, default=["f32"], help="of f32 and bf16")
    parser.add_argument("--runners", type=words, default=RUNNERS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fast", action=argparse.BooleanOptionalAction, default=True,
                        help="remote(fast=...)")
    parser.add_argument("--batch", type=int, help="default: the network's own")
    parser.add_argument("--size", type=int, help="of images; default: the network's own")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="in each round")
    parser.add_argument("--out", default="build/bench", help="folder of the plots")
    options = parser.parse_args()
    for name in options.networks or ():
        if options.command != "curves" and name not in NETWORKS:
            parser.error(f"--networks: found {name}, expected {', '.join(NETWORKS)}")
    COMMANDS[options.command](options)


if __name__ == "__main__":
    main()
