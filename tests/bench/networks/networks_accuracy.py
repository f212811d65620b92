"""Compares the errors of gradients on the server with PyTorch's errors, against float64."""

import math
import statistics

import torch
from networks_models import NETWORKS, data, make
from networks_runners import DTYPES, LAYOUTS
from networks_server import server
from torch.nn import functional as F

import convgrad
import convgrad.torch


def gradients(model, images, labels):
    """Returns outputs and gradients by name, in float64."""
    images = images.detach().clone().requires_grad_()
    outputs = model(images)
    F.cross_entropy(outputs.double(), labels).backward()
    found = {"outputs": outputs, "inputs": images.grad}
    if isinstance(model, convgrad.torch.RemoteNetwork):
        found |= model.gradients()
    else:
        found |= {name: parameter.grad for name, parameter in model.named_parameters()}
    return {name: tensor.detach().double() for name, tensor in found.items()}


def error(found, true):
    return {name: float((found[name] - tensor).norm() / (tensor.norm() + 1e-300))
            for name, tensor in true.items()}


def torchs_worst(name, dtype, images, labels, true):
    """Returns the largest error of PyTorch's four settings, by tensor."""
    worst = dict.fromkeys(true, 0.0)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for layout in LAYOUTS.values():
            model = make(name).to(memory_format=layout)
            with torch.autocast("cpu", torch.bfloat16, dtype == "bf16"):
                theirs = error(gradients(model, images, labels), true)
            worst = {key: max(worst[key], theirs[key]) for key in worst}
    return worst


def geomean(ratios):
    return math.exp(statistics.fmean(math.log(max(ratio, 1e-3)) for ratio in ratios))


def compare(name, dtype, client, fast):
    """Prints and returns the error ratios of a network's tensors."""
    images, labels = data(name, *NETWORKS[name][2])
    true = gradients(make(name).double(), images.double(), labels)
    largest = max(float(tensor.abs().max()) for tensor in true.values())
    true = {key: tensor for key, tensor in true.items()
            if float(tensor.abs().max()) > 1e-10 * largest}
    worst = torchs_worst(name, dtype, images, labels, true)
    with convgrad.torch.remote(make(name), client, dtype=DTYPES[dtype],
                               fast=fast) as net:
        ours = error(gradients(net, images, labels), true)
    own = {key: ours[key] / worst[key] for key in worst if worst[key] > 0}
    far = max(own, key=own.get)
    print(f"{name:13} {dtype} {len(own):4} tensors: geomean {geomean(own.values()):.2f}, worst "
          f"{own[far]:.2f} ({far}); median error {statistics.median(ours.values()):.1e}, "
          f"PyTorch's worst setting {statistics.median(worst.values()):.1e}", flush=True)
    return list(own.values())


def accuracy(options):
    """Prints each network's errors divided by PyTorch's, and a summary of all."""
    with server(options.build, options.threads) as (_, target, _), \
            convgrad.Client(target, timeout=600) as client:
        for dtype in options.dtypes:
            ratios = [ratio for name in options.networks or NETWORKS
                      for ratio in compare(name, dtype, client, options.fast)]
            print(f"all in {dtype}: geomean {geomean(ratios):.3f} (at most 1.25), worst "
                  f"{max(ratios):.2f} (at most 4)")
