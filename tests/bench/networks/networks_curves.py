"""Compares the loss curves of a network on the server and in PyTorch's four settings."""

import pathlib
import statistics
import sys

import torch
from networks_models import make
from networks_server import server
from torch.nn import functional as F

import convgrad
import convgrad.torch

STEPS = 200
LAST = 20  # steps whose mean loss is compared
RATE = {"digits": 0.05, "resnet18": 0.003}


def digits():
    """Returns the model of client/python/examples/digits.py, and 200 batches of digits."""
    sys.path.append(str(pathlib.Path(__file__).parents[3] / "client/python/examples"))
    from digits import load, make_model
    images, labels = load()[:2]
    generator = torch.Generator().manual_seed(3)
    picks = [torch.randint(len(labels), (64,), generator=generator) for _ in range(STEPS)]
    return make_model(1), [(images[pick], labels[pick]) for pick in picks]


def resnet18():
    """Returns the model, and 200 batches of 8 generated images: the pattern of the class, with
    noise."""
    generator = torch.Generator().manual_seed(3)
    patterns = torch.randn(10, 3, 64, 64, generator=generator)
    batches = []
    for _ in range(STEPS):
        labels = torch.randint(10, (8,), generator=generator)
        noise = torch.randn(8, 3, 64, 64, generator=generator)
        batches.append((patterns[labels] * 0.2 + noise, labels))
    return make("resnet18"), batches


TASKS = {"digits": digits, "resnet18": resnet18}


def losses_in_torch(task, threads, layout):
    torch.set_num_threads(threads)
    model, batches = TASKS[task]()
    model = model.to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE[task], momentum=0.9)
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images.contiguous(memory_format=layout)), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def losses_on_server(task, client, fast):
    model, batches = TASKS[task]()
    with convgrad.torch.remote(model, client, fast=fast) as net:
        optimizer = convgrad.torch.optim.SGD(net.parameters(), lr=RATE[task], momentum=0.9)
        losses = []
        for images, labels in batches:
            optimizer.zero_grad()
            losses.append(net.submit_forward_backward(images, labels))
            optimizer.step()
        return [loss.result() for loss in losses]


def judge(task, theirs, ours):
    """Prints the mean of the last losses, and whether it is within the bound of
    proto/correctness.md, "Networks"."""
    means = [statistics.fmean(series[-LAST:]) for series in theirs.values()]
    for setting, mean in zip(theirs, means):
        print(f"{task}: PyTorch, {setting}: mean of the last {LAST} losses {mean:.6f}")
    center = statistics.fmean(means)
    bound = max(3 * statistics.stdev(means), 0.01 * center)
    own = statistics.fmean(ours[-LAST:])
    is_within = abs(own - center) <= bound
    print(f"{task}: on the server {own:.6f}; PyTorch's mean {center:.6f} +- {bound:.6f}: "
          f"{'within' if is_within else 'OUTSIDE'}", flush=True)
    return is_within


def plot(task, theirs, ours, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(9, 5))
    for setting, series in theirs.items():
        axes.plot(series, label=f"PyTorch, {setting}", linewidth=3, alpha=0.4)
    axes.plot(ours, label="on the server", color="black", linewidth=1)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.set_title(f"{task}, f32")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def curves(options):
    """Writes FOLDER/curves-TASK.png for each task; exits with 1 if one is out of bounds."""
    folder = pathlib.Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    layouts = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}
    results = []
    for task in options.networks or TASKS:
        theirs = {f"{threads} threads, {name}": losses_in_torch(task, threads, layout)
                  for threads in (1, 2) for name, layout in layouts.items()}
        with server(options.build, options.threads) as (_, target, _), \
                convgrad.Client(target, timeout=600) as client:
            ours = losses_on_server(task, client, options.fast)
        results.append(judge(task, theirs, ours))
        plot(task, theirs, ours, folder / f"curves-{task}.png")
    if not all(results):
        raise SystemExit(1)
