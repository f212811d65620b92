#!/usr/bin/env python3
"""Whole networks on a server beside the same networks in PyTorch, in this process.

    networks.py speed    --build=build/release [--networks=resnet18,...] [--rounds=5] [--compile]
    networks.py accuracy --build=build/release [--networks=resnet18,...] [--dtype=f32]

`speed` starts a server on this machine, reached over TCP, and takes turns: some training
steps of ours, submitted ahead with the loss on the server, and as many of PyTorch's, eager in
both memory formats and compiled where asked; then inference. Milliseconds a step, minima and
medians over the rounds, and ratios. The bytes that the server counted are said beside them.

`accuracy` holds outputs, input gradients and each parameter's gradient against float64, and
tells each error over the worst of PyTorch's in four settings (1 and 2 threads, channels first
and last). Gradients that are zero in theory, of a bias before a batch_norm, are left out.
"""

import argparse
import contextlib
import math
import os
import re
import statistics
import subprocess
import time
import urllib.request

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

import convgrad
import convgrad.torch

CLASSES = 10


class UNet(nn.Module):
    """Two levels down and up, with batch_norm."""

    def __init__(self):
        super().__init__()

        def double(channels, out):
            return nn.Sequential(
                nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out),
                nn.ReLU(), nn.Conv2d(out, out, 3, padding=1, bias=False),
                nn.BatchNorm2d(out), nn.ReLU())

        self.down1, self.down2, self.bottom = double(3, 32), double(32, 64), double(64, 128)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.ConvTranspose2d(128, 64, 2, 2)
        self.up1 = nn.ConvTranspose2d(64, 32, 2, 2)
        self.join2, self.join1 = double(128, 64), double(64, 32)
        self.last = nn.Conv2d(32, CLASSES, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(self.pool(first))
        y = self.up2(self.bottom(self.pool(second)))
        y = self.up1(self.join2(torch.cat([y, second], 1)))
        return self.last(self.join1(torch.cat([y, first], 1)))


def googlenet(**settings):
    return torchvision.models.googlenet(aux_logits=False, init_weights=True, **settings)


MODELS = torchvision.models
# By name: constructor, batch and image size of the table of speed, and of accuracy.
NETWORKS = {
    "resnet18": (MODELS.resnet18, (16, 224), (4, 64)),
    "resnet50": (MODELS.resnet50, (16, 224), (4, 64)),
    "vgg11_bn": (MODELS.vgg11_bn, (8, 224), (2, 64)),
    "mobilenet_v2": (MODELS.mobilenet_v2, (16, 224), (4, 64)),
    "squeezenet": (MODELS.squeezenet1_1, (16, 224), (4, 64)),
    "googlenet": (googlenet, (8, 224), (4, 64)),
    "densenet121": (MODELS.densenet121, (8, 224), (4, 64)),
    "unet": (UNet, (16, 128), (4, 64)),
}


def make(name, seed=1):
    torch.manual_seed(seed)
    build = NETWORKS[name][0]
    model = build() if name == "unet" else build(num_classes=CLASSES)
    for module in model.modules():
        # Its bits are no other library's.
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.train()


def data(name, batch, size):
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(batch, 3, size, size, generator=generator)
    shape = (batch, size, size) if name == "unet" else (batch,)
    return images, torch.randint(CLASSES, shape, generator=generator)


@contextlib.contextmanager
def server(build, threads):
    process = subprocess.Popen(
        [f"{build}/server/convgrad-server", "--listen=127.0.0.1:0",
         "--metrics_listen=127.0.0.1:0", "--workers=1", f"--threads_per_worker={threads}"],
        stdout=subprocess.PIPE, text=True)
    found = {}
    while "listening" not in found:
        line = process.stdout.readline()
        for what in ("listening on 127.0.0.1:", "metrics on port "):
            if match := re.search(re.escape(what) + r"(\d+)", line):
                found[what.split()[0]] = int(match[1])
        if process.poll() is not None:
            raise SystemExit("the server didn't start")
    try:
        yield process.pid, f"127.0.0.1:{found['listening']}", found["metrics"]
    finally:
        process.terminate()
        process.wait()


def counted(port, family):
    """Returns the sum of a metric over its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines
               if re.match(family + r"[ {]", line))


class Theirs:
    """PyTorch's training step."""

    def __init__(self, name, layout, compiled):
        self.layout = layout
        self.model = make(name).to(memory_format=layout)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.run = torch.compile(self.model) if compiled else self.model

    def train(self, images, labels, steps):
        images = images.contiguous(memory_format=self.layout)
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.run(images), labels)
            loss.backward()
            self.optimizer.step()
            loss.item()

    def infer(self, images, steps):
        images = images.contiguous(memory_format=self.layout)
        with torch.no_grad():
            for _ in range(steps):
                self.run(images)

    def eval(self):
        self.model.eval()


class Ours:
    """The same on the server, over TCP."""

    def __init__(self, name, client, dtype):
        self.net = convgrad.torch.remote(make(name), client, dtype=dtype)
        self.optimizer = convgrad.torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)

    def train(self, images, labels, steps):
        futures = []
        for _ in range(steps):
            self.optimizer.zero_grad()
            futures.append(self.net.submit_forward_backward(images, labels))
            self.optimizer.step()
        for future in futures:
            future.result()
        self.net.wait()

    def infer(self, images, steps):
        with torch.no_grad():
            for _ in range(steps):
                self.net(images)

    def eval(self):
        self.net.eval()


