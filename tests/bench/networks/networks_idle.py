"""Measures the share of the time in which the server is idle while steps are sent ahead."""

import collections
import contextlib
import time

import torch
from networks_models import NETWORKS, data
from networks_runners import OnServer
from networks_server import counted, server

import convgrad

AHEAD = 10  # steps


def idle(options):
    """Prints the share of the wall time in which the server's single worker computes nothing,
    from the end of the first steps until the last one is sent."""
    torch.set_num_threads(options.threads)
    for name in options.networks or ("resnet18",):
        batch, size = NETWORKS[name][1]
        images, labels = data(name, options.batch or batch, options.size or size)
        for dtype in options.dtypes:
            with server(options.build, options.threads) as (_, target, port), \
                    convgrad.Client(target, timeout=600) as client, \
                    contextlib.closing(OnServer(name, dtype, client)) as runner:
                runner.train(images, labels, 2)
                print(f"{name} {dtype}: {measured(runner, port, images, labels, options)}",
                      flush=True)


def measured(runner, port, images, labels, options):
    """Returns, as text, the shares of the time between two scrapes of the metrics, at both of
    which AHEAD steps are in flight."""
    families = ("convgrad_compute_seconds_sum", "convgrad_reorder_seconds_sum",
                "convgrad_network_step_seconds_total")
    steps = options.rounds * options.steps
    futures = collections.deque(runner.submit(images, labels) for _ in range(AHEAD))
    futures.popleft().result()
    before, start = [counted(port, family) for family in families], time.perf_counter()
    for _ in range(steps):
        futures.append(runner.submit(images, labels))
        futures.popleft().result()
    after, end = [counted(port, family) for family in families], time.perf_counter()
    for future in futures:
        future.result()
    compute, reorder, within = ((b - a) / (end - start) for a, b in zip(before, after))
    return (f"{steps} steps, {(end - start) / steps * 1000:.1f} ms each; the worker is idle "
            f"{1 - compute - reorder:.2%} of the time (at most 2 %), computes {compute:.2%}, "
            f"{within:.2%} in steps that are counted by kind")
