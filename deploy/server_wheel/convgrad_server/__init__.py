"""The programs of convgrad, which `convgrad` and `convgrad-server` run."""

import os
import sys

_BIN = os.path.join(os.path.dirname(__file__), "bin")


def server() -> None:
    """Becomes convgrad-server with this process's arguments."""
    _become("convgrad-server", sys.argv[1:])


def tool() -> None:
    """Becomes the command line tool; `convgrad serve` is the server."""
    if sys.argv[1:2] == ["serve"]:
        _become("convgrad-server", sys.argv[2:])
    _become("convgrad", sys.argv[1:])


def _become(name: str, arguments: list[str]) -> None:
    program = os.path.join(_BIN, name)
    os.execv(program, [program, *arguments])