def turns(runners, work, rounds, steps):
    """Returns milliseconds a step, by runner, one for each round; all take turns."""
    times = {name: [] for name in runners}
    for name, runner in runners.items():
        work(runner, 2)
    for _ in range(rounds):
        for name, runner in runners.items():
            start = time.perf_counter()
            work(runner, steps)
            times[name].append((time.perf_counter() - start) / steps * 1000)
    return times


def tell(name, what, times):
    best = {runner: min(series) for runner, series in times.items()}
    eager = min(best["first"], best["last"])
    line = ", ".join(f"{runner} {best[runner]:.0f} ({statistics.median(series):.0f})"
                     for runner, series in times.items())
    ratio = f"over eager {best['ours'] / eager:.2f}"
    if "compiled" in best:
        ratio += f", over compiled {best['ours'] / best['compiled']:.2f}"
    print(f"{name:13} {what:9} {line}; {ratio}", flush=True)
    return best["ours"] / eager


def speed(options):
    torch.set_num_threads(options.threads)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    ratios = {"training": [], "inference": []}
    for name in options.networks:
        batch, size = NETWORKS[name][1]
        images, labels = data(name, options.batch or batch, size)
        with server(options.build, options.threads) as (pid, target, port), \
                convgrad.Client(target, timeout=600) as client:
            runners = {"ours": Ours(name, client, dtype),
                       "first": Theirs(name, torch.contiguous_format, False),
                       "last": Theirs(name, torch.channels_last, False)}
            if options.compile:
                runners["compiled"] = Theirs(name, torch.channels_last, True)
            runners["ours"].train(images, labels, 1)
            before = [counted(port, f"convgrad_{way}_bytes_total")
                      for way in ("received", "sent")]
            runners["ours"].train(images, labels, 4)
            after = [counted(port, f"convgrad_{way}_bytes_total")
                     for way in ("received", "sent")]
            times = turns(runners, lambda runner, steps: runner.train(images, labels, steps),
                          options.rounds, options.steps)
            ratios["training"].append(tell(name, "training", times))
            up, down = ((b - a) / 4 for a, b in zip(before, after))
            with open(f"/proc/{pid}/status") as status:
                peak = re.search(r"VmHWM:\s+(\d+)", status.read())[1]
            print(f"{'':13} a step moves {up / 1e6:.3f} MB up and {down / 1e6:.6f} MB down; "
                  f"server's peak {int(peak) / 1024:.0f} MiB", flush=True)
            for runner in runners.values():
                runner.eval()
            times = turns(runners, lambda runner, steps: runner.infer(images, steps),
                          options.rounds, options.steps)
            ratios["inference"].append(tell(name, "inference", times))
            runners["ours"].net.close()
    for what, series in ratios.items():
        print(f"{what}: geomean over eager's best {statistics.geometric_mean(series):.3f}")


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


def accuracy(options):
    ratios = []
    with server(options.build, options.threads) as (_, target, _), \
            convgrad.Client(target, timeout=600) as client:
        for name in options.networks:
            images, labels = data(name, *NETWORKS[name][2])
            true = gradients(make(name).double(), images.double(), labels)
            largest = max(float(tensor.abs().max()) for tensor in true.values())
            true = {key: tensor for key, tensor in true.items()
                    if float(tensor.abs().max()) > 1e-10 * largest}
            worst = dict.fromkeys(true, 0.0)
            for threads in (1, 2):
                torch.set_num_threads(threads)
                for layout in (torch.contiguous_format, torch.channels_last):
                    model = make(name).to(memory_format=layout)
                    with torch.autocast("cpu", torch.bfloat16, options.dtype == "bf16"):
                        theirs = error(gradients(model, images, labels), true)
                    worst = {key: max(worst[key], theirs[key]) for key in worst}
            dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
            net = convgrad.torch.remote(make(name), client, dtype=dtype)
            ours = error(gradients(net, images, labels), true)
            net.close()
            own = {key: ours[key] / max(worst[key], 1e-300) for key in worst if worst[key] > 0}
            ratios += own.values()
            far = max(own, key=own.get)
            mean = math.exp(statistics.fmean(math.log(max(r, 1e-3)) for r in own.values()))
            print(f"{name:13} {len(own):4} tensors: geomean {mean:.2f}, worst "
                  f"{own[far]:.2f} ({far}); median error {statistics.median(ours.values()):.1e}, "
                  f"PyTorch's worst setting {statistics.median(worst.values()):.1e}", flush=True)
    mean = math.exp(statistics.fmean(math.log(max(r, 1e-3)) for r in ratios))
    print(f"all: geomean {mean:.3f} (at most 1.25), worst {max(ratios):.2f} (at most 4)")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("speed", "accuracy"))
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--networks", default=",".join(NETWORKS),
                        type=lambda names: names.split(","))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--dtype", default="f32", choices=("f32", "bf16"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    if isinstance(options.networks, str):
        options.networks = options.networks.split(",")
    {"speed": speed, "accuracy": accuracy}[options.command](options)


if __name__ == "__main__":
    main()
