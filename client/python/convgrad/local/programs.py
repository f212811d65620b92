"""Finds convgrad's programs and runs them for `python -m convgrad`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from convgrad.errors import FailedPrecondition
from convgrad.moving.command import COMMANDS, run_command

_SERVER = "convgrad-server"
_TOOL = "convgrad"
_REMEDY = 'what pip install --find-links build/wheels "convgrad[server]" installs'


def server_program() -> Path:
    """Returns the path of convgrad-server: the value of CONVGRAD_SERVER, else the program in
    the distribution convgrad-server, else the first one in PATH.

    Errors: FailedPrecondition if there is none.
    """
    named = os.environ.get("CONVGRAD_SERVER")
    if named:
        if not os.access(named, os.X_OK) or os.path.isdir(named):
            raise FailedPrecondition.of(
                "CONVGRAD_SERVER", f"'{named}'", "the path of a convgrad-server program")
        return Path(named).absolute()
    return _program(_SERVER)


def tool_program() -> Path:
    """Returns the tool `convgrad`, as server_program() returns the server.

    Errors: FailedPrecondition if there is none.
    """
    return _program(_TOOL)


def _program(name: str) -> Path:
    bundled = _bundled(name)
    if bundled is not None:
        return bundled
    found = shutil.which(name)
    if found is None:
        raise FailedPrecondition.of(
            f"program {name}", "none", f"{_REMEDY}, or a path in CONVGRAD_SERVER"
            if name == _SERVER else _REMEDY)
    return Path(found)


def _bundled(name: str) -> Path | None:
    """Returns the program in the distribution convgrad-server; None if it has none."""
    package = importlib.util.find_spec("convgrad_server")
    for folder in package.submodule_search_locations or () if package else ():
        program = Path(folder) / "bin" / name
        if os.access(program, os.X_OK):
            return program
    return None


def main() -> None:
    """Runs the commands of convgrad.moving. Otherwise replaces this process by the tool
    `convgrad` with the same arguments or, after `serve`, by the server. The help names those
    commands first, because the tool doesn't know them."""
    command, *rest = sys.argv[1:] or [""]
    if command in COMMANDS:
        sys.exit(run_command(sys.argv[1:]))
    if not rest and command in ("help", "-h", "--help"):
        print(f"python -m convgrad also has serve (starts the server), "
              f"{', '.join(COMMANDS[:-1])} and {COMMANDS[-1]}; COMMAND --help lists options.\n")
    is_server = command == "serve"
    try:
        program = server_program() if is_server else tool_program()
    except FailedPrecondition as error:
        sys.exit(f"convgrad: {error.message}")
    sys.stdout.flush()
    os.execv(program, [str(program), *(rest if is_server else sys.argv[1:])])
