"""Tests the wheels of deploy/wheel, installed without a compiler."""

import os
import pathlib
import shutil
import subprocess
import sys
import time
import zipfile

import pytest

import deployed

WHEELS = pathlib.Path(__file__).parents[2] / "build" / "wheels"
REQUIREMENTS = pathlib.Path(__file__).with_name("other_pythons.txt")
FIRST_GRADIENT = """
import sys, numpy as np, convgrad
x, w, g = (np.ones(shape, np.float32) for shape in
           ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6)))
with convgrad.Client(sys.argv[1]) as client:
    found = client.conv_backward(g, x, w).grad_weight
assert (found == 72).all()
print(convgrad.native)
"""
FIRST_STEP = """
import torch, convgrad
from torch import nn
net = convgrad.torch.remote(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(),
                                          nn.Linear(8 * 36, 10)))
optimizer = convgrad.torch.optim.SGD(net.parameters(), lr=0.1)
loss = nn.functional.cross_entropy(net(torch.randn(4, 3, 8, 8)), torch.arange(4))
loss.backward()
optimizer.step()
net.wait()
print(loss.item() > 0)
"""


@pytest.fixture
def server():
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    with deployed.running(str(deployed.SERVER), "--listen=127.0.0.1:0", "--metrics_listen=",
                          "--workers=1", "--threads_per_worker=1",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=environment) as process:
        yield deployed.Server(process)


@pytest.fixture
def environment(tmp_path):
    """Returns an environment with the machine's NumPy and gRPC, and no program in its path."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", "--without-pip",
                    folder], check=True)
    ml_dtypes = pathlib.Path(__import__("ml_dtypes").__file__).parents[1]
    return folder / "bin" / "python", {"PATH": "", "PYTHONPATH": str(ml_dtypes)}


@pytest.mark.parametrize("kind", ["manylinux", "none-any"])
def test_from_the_wheel_to_the_first_gradient(kind, environment, server, tmp_path, capsys):
    python, variables = environment
    wheel, = WHEELS.glob(f"convgrad-*{kind}*.whl")
    start = time.monotonic()
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                    "--no-index", "--target", tmp_path / "installed", wheel], check=True)
    installed = time.monotonic()
    variables["PYTHONPATH"] = f"{tmp_path / 'installed'}:{variables['PYTHONPATH']}"
    found = subprocess.run([python, "-c", FIRST_GRADIENT, server.address], env=variables,
                           text=True, capture_output=True, check=False)
    assert found.stdout.strip() == str(kind == "manylinux"), found.stderr
    with capsys.disabled():
        print(f"\n{wheel.name}: installed in {installed - start:.1f} s, first gradient "
              f"{time.monotonic() - installed:.1f} s later")


def mebibytes(folder):
    return sum(path.lstat().st_size for path in folder.rglob("*")) / 2**20


@pytest.mark.remote
def test_from_the_wheels_to_the_first_step_without_a_server(environment, capsys):
    """The server and the command line programs come from the server's wheel."""
    python, variables = environment
    server, = WHEELS.glob("convgrad_server-*-py3-none-manylinux*.whl")
    client, = WHEELS.glob("convgrad-*manylinux*.whl")
    pip = [sys.executable, "-m", "pip", "--python", python]
    before, start = mebibytes(python.parents[1]), time.monotonic()
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index",
                    "--ignore-installed", client, server], check=True)
    installed, size = time.monotonic(), mebibytes(python.parents[1]) - before
    found = subprocess.run([python, "-c", FIRST_STEP], env=variables, text=True,
                           capture_output=True, check=False)
    assert found.stdout.strip() == "True", found.stderr
    with capsys.disabled():
        print(f"\n{server.name}: {(server.stat().st_size + client.stat().st_size) / 2**20:.0f}"
              f" MiB with the client, {size:.0f} MiB installed in {installed - start:.1f} s, "
              f"first training step {time.monotonic() - installed:.1f} s later")
    for command in (["convgrad", "serve"], ["convgrad-server"], ["convgrad"],
                    ["python", "-m", "convgrad"], ["python", "-m", "convgrad", "serve"]):
        said = subprocess.run([python.with_name(command[0]), *command[1:], "--version"],
                              env=variables, text=True, capture_output=True, check=True).stdout
        assert said.split()[-1] == server.name.split("-")[1]
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "convgrad", "convgrad-server"],
                   check=True)
    assert not [*python.parents[1].rglob("convgrad*")]


def test_the_servers_wheel_has_the_licenses_of_what_it_carries():
    wheel, = WHEELS.glob("convgrad_server-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    licenses = {name.rpartition("/")[2] for name in names if "/licenses/" in name}
    assert {"onednn", "libgrpc29", "libprotobuf32", "libssl3", "libgomp1", "libcli11-dev"} <= licenses
    assert any("libdnnl" in name for name in names)
    # These libraries come from the system on which the wheel is installed.
    assert not any(name in "".join(names) for name in (".libs/libc.", ".libs/libstdc++"))


def other_pythons():
    """Returns interpreters of other versions than Debian's, newest first."""
    candidates = []
    for version in ("3.13", "3.12", "3.10"):
        candidates += pathlib.Path.home().glob(f".pyenv/versions/{version}.*/bin/python")
        if on_path := shutil.which(f"python{version}"):
            candidates.append(on_path)
    return [str(it) for it in candidates
            if subprocess.run([it, "-c", "import venv"], capture_output=True,
                              check=False).returncode == 0]


def test_another_python_needs_no_compiler(server, tmp_path, capsys):
    pythons = other_pythons()
    if not pythons:
        pytest.skip("this machine has Debian's Python alone")
    variables = {**os.environ, "PATH": "", "PYTHONPATH": ""}
    start = time.monotonic()
    subprocess.run([pythons[0], "-m", "venv", tmp_path], check=True)
    python, wheel = tmp_path / "bin" / "python", next(WHEELS.glob("convgrad-*none-any*.whl"))
    for what in (["--require-hashes", "-r", REQUIREMENTS], ["--no-deps", "--no-index", wheel]):
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", *what],
                       check=True, env=variables)
    installed = time.monotonic()
    found = subprocess.run([python, "-c", FIRST_GRADIENT, server.address], env=variables,
                           text=True, capture_output=True, check=False)
    assert found.stdout.strip() == "False", found.stderr
    with capsys.disabled():
        print(f"\n{pythons[0]}: installed in {installed - start:.1f} s, first gradient "
              f"{time.monotonic() - installed:.1f} s later")


def test_a_wheel_carries_what_the_module_needs_and_the_license():
    wheel, = WHEELS.glob("convgrad-*manylinux*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert any("libgrpc++" in name for name in names)
    for wheel in WHEELS.glob("*.whl"):
        assert any(name.endswith("/LICENSE") for name in zipfile.ZipFile(wheel).namelist())
