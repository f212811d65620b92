"""Generates the stubs of proto/ while the package is built."""

from pathlib import Path

import grpc_tools
from grpc_tools import protoc
from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
PROTO = HERE.parents[1] / "proto"


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


setup(cmdclass={"build_py": BuildWithStubs})
