"""The wheels that deploy/wheel builds, installed without a compiler in reach."""

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
    """A Python of its own, with the machine's NumPy and gRPC, and no program in its path."""
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
