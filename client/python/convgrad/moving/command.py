"""Runs the commands `export`, `import`, `snapshot`, `restore` and `replay` of
`python -m convgrad`."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from convgrad.attached import Attached
from convgrad.client import Client
from convgrad.connections.retries import RetryPolicy
from convgrad.connections.tls import Tls
from convgrad.errors import (
    ConvgradError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    invalid,
)
from convgrad.files import private
from convgrad.moving.replaying import replay
from convgrad.moving.safetensors import TensorFile, check_target
from convgrad.moving.transfer import check_import, export_session, import_session
from convgrad.sessions.session import Session

COMMANDS = ("export", "import", "snapshot", "restore", "replay")

_ID_BYTES = 16
# The digits of SessionInfo.handle (proto/convgrad/v1/session.proto).
_HANDLE_DIGITS = 16
# About a second, because a wrong address is likelier than a server that restarts.
_MOST_ATTEMPTS = 5
_SESSION_HELP = "a file with the session's id (16 bytes), or the session's name"


def run_command(arguments: Sequence[str]) -> int:
    """Runs the command line, and returns the exit status: 2 for an invalid request, 1 for
    another failure."""
    parsed = _parser().parse_args(arguments)
    try:
        tls = Tls(parsed.ca, parsed.cert, parsed.key)
        with Client(parsed.server, tls=tls if tls != Tls() else False,
                    token=_token_in(parsed.token), timeout=parsed.timeout,
                    retry=RetryPolicy(max_attempts=_MOST_ATTEMPTS)) as client:
            status: int | None = parsed.run(client, parsed)
        return status or 0
    except (ConvgradError, OSError) as error:
        print(f"convgrad: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidArgument) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("convgrad", allow_abbrev=False)
    commands = parser.add_subparsers(required=True)

    def command(name: str, run: object, text: str,
                subject: tuple[str, str] = ("session", _SESSION_HELP)
                ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        added.set_defaults(run=run)
        added.add_argument(subject[0], metavar=subject[0].upper(), help=subject[1])
        return added

    export = command("export", _export, "Write a session's tensors to a file of safetensors.")
    export.add_argument("file", metavar="FILE", help="the file; replaced only when complete")
    export.add_argument("--take_over", action="store_true",
                        help="resume the session, so that its trainer can't go on, and export "
                        "its trainer_state as well; needed with a name")
    into = command("import", _import, "Put the tensors of a file of safetensors into a "
                   "session, which is taken over.")
    into.add_argument("file", metavar="FILE")
    into.add_argument("--without_optimizer", action="store_true",
                      help="take parameters and buffers only")
    into.add_argument("--new", action="store_true",
                      help="open a session, and write its id to the new file SESSION")
    into.add_argument("--durable", action="store_true", help="make the new session durable")
    into.add_argument("--lease", type=float, default=600.0, metavar="SECONDS",
                      help="lease of the new session; default 600")
    snapshot = command("snapshot", _snapshot,
                       "Have the server write a durable session to its disk now, and print the "
                       "durable number.")
    names = snapshot.add_mutually_exclusive_group()
    names.add_argument("--name", default="", metavar="NAME",
                       help="keep the snapshot under this name, until it is dropped")
    names.add_argument("--drop", metavar="NAME",
                       help="drop the snapshot of this name instead")
    back = command("restore", _restore, "Make a session what the snapshot NAME has. The "
                   "session is taken over, so that its trainer can't go on.")
    back.add_argument("name", metavar="NAME", help="as snapshot --name kept it")
    repeat = command("replay", _replay, "Repeat the changes of a recording in a new session, "
                     "and print the first difference of the results.",
                     ("recording", "a file that a program with CONVGRAD_RECORD=FOLDER wrote"))
    for each in (export, into, snapshot, back, repeat):
        each.add_argument("--server", default="127.0.0.1:7070", metavar="ADDRESS")
        each.add_argument("--ca", metavar="FILE", help="PEM file of the authorities that "
                          "signed the server's certificate; turns TLS on")
        each.add_argument("--cert", metavar="FILE",
                          help="PEM file of this client's certificate")
        each.add_argument("--key", metavar="FILE", help="PEM file of the certificate's key")
        each.add_argument("--token", metavar="FILE",
                          help="file whose first word is the client's token")
        each.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS",
                          help="time limit of each call; default 600")
    return parser


def _export(client: Client, parsed: argparse.Namespace) -> None:
    check_target(parsed.file)  # before the trainer is stopped
    if parsed.take_over:
        with _resumed(client, parsed.session) as session:
            number = export_session(session, parsed.file, trainer_state=session.trainer_state)
    else:
        with _attached(client, parsed.session, "--take_over") as attached:
            number = export_session(attached, parsed.file)
    print(f"wrote {parsed.file}, the session as of change {number}")


def _import(client: Client, parsed: argparse.Namespace) -> None:
    has_optimizer = not parsed.without_optimizer
    if not parsed.new and (parsed.durable or parsed.lease != 600.0):
        raise invalid("UNSUPPORTED", "--durable or --lease", "no --new",
                      "a new session, because an open one has its own")
    if parsed.new:
        with TensorFile(parsed.file) as file:
            check_import(file, {}, has_optimizer)
        with _opened(client, parsed) as session:
            found = import_session(session, parsed.file, optimizer=has_optimizer)
    else:
        with TensorFile(parsed.file) as file:  # refuses before the trainer is stopped
            kept = {}
            if os.path.isfile(parsed.session):
                with _attached(client, parsed.session, "") as attached:
                    kept = attached.tensors()
            check_import(file, kept, has_optimizer)
        with _resumed(client, parsed.session) as session:
            found = import_session(session, parsed.file, optimizer=has_optimizer)
    origin = "" if found.number is None else f", exported as of change {found.number}"
    print(f"change {session.number} of the session has the tensors{origin}")
    _tell_differences(found.differences, "the export")


def _snapshot(client: Client, parsed: argparse.Namespace) -> None:
    with _attached(client, parsed.session, "") as attached:
        if parsed.drop is not None:
            _check_snapshot(client, parsed.session, parsed.drop)
            attached.drop_state(parsed.drop)
            print(f"dropped {parsed.drop!a}")
        else:
            print(f"durable number {attached.save_state(parsed.name)}")


def _restore(client: Client, parsed: argparse.Namespace) -> None:
    _check_snapshot(client, parsed.session, parsed.name)
    with _resumed(client, parsed.session) as session:
        session.restore_state(parsed.name)
        print(f"change {session.number} of the session has the snapshot {parsed.name!a}")
        session.save_state()


def _check_snapshot(client: Client, session: str, name: str) -> None:
    """Raises an error if the session has no snapshot of this name, as far as the server lists
    the client's sessions."""
    handle = (hashlib.sha256(_id_in(session)).hexdigest()[:_HANDLE_DIGITS]
              if os.path.isfile(session) else None)
    for one in client.sessions():
        if one.name != session if handle is None else one.handle != handle:
            continue
        if one.durable_number is None:
            raise FailedPrecondition.of("session", "one that isn't durable",
                                        "a durable session, which has snapshots")
        if name not in one.snapshots:
            names = ", ".join(map(ascii, one.snapshots)) or "none yet"
            raise NotFound.of("name", ascii(name),
                              f"a snapshot that SaveState has kept: {names}")


