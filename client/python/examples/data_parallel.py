"""Trains with two processes on several servers. torch reduces the gradients. Each process
has its own client, which uses the servers in turn.

    python data_parallel.py localhost:7070 localhost:7071

If a server is killed and started again meanwhile, its calls go to the other servers, and the
weights have the same bits. The program prints their digest.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile

# See digits.py.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
import torch.distributed as dist
import torch.nn.functional as F
from digits import load, make_model
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import convgrad
import convgrad.torch

PROCESSES = 2
BATCH = 32  # of each process


def digest(model: nn.Module) -> str:
    weights = hashlib.sha256()
    for parameter in model.parameters():
        weights.update(parameter.detach().numpy().tobytes())
    return weights.hexdigest()


def train(rank: int, meeting: str, targets: list[str], steps: int) -> None:
    # Both compute identically, so one digest is enough.
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank,
                            world_size=PROCESSES)
    images, labels, test_images, test_labels = load()
    with convgrad.Client(targets) as client:
        model = make_model(seed=0)
        convgrad.torch.offload(model, client)
        parallel = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
        order = torch.Generator().manual_seed(0)
        for step in range(steps):
            batch = torch.randint(len(labels), (PROCESSES, BATCH), generator=order)[rank]
            optimizer.zero_grad()
            loss = F.cross_entropy(parallel(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            if rank == 0:
                print(f"step {step}: loss {loss.item():.4f}", flush=True)
        if rank == 0:
            with torch.no_grad():
                right = (model(test_images).argmax(1) == test_labels).float().mean()
            print(f"accuracy {right:.2%}")
            print(f"weights {digest(model)}")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("targets", nargs="+", help="the servers' addresses")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(
            train, (f"{folder}/meeting", arguments.targets, arguments.steps), PROCESSES)


if __name__ == "__main__":
    main()
