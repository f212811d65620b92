#!/usr/bin/env python3
"""Times the convolutions of networks by Winograd's algorithm, beside the library's direct ones.

    networks_layers.py [--build=build/release] [--networks=resnet18,...] [--batches=1,16]
                       [--threads=1,2] [--isas=AVX2,AVX512_CORE] [--repeats=5] [--each]

Both are plans of the CPU backend, which take turns in this run. A layer's time is the least
processor time of its steps, divided by the number of threads. Prints a Markdown table with a row
for each pass of the layers that Winograd's algorithm computes: how many there are, milliseconds
and GFLOP/s of all of them (by the direct algorithm's count of operations), the ratio of the sums,
and the geometric mean, least and greatest ratio of a layer. A row has the layouts of the weights,
to which their transformation belongs. With --each it prints each layer.
"""

import argparse
import itertools
import math
import pathlib
import re
import sys
import tempfile

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import network_step

STEP = re.compile(r" *\d+ (.{26}) +([\d.]+) ms +\S+ GFLOP/s +(\d+) MAC *(.*)")
PASSES = ("conv forward", "conv backward data", "conv backward weight")
HEAD = ("network", "batch", "threads", "ISA", "pass", "layers", "direct, ms", "fast, ms",
        "direct, GFLOP/s", "fast, GFLOP/s", "ratio", "geomean", "least", "greatest")


class Settings:
    """What network_step reads."""

    part = "train"

    def __init__(self, options, batch, threads, is_fast):
        self.build, self.size = options.build, options.size
        self.batch, self.threads, self.fast = batch, threads, is_fast


class Step:
    """A line of what network_step prints of its steps."""

    def __init__(self, match):
        self.kind, self.implementation = match[1].strip(), match[4]
        self.milliseconds, self.macs = float(match[2]), float(match[3])


def steps_of(plan):
    return [Step(match) for match in map(STEP.match, plan.ask("steps")) if match]


def layers_of(direct, fast, kind):
    """Yields (multiply-adds, direct ms, fast ms) of the convolutions that only the second plan
    computes by Winograd's algorithm, in one step or in several, which share the products."""
    rest = [step for step in fast if step.kind == kind and step.macs]
    for step in direct:
        if step.kind != kind or not step.macs:
            continue
        macs, milliseconds, is_ours = 0.0, 0.0, False
        while rest and macs < 0.999 * step.macs:
            macs += rest[0].macs
            milliseconds += rest[0].milliseconds
            is_ours = not rest.pop(0).implementation
        if is_ours and step.implementation:
            yield step.macs, step.milliseconds, milliseconds


def row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def report(title, kind, layers):
    """Prints the row of a pass."""
    macs, direct, fast = map(sum, zip(*layers, strict=True))
    ratios = [layer[2] / layer[1] for layer in layers]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    row(*title, kind.removeprefix("conv "), len(layers), f"{direct:.1f}", f"{fast:.1f}",
        f"{2 * macs / direct / 1e6:.0f}", f"{2 * macs / fast / 1e6:.0f}",
        *(f"{ratio:.2f}" for ratio in (fast / direct, mean, min(ratios), max(ratios))))


def measure(options, name, batch, threads, isa):
    """Prints the rows of a network."""
    with tempfile.TemporaryDirectory() as where:
        folder = pathlib.Path(where)
        kinds = [Settings(options, batch, threads, is_fast) for is_fast in (False, True)]
        _, x, target, program = network_step.prepare(kinds[0], name, folder)
        sizes = network_step.sizes_of(program, x, target)
        block = 8 if isa == "AVX2" else 16
        plans = [network_step.Ours(kind, folder, sizes, block, isa) for kind in kinds]
        for _ in range(options.repeats):
            for plan in plans:
                plan.ask("run")
        direct, fast = map(steps_of, plans)
        for plan in plans:
            plan.process.kill()
    title = (name, batch, threads, isa)
    for kind in PASSES:
        layers = list(layers_of(direct, fast, kind))
        if layers:
            report(title, kind, layers)
        for macs, before, after in layers if options.each else []:
            print(f"  {macs / 1e6:.0f} M products: {before:.3f} ms, {after:.3f} ms, "
                  f"{after / before:.2f}")
    weights = [sum(step.milliseconds for step in steps if step.kind == "weight layout")
               for steps in (direct, fast)]
    row(*title, "weights' layouts", "", *(f"{each:.1f}" for each in weights), *[""] * 6)


def words(text):
    return text.split(",")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--networks", type=words,
                        default=["resnet18", "resnet50", "vgg16_bn", "unet", "densenet121",
                                 "resnext50"])
    parser.add_argument("--batches", type=words, default=["1", "16"])
    parser.add_argument("--threads", type=words, default=["1", "2"])
    parser.add_argument("--isas", type=words, default=["AVX2", "AVX512_CORE"])
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--each", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    row(*HEAD)
    row(*["---"] * 5, *["--:"] * (len(HEAD) - 5))
    for name in options.networks:
        for batch, threads, isa in itertools.product(options.batches, options.threads,
                                                     options.isas):
            measure(options, name, int(batch), int(threads), isa)


if __name__ == "__main__":
    main()
