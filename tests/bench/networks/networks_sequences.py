#!/usr/bin/env python3
"""Times convolutions of sequences (1-D) in networks, beside PyTorch's here, in f32.

    networks_sequences.py [--build=build/release] [--layers=ecg,...] [--rounds=3]

Each layer stands behind a 1x1 convolution, so that its input has a gradient, and before a mean
over the sequence. Prints a Markdown table: the least milliseconds of a forward and of a training
step of the three, PyTorch's over ours, and what computes the layer's forward.
"""

import argparse
import pathlib
import sys
import tempfile
import time

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import network_step

from convgrad.torch.networks.forwards.exporting import shapes_of
from convgrad.torch.networks.importing import Loss, import_model

# Batch, input channels, output channels, length, kernel, and Conv1d's other arguments.
LAYERS = {
    "AtacWorks": (4, 15, 15, 20000, 51, {"dilation": 8, "padding": 200}),
    "Basenji": (2, 288, 288, 4096, 5, {"padding": 2}),
    "Conformer": (8, 256, 256, 1000, 31, {"groups": 256, "padding": 15}),
    "Conv-TasNet": (4, 512, 512, 3000, 3, {"groups": 512, "dilation": 128, "padding": 128}),
    "Demucs": (4, 64, 128, 10000, 8, {"stride": 4}),
    "ECG": (32, 64, 64, 2048, 17, {"padding": 8}),
    "ECG strided": (32, 128, 128, 512, 7, {"stride": 2, "padding": 3}),
    "Enformer": (1, 768, 768, 1536, 5, {"padding": 2}),
    "TCN": (16, 150, 150, 1000, 3, {"dilation": 16, "padding": 16}),
    "wav2vec 2.0": (4, 512, 512, 3200, 3, {"stride": 2}),
    "WaveNet": (4, 64, 128, 16000, 2, {"dilation": 64}),
}


class Layer(nn.Module):
    def __init__(self, name):
        super().__init__()
        _, channels, outputs, _, kernel, keywords = LAYERS[name]
        self.before = nn.Conv1d(channels, channels, 1)
        self.layer = nn.Conv1d(channels, outputs, kernel, **keywords)

    def forward(self, x):
        return self.layer(self.before(x)).mean(-1)


class Settings:
    """What network_step.Ours reads."""

    def __init__(self, build, part):
        self.build, self.part, self.threads, self.fast = build, part, 2, True


def write(model, x, target, part, folder):
    """Writes the program and its operands. Returns the sizes of the inputs."""
    loss = Loss("cross_entropy", is_index=True) if part == "train" else None
    program = import_model(model, shapes_of({"x": x}), {}, loss).program
    (folder / "program").write_text(str(program))
    values = {"target": target, **model.state_dict()}
    for i, entry in enumerate([*program.message.inputs, *program.message.parameters]):
        values.get(entry.name, x).detach().numpy().tofile(folder / f"operand_{i}")
    return ["x".join(map(str, values.get(entry.name, x).shape))
            for entry in program.message.inputs]


def implementation(steps):
    """Returns what computes the last forward of a convolution."""
    words = [line.split() for line in steps if " conv forward " in line]
    last = [line for line in words if float(line[4]) > 0][-1]
    return last[6] if len(last) > 6 else "ours"


def measure(name, part, options):
    """Returns the least milliseconds of ours and of PyTorch's, and the implementation."""
    torch.manual_seed(1)
    batch, channels, outputs, length, _, _ = LAYERS[name]
    model = Layer(name).train(part == "train")
    x, target = torch.randn(batch, channels, length), torch.randint(0, outputs, (batch,))
    settings = Settings(options.build, part)
    with tempfile.TemporaryDirectory() as where:
        folder = pathlib.Path(where)
        sizes = write(model, x, target, part, folder)
        ours = network_step.Ours(settings, folder, sizes, options.block)
        theirs = network_step.Torch(settings, model, x, target, "eager")
        times = [], []
        for _ in range(options.rounds):
            times[1].extend(theirs.run()[0] for _ in range(3))
            time.sleep(0.05)  # until PyTorch's threads sleep
            times[0].extend(float(ours.ask("run")[-1].split()[0]) for _ in range(3))
        return min(times[0]), min(times[1]), implementation(ours.ask("steps"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--layers", default=",".join(LAYERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--block", type=int, default=16, help="8 below AVX-512")
    options = parser.parse_args()
    torch.set_num_threads(2)
    print(f"PyTorch {torch.__version__}\n")
    print("| layer | forward | PyTorch | ratio | training | PyTorch | ratio | forward by |")
    print("|---|--:|--:|--:|--:|--:|--:|---|")
    for name in options.layers.split(","):
        row = [name]
        for part in ("forward", "train"):
            ours, theirs, by = measure(name, part, options)
            row += [f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.2f}"]
        print("|", " | ".join([*row, by]), "|", flush=True)


if __name__ == "__main__":
    main()
