#!/usr/bin/env python3
"""Times the loop of a labelling tool: one thread trains a U-Net, another one predicts every
EVERY steps. On a server, the predictor is attached to the session. In PyTorch, it uses a copy
of the model that the trainer makes between two steps. Prints the seconds of the best repeat
for all steps, and the waits."""
import argparse
import contextlib
import copy
import multiprocessing
import pathlib
import queue
import statistics
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from timeit import default_timer, timeit

import torch
import torch.nn.functional as F
from networks_server import server

import convgrad.torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "client" / "python" / "examples"))
from segment_shapes import UNet  # noqa: E402

EVERY = 10  # steps

@contextlib.contextmanager
def on_server(options, images):
    with server(options.build, options.threads) as (_, target, _), \
            convgrad.Client(target, timeout=600) as client, \
            convgrad.torch.remote(UNet(), client) as net:
        net.prepare(images)
        optimizer = convgrad.torch.optim.Adam(net.parameters(), lr=3e-3)
        predictor = convgrad.torch.remote(UNet(), client.attach(net.session.id))
        yield (lambda labels: net.train_step(images, labels, optimizer=optimizer),
               lambda: predictor(images))


@contextlib.contextmanager
def in_torch(options, images):
    model, asked, given = UNet(), queue.Queue(), queue.Queue()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def step(labels):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if not asked.empty():
            given.put(copy.deepcopy(model).eval().requires_grad_(asked.get()))

    def predict():
        asked.put(False)
        given.get()(images)
    yield step, predict


def measured(options, subject):
    """Returns the seconds for all steps, and the wait for each prediction."""
    torch.set_num_threads(options.threads)
    images = torch.randn(5, 3, options.size, options.size)
    labels = torch.randint(-300, 3, images[:, 0].shape).clamp(-1)
    labels[labels < 0] = -100  # most pixels have no label
    due, over, waits = queue.Queue(), threading.Event(), []

    def train(step):
        while not over.is_set():
            for _ in range(EVERY):
                step(labels)
            due.put(default_timer())
    with subject(options, images) as (step, predict):
        step(labels)
        began = default_timer()
        (trainer := threading.Thread(target=train, args=(step,))).start()
        for _ in range(options.steps // EVERY):
            done = due.get()
            waits.append(timeit(predict, number=1))
        over.set()
        trainer.join()
    return done - began, waits


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("build", "build/release"), ("steps", 100), ("size", 128),
                          ("threads", 2), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=type(default), default=default)
    options, runs = parser.parse_args(), []
    for subject in options.repeats * (on_server, in_torch):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            runs.append((subject, *process.submit(measured, options, subject).result()))
    for subject in on_server, in_torch:
        seconds = min(one[1] for one in runs if one[0] is subject)
        waits = [1e3 * wait for one in runs if one[0] is subject for wait in one[2]]
        print(f"{subject.__name__}: {options.steps} steps in {seconds:.2f} s, a prediction in "
              f"{statistics.median(waits):.0f} ms (median), {max(waits):.0f} ms (worst)")


if __name__ == "__main__":
    main()
