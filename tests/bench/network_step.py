#!/usr/bin/env python3
"""Times training steps of networks on the CPU backend, alternating with PyTorch here.

    network_step.py --build=build/release [--networks=resnet18,resnet50] [--batch=16]
                    [--size=224] [--threads=2] [--repeats=7] [--blocks=16] [--compile]

For each network it prints the minima and medians of both in milliseconds, the minima of
processor time divided by the number of threads (the only valid measure on a busy machine),
their ratios, and the least processor time of each kind of our steps. With --check it also
prints the errors of our gradients against PyTorch's, both in f32.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch

sys.path.append(str(pathlib.Path(__file__).parent / "networks"))
from networks_models import data, make  # noqa: E402

from convgrad.torch.networks.forwards.exporting import shapes_of
from convgrad.torch.networks.importing import Loss, import_model


class Ours:
    """Runs the C++ program, which makes one step for each line that it reads."""

    def __init__(self, options, folder, inputs, block, isa="ALL"):
        self.process = subprocess.Popen(
            [f"{options.build}/tests/bench/network_step", f"--program={folder}/program",
             f"--data={folder}", f"--threads={options.threads}", f"--block={block}",
             f"--part={options.part}", *(["--fast"] if options.fast else []),
             "--input=" + ",".join(inputs)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={"OMP_PROC_BIND": "true", "OMP_WAIT_POLICY": "passive",
                 "ONEDNN_MAX_CPU_ISA": isa})
        self.about = self.read()[0]

    def read(self):
        lines = []
        while (line := self.process.stdout.readline().rstrip("\n")) != ".":
            if not line and self.process.poll() is not None:
                sys.exit("network_step ended")
            lines.append(line)
        return lines

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.read()


class Torch:
    """Runs PyTorch's training step, or its forward."""

    def __init__(self, options, model, x, target, name):
        self.part = options.part
        self.model = model
        if name.endswith("last"):
            self.model, x = model.to(memory_format=torch.channels_last), x.to(
                memory_format=torch.channels_last)
        if name.startswith("compile"):
            self.model = torch.compile(self.model)
        self.x, self.target = x, target

    def run(self):
        start, cpu = time.perf_counter(), time.process_time()
        if self.part == "train":
            for parameter in self.model.parameters():
                parameter.grad = None
            torch.nn.functional.cross_entropy(self.model(self.x), self.target).backward()
        else:
            with torch.inference_mode():
                self.model(self.x)
        return ((time.perf_counter() - start) * 1000,
                (time.process_time() - cpu) * 1000 / torch.get_num_threads())


def prepare(options, name, folder):
    """Returns the model, its inputs and their names; writes all of them to `folder`."""
    model = make(name).train(options.part == "train")
    x, target = data(name, options.batch, options.size)
    loss = Loss("cross_entropy", is_index=True) if options.part == "train" else None
    imported = import_model(model, shapes_of({"x": x}), {}, loss)
    (folder / "program").write_text(str(imported.program))
    program = imported.program.message
    values = dict(model.state_dict())
    operands = {"target": target}
    entries = [*program.inputs, *program.parameters]
    # The seed and the count of runs; only a dropout reads them.
    torch.zeros(2, dtype=torch.int64).numpy().tofile(folder / f"operand_{len(entries)}")
    for i, entry in enumerate(entries):
        tensor = operands.get(entry.name, values.get(entry.name, x))
        tensor.detach().contiguous().numpy().tofile(folder / f"operand_{i}")
    return model, x, target, program


def sizes_of(program, x, target):
    """Returns the dims of the program's inputs."""
    return ["x".join(map(str, (target if entry.name == "target" else x).shape))
            for entry in program.inputs]


def check(options, folder, model, program):
    """Prints the worst and the mean relative error of our gradients against PyTorch's."""
    import numpy as np
    fixed = [p for p in program.parameters if p.fixed]
    trained = [p.name for p in program.parameters if not p.fixed]
    first = len(program.outputs) + len(fixed)
    print("  loss", np.fromfile(folder / "result_0", np.float32)[:4])
    errors = []
    gradients = dict(model.named_parameters())
    for i, name in enumerate(trained):
        expected = gradients[name].grad.double().flatten()
        found = torch.from_numpy(
            np.fromfile(folder / f"result_{first + i}", np.float32)).double()
        scale = expected.norm()
        errors.append(((found - expected).norm() / scale if scale else 0, name))
    errors.sort()
    print("  relative errors of gradients: median %.2e, worst %.2e (%s)" %
          (errors[len(errors) // 2][0], *errors[-1]))


def measure(options, name):
    with tempfile.TemporaryDirectory() as where:
        folder = pathlib.Path(where)
        model, x, target, program = prepare(options, name, folder)
        inputs = sizes_of(program, x, target)
        ours = {f"block {block}": Ours(options, folder, inputs, block)
                for block in options.blocks.split(",")}
        import copy
        theirs = {kind: Torch(options, copy.deepcopy(model), x, target, kind)
                  for kind in options.torch.split(",") if kind}
        times = {}
        for repeat in range(options.repeats + 1):
            for kind, subject in theirs.items():
                milliseconds = subject.run()
                if repeat:
                    times.setdefault(kind, []).append(milliseconds)
            for kind, subject in ours.items():
                milliseconds = tuple(map(float, subject.ask("run")[-1].split()))
                if repeat:
                    times.setdefault(kind, []).append(milliseconds)
        best = [min((min(t[i] for t in times[kind]) for kind in theirs), default=1)
                for i in (0, 1)]
        print(f"{name} {options.part} batch {options.batch} {options.size}x{options.size}")
        for kind, found in times.items():
            wall, cpu = zip(*found)
            print("  %-14s min %7.1f median %7.1f ratio %.3f; cpu min %7.1f ratio %.3f" %
                  (kind, min(wall), statistics.median(wall), min(wall) / best[0],
                   min(cpu), min(cpu) / best[1]))
        for kind, subject in ours.items():
            print(f"  {kind}: {subject.about}")
            print("\n".join("    " + line for line in subject.ask("kinds")))
            if options.check:
                subject.ask("write")
                model.zero_grad()
                Torch(options, model, x, target, "eager").run()
                check(options, folder, model, program)
            if options.each:
                print("\n".join(subject.ask("steps")))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--networks", default="resnet18,resnet50")
    parser.add_argument("--part", default="train")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--torch", default="eager,eager last")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--blocks", default="16")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--each", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.networks.split(","):
        measure(options, name)


if __name__ == "__main__":
    main()
