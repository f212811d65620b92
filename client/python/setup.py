"""Generates the stubs of proto/ when building the package. Also builds the native module if
CONVGRAD_NATIVE is ON, or AUTO (default) with CMake, Ninja and nanobind installed."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc
from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
PROTO = HERE.parents[1] / "proto"


def wants_native() -> bool:
    setting = os.environ.get("CONVGRAD_NATIVE", "AUTO")
    if setting not in ("ON", "OFF", "AUTO"):
        raise SystemExit(f"CONVGRAD_NATIVE: found {setting!r}, expected ON, OFF or AUTO")
    if setting == "AUTO":
        return (shutil.which("cmake") is not None and shutil.which("ninja") is not None
                and importlib.util.find_spec("nanobind") is not None)
    return setting == "ON"


WANTS_NATIVE = wants_native()


def build_native(target: Path) -> None:
    """Builds convgrad._native into the folder `target`."""
    folder = HERE / "build" / "native"
    shutil.rmtree(folder, ignore_errors=True)
    # Ninja, because the presets use it too, so that a machine needn't have make.
    subprocess.run(["cmake", "-S", HERE / "native", "-B", folder, "-G", "Ninja",
                    f"-DPython_EXECUTABLE={sys.executable}"], check=True)
    subprocess.run(["cmake", "--build", folder], check=True)
    subprocess.run(["cmake", "--install", folder, "--prefix", target, "--strip"], check=True)


class BuildWithStubs(build_py):
    def run(self) -> None:
        super().run()
        target = HERE if self.editable_mode else Path(self.build_lib).resolve()
        sources = sorted(PROTO.glob("convgrad/v1/*.proto"))
        if not sources:
            raise SystemExit(f"found no *.proto under {PROTO}, expected the "
                             "repository around client/python")
        status = protoc.main([
            "protoc", f"--proto_path={PROTO}",
            f"--proto_path={Path(grpc_tools.__file__).parent / '_proto'}",
            f"--python_out={target}", f"--pyi_out={target}", *map(str, sources),
        ])
        if status != 0:
            raise SystemExit(f"protoc failed with {status}")
        (target / "convgrad" / "v1" / "__init__.py").write_text(
            '"""Messages of the wire, generated from proto/convgrad/v1."""\n')
        if WANTS_NATIVE:
            build_native(target / "convgrad")


class NativeDistribution(Distribution):
    """Makes a wheel specific to the interpreter and machine if it has the native module."""

    def has_ext_modules(self) -> bool:
        return WANTS_NATIVE


setup(cmdclass={"build_py": BuildWithStubs}, distclass=NativeDistribution)
