#!/usr/bin/env python3
"""Installs convgrad's wheels into a new environment, trains one step of ResNet-18 without an
address, and uninstalls them. tests/bare runs it in a system without a compiler.

    bare_wheels.py ENVIRONMENT WHEELS
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

RESNET18 = r"""
import time
start = time.monotonic()
import torch
from torch import nn
import convgrad, convgrad.torch

class Block(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU()
        self.shortcut = nn.Sequential() if width == out else nn.Sequential(
            nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))
    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.shortcut(x))

class ResNet18(nn.Sequential):
    def __init__(self):
        widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
        super().__init__(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
            *(Block(width, out, 1 if width == out else 2)
              for width, out in zip(widths, widths[1:])),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))

print("imported", time.monotonic() - start)
model = ResNet18()
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6):
    net, optim = convgrad.torch.remote(model), convgrad.torch.optim
else:  # layers alone
    print(convgrad.torch.offload(model))
    net, optim = model, torch.optim
optimizer = optim.SGD(net.parameters(), lr=0.1)
loss = nn.functional.cross_entropy(net(torch.randn(16, 3, 224, 224)), torch.arange(16) % 10)
loss.backward()
optimizer.step()
if net is not model:
    net.wait()
assert 0 < loss.item() < 100
print("stepped", time.monotonic() - start)
print("torch", torch.__version__, "native", convgrad.native)
"""


def mebibytes(folder):
    return sum(path.lstat().st_size for path in folder.rglob("*")) / 2**20


def run(*command):
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command[:4]))}\n{done.stdout}{done.stderr}")
    return done.stdout


def use_the_tools(convgrad, socket):
    """Runs each of the tool's commands on a server that `convgrad serve` starts."""
    (program := socket.with_name("program.txt")).write_text(
        "input x\nparameter w [4, 3, 3, 3]\ny = conv(x, w)\noutput y\n")
    layer, server = "conv2d_n2_c8_o8_i14_k3_p1", f"--server=unix:{socket}"
    with subprocess.Popen([convgrad, "serve", f"--listen=unix:{socket}",
                           "--metrics_listen=127.0.0.1:9464"],
                          stderr=subprocess.DEVNULL) as serving:
        try:
            deadline = time.monotonic() + 30
            while not socket.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            for command in (("check", layer, server), ("bench", layer, server, "--repeat=2"),
                            ("capabilities", server), ("sessions", server),
                            ("program", program, "--input=2x3x8x8")):
                print("convgrad", command[0], len(run(convgrad, *command)), "characters")
            with subprocess.Popen([convgrad, "top", "--json"], text=True,
                                  stdout=subprocess.PIPE) as top:
                print("convgrad top", len(top.stdout.readline()), "characters")
                top.terminate()
        finally:
            serving.terminate()
    program.unlink()


def main(environment, wheels):
    compilers = [name for name in ("cc", "gcc", "g++", "clang", "make", "cmake")
                 if shutil.which(name)]
    if compilers or os.geteuid() == 0:
        sys.exit(f"bare_wheels.py: found {compilers or 'root'}, expected no compiler, no root")
    run(sys.executable, "-m", "venv", "--system-site-packages", environment)
    python = environment / "bin" / "python"
    # A PyTorch before 2.3 can't use NumPy 2, which ml_dtypes would bring.
    old = run(python, "-c", "import torch; print(torch.__version__ < '2.3')").strip() == "True"
    before, start = mebibytes(environment), time.monotonic()
    said = run(python, "-m", "pip", "install", "--no-cache-dir", "--only-binary=:all:",
               "--progress-bar=off", "--find-links", wheels, "convgrad[server]",
               *["numpy<2"] * old)
    installed = time.monotonic()
    fetched = re.findall(r"\(([\d.]+) (kB|MB)\)", said)
    megabytes = sum(float(size) / (1000 if unit == "kB" else 1) for size, unit in fetched)
    ours = sum(path.stat().st_size for path in wheels.iterdir()
               if path.name in said) / 1e6
    print(f"pip install convgrad[server]{' numpy<2' * old}: {installed - start:.1f} s, "
          f"{ours:.0f} MB of ours and {megabytes:.0f} MB from the index, "
          f"{mebibytes(environment) - before:.0f} MiB installed")
    print(run(python, "-c", RESNET18).rstrip())
    print(f"first step of ResNet-18, batch 16, 224x224: {time.monotonic() - start:.1f} s "
          "after pip began")
    for program in ("convgrad-server", "convgrad"):
        print(program, run(python.with_name(program), "--version").strip())
    use_the_tools(python.with_name("convgrad"), environment / "socket")
    run(python, "-m", "pip", "uninstall", "--yes", "convgrad", "convgrad-server")
    left = [*environment.rglob("convgrad*"), *pathlib.Path("/tmp").glob("*convgrad*"),
            *pathlib.Path("/dev/shm").iterdir()]
    if left:
        sys.exit(f"bare_wheels.py: found {left}, expected nothing left")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
