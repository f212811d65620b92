"""Gives the other examples the arguments that name a server and what it asks for."""

from __future__ import annotations

import argparse
import pathlib

import convgrad


def new_parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser with --target, --ca, --cert, --key and --token, as the tool `convgrad`
    has them. Its help begins with the first paragraph of `description`."""
    parser = argparse.ArgumentParser(description=description.split("\n\n")[0])
    parser.add_argument("--target", metavar="ADDRESS",
                        help="the server's address, e.g. localhost:7070; default: starts a "
                        "server on this machine")
    parser.add_argument("--ca", metavar="PEM",
                        help="authorities of the server's certificate; without it, plaintext")
    parser.add_argument("--cert", metavar="PEM", help="the client's certificate, and --key")
    parser.add_argument("--key", metavar="PEM")
    parser.add_argument("--token", type=pathlib.Path, metavar="FILE",
                        help="file with the client's token")
    return parser


def connect(arguments: argparse.Namespace) -> convgrad.Client:
    """Returns a client of the server at --target or, without it, of one that ends with this
    process."""
    is_tls = arguments.ca or arguments.cert or arguments.key
    if arguments.target is None:
        if is_tls or arguments.token:
            raise SystemExit("--ca, --cert, --key and --token need --target")
        return convgrad.LocalServer().client()
    tls = is_tls and convgrad.Tls(arguments.ca, arguments.cert, arguments.key)
    token = arguments.token and arguments.token.read_text().strip()
    return convgrad.Client(arguments.target, tls=tls or False, token=token)
