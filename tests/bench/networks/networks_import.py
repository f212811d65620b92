#!/usr/bin/env python3
"""Counts the published networks that remote() accepts: torchvision's, or some of timm's.

    networks_import.py [--timm=SEED] [--count=100] [--names=resnet18,...] [--each]

--timm draws models by the seed. Imports each model in train and in eval mode, without weights
and without a server. Prints the number of models accepted in both modes and, for each reason,
the numbers of models refused for it, and refused only for it. --each prints the refused models
with their reasons.
"""

import argparse
import collections
import inspect
import random
import re
import time

import torch

from convgrad.errors import ConvgradError
from convgrad.torch.networks.forwards.exporting import shapes_of
from convgrad.torch.networks.importing import import_model
from convgrad.torch.networks.refusals import refusals_of
from convgrad.torch.networks.tracing import check_model

LEFT_OUT = ("torchvision.models.quantization", "torchvision.models.detection",
            "torchvision.models.optical_flow")


def of_torchvision():
    """Yields names, and functions that make the model and an input."""
    import torchvision.models

    for name in torchvision.models.list_models():
        builder = torchvision.models.get_model_builder(name)
        if builder.__module__.startswith(LEFT_OUT):
            continue
        keywords = {"weights_backbone": None} if ".segmentation" in builder.__module__ else {}
        if name in ("googlenet", "inception_v3"):
            keywords["init_weights"] = False
        size = 299 if name == "inception_v3" else 224
        shape = (2, 3, 16, size, size) if ".video" in builder.__module__ else (
            2, 3, size, size)
        yield name, lambda b=builder, k=keywords, s=shape: (
            b(weights=None, **k), torch.empty(s, device="meta"))


def of_timm(seed, count):
    import timm

    def make(name):
        model = timm.create_model(name, pretrained=False)
        return model, torch.empty((2, *model.default_cfg["input_size"]), device="meta")

    names = sorted(timm.list_models())
    for name in sorted(random.Random(seed).sample(names, count)):
        yield name, lambda name=name: make(name)


def without_values(make):
    try:
        with torch.device("meta"):
            return make()
    except NotImplementedError:  # the constructor reads values
        return make()


def reasons(model, x):
    """Returns the reasons why the model is refused in its mode; none if it is accepted."""
    try:
        check_model(model)
        argument = next(iter(inspect.signature(model.forward).parameters))
        import_model(model, shapes_of({argument: x}), {})
    except ConvgradError as error:
        return {re.split(r" of \(|, ", it.found)[0] for it in refusals_of(error)}
    return set()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timm", type=int)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--names", default="")
    parser.add_argument("--each", action="store_true")
    options = parser.parse_args()
    models = (of_torchvision() if options.timm is None else
              of_timm(options.timm, options.count))
    wanted = options.names.split(",") if options.names else None
    taken, refused, seconds = [], {}, []
    for name, make in models:
        if wanted and name not in wanted:
            continue
        model, x = without_values(make)
        found = set()
        for is_training in (True, False):
            began = time.perf_counter()
            found |= reasons(model.train(is_training), x)
            seconds.append(time.perf_counter() - began)
        if found:
            refused[name] = found
        else:
            taken.append(name)
        if options.each:
            print(f"{name}: {'; '.join(sorted(found)) or 'taken'}", flush=True)
    print(f"taken {len(taken)} of {len(taken) + len(refused)}: {', '.join(taken)}")
    print(f"seconds of an import: median {sorted(seconds)[len(seconds) // 2]:.1f}, "
          f"most {max(seconds):.1f}")
    counts = collections.Counter(reason for found in refused.values() for reason in found)
    alone = collections.Counter(
        reason for found in refused.values() if len(found) == 1 for reason in found)
    for reason, count in counts.most_common():
        print(f"{count:4} models, {alone[reason]:3} for it alone: {reason}")


if __name__ == "__main__":
    main()