def _replay(client: Client, parsed: argparse.Namespace) -> int:
    found = replay(client, parsed.recording)
    print(f"{found.changes} changes have the same results" + (
        f", {found.unknown} of which couldn't be compared" if found.unknown else ""))
    if found.is_cut:
        print("the recording lacks its end")
    if found.difference:
        print(f"the first difference is {found.difference}")
    _tell_differences(found.differences, "the recording")
    return 1 if found.difference else 0


def _tell_differences(found: Sequence[str], other: str) -> None:
    if found:
        print(f"this server may compute other bits than that of {other}, within the bounds "
              "of proto/correctness.md:", *found, sep="\n  ")


def _attached(client: Client, session: str, remedy: str) -> Attached:
    if not os.path.isfile(session):
        raise invalid("NOT_FOUND", "SESSION", f"'{session}', which is no file",
                      f"a file with the session's id{' or ' if remedy else ''}{remedy}")
    return client.attach(_id_in(session))


@contextlib.contextmanager
def _resumed(client: Client, session: str) -> Iterator[Session]:
    """Takes the session over, and says so if the block fails."""
    has_id = os.path.isfile(session)
    with client.session("" if has_id else session, keep_open=True,
                        resume=_id_in(session) if has_id else True) as resumed:
        try:
            yield resumed
        except (ConvgradError, OSError):
            print("convgrad: the session was taken over; its trainer can't go on",
                  file=sys.stderr)
            raise


def _token_in(path: str | None) -> str | None:
    if path is None:
        return None
    words = Path(path).read_text("utf-8", "replace").split()
    if not words:
        raise invalid("MISSING", path, "nothing", "a token")
    return words[0]


def _id_in(path: str) -> bytes:
    with open(path, "rb") as file:
        found = file.read(_ID_BYTES + 1)
    if len(found) != _ID_BYTES:
        raise invalid("OUT_OF_RANGE", path, f"{len(found)} bytes or more",
                      f"a session's id, {_ID_BYTES} bytes")
    return found


@contextlib.contextmanager
def _opened(client: Client, parsed: argparse.Namespace) -> Iterator[Session]:
    """Opens a session and writes its id. If the block fails, neither stays."""
    new = open(parsed.session, "xb", opener=private)  # the id is a credential
    try:
        with new as file, client.session(lease=parsed.lease, durable=parsed.durable,
                                         keep_open=True) as session:
            try:
                file.write(session.id)
                file.flush()
                os.fsync(file.fileno())
                yield session
            except BaseException:
                session.close()
                raise
    except BaseException:
        os.unlink(parsed.session)
        raise
