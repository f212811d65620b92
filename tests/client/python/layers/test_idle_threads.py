"""Tests PyTorch's threads while a server computes on the same cores."""

import os
import subprocess
import sys

import pytest

CODE = """
import ctypes, os, sys
import torch, convgrad
from convgrad.torch import idle_threads

def threads():
    return len(os.listdir("/proc/self/task"))

torch.ones(10**6).add_(1)
before = threads()
for address in sys.argv[1:]:
    for _ in range(2):
        idle_threads.quieten_for(convgrad.Client(address))
    print(threads() - before)
print([os.path.basename(path).split(".")[0].split("-")[0] for path in idle_threads._loaded()])
print(torch.ones(10**6).add_(1).sum().item())
"""


def run(*addresses, **settings):
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")}
    found = subprocess.run([sys.executable, "-c", CODE, *addresses], text=True, check=False,
                           env={**environment, **settings}, capture_output=True)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_one_more_than_cores_once():
    cores = len(os.sched_getaffinity(0))
    far, near, again, libraries, total = run("far:1", "unix:/near", "localhost:1")
    if "libgomp" not in libraries:
        pytest.skip("this PyTorch has another OpenMP than GNU's")
    assert (far, near, again) == ("0", str(cores + 1), str(cores + 1))
    assert total == "2000000.0"


def test_what_the_environment_says_holds():
    assert run("unix:/near", OMP_WAIT_POLICY="active")[0] == "0"
    assert run("unix:/near", GOMP_SPINCOUNT="7")[0] == "0"
