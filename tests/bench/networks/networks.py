#!/usr/bin/env python3
"""Whole networks on a server beside the same networks in PyTorch and elsewhere.

    networks.py speed    [--networks=resnet18,...] [--dtypes=f32,bf16] [--runners=ours,...]
    networks.py idle     [--networks=resnet18] [--dtypes=f32]
    networks.py curves   [--networks=digits,resnet18] [--out=build/bench]
    networks.py accuracy [--networks=resnet18,...] [--dtypes=f32]

Each starts a server on this machine (--build), reached over TCP.

`speed` has all runners take turns in each round: training steps on the server, submitted
ahead with the loss there; PyTorch's in this process, eager and compiled, channels first and
last; a Ray actor and a torch RPC worker that hold PyTorch's model. Then inference, with ONNX
Runtime and OpenVINO besides. Markdown tables: milliseconds a step, minimum and median of the
rounds; ours over the others' best with geomeans; bytes of a step as the server counted them;
peaks of resident memory, each in a process that only trains.

`idle` sends training steps ten ahead, and prints what share of the time the server's
worker computes nothing.

`curves` trains 200 steps on the server and in PyTorch's four settings (1 and 2 threads,
channels first and last), plots the losses, and holds the mean of the last 20 against the
spread of PyTorch's.

`accuracy` holds outputs, input gradients and each parameter's gradient against float64, and
tells each error over the worst of PyTorch's in those four settings. Gradients that are zero
in theory, of a bias before a batch_norm, are left out.

Needs PyTorch and torchvision (`deploy/dependencies test`); `deploy/dependencies peers`
installs the other runners for PYTHONPATH=.cache/peers.
"""

import argparse

# First: it sets how threads wait before PyTorch is loaded.
import networks_runners  # noqa: F401  isort: skip
from networks_accuracy import accuracy
from networks_curves import curves
from networks_idle import idle
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
    parser.add_argument("--batch", type=int, help="default: the network's own")
    parser.add_argument("--size", type=int, help="of images; default: the network's own")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="in each round")
    parser.add_argument("--out", default="build/bench", help="folder of the plots")
    COMMANDS[(options := parser.parse_args()).command](options)


if __name__ == "__main__":
    main()
