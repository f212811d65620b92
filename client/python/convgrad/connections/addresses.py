"""Reads the addresses of servers."""

from __future__ import annotations

import re
import socket

from convgrad.errors import bad_reply, invalid

_THIS_HOST = re.compile(r"unix:|localhost:|127(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}:|\[::1\]:")
# The port is required, because gRPC would use 443 by default.
_HOST_AND_PORT = re.compile(
    r"(dns:(//[^/]*/)?)?(?P<host>[^][:/]+|\[[^][]+\]):(?P<port>\d{1,5})")
_LABEL = "[A-Za-z0-9_-]{1,63}"
_ADVERTISED = re.compile(
    rf"({_LABEL}(\.{_LABEL})*\.?|\[(?P<ipv6>[0-9A-Fa-f:.]+)\]):[1-9][0-9]{{0,4}}")
_LONGEST_ADVERTISED = 260
_OTHER_SCHEMES = ("unix:", "unix-abstract:", "ipv4:", "ipv6:", "vsock:", "xds:")


def is_of_this_host(target: str) -> bool:
    """Returns whether the address is one of this host. A proxy or tunnel may be behind it."""
    return _THIS_HOST.match(target) is not None


def split(target: str) -> tuple[str, int] | None:
    """Returns host and port; None for a target that gRPC finds in another way."""
    found = None if target.startswith(_OTHER_SCHEMES) else _HOST_AND_PORT.fullmatch(target)
    if found is None or not 0 < int(found["port"]) < 2**16:
        return None
    return found["host"].strip("[]"), int(found["port"])


def check_target(target: str) -> None:
    """Raises InvalidArgument unless a client can connect to the target."""
    scheme, _, rest = target.partition(":")
    is_found_by_grpc = f"{scheme}:" in _OTHER_SCHEMES and rest.strip("/") != ""
    if not is_found_by_grpc and split(target) is None:
        raise invalid("OUT_OF_RANGE", "server", f"'{target}'",
                      "HOST:PORT (a server's default port is 7070) or unix:PATH")


def followed(target: str, advertised: str) -> str:
    """Returns the address at which to call a session that the server at `target` has opened.

    It is the address that this server advertises, if any. But a client that named an address of
    this host stays there unless the other one is of this host as well, because a tunnel may be
    behind it.
    Errors: Internal if a server advertises anything but host and port.
    """
    if not advertised or target.startswith(("unix:", "unix-abstract:")):
        return target
    if not _is_host_and_port(advertised):
        raise bad_reply("address", repr(advertised[:80]), "HOST:PORT, as --advertise has it")
    stays = is_of_this_host(target) and not is_of_this_host(advertised)
    return target if stays else advertised


def _is_host_and_port(address: str) -> bool:
    found = (None if len(address) > _LONGEST_ADVERTISED or address.startswith("dns:")
             else _ADVERTISED.fullmatch(address))
    if found is None or split(address) is None:
        return False
    try:
        return found["ipv6"] is None or bool(socket.inet_pton(socket.AF_INET6, found["ipv6"]))
    except OSError:
        return False


def addresses_of(target: str) -> tuple[str | None, list[str]]:
    """Returns the addresses of a target that stands for several, as targets, and the name by
    which their certificates are checked. Asks DNS."""
    scheme, _, listed = target.partition(":")
    if scheme in ("ipv4", "ipv6") and "," in listed:
        return None, [f"{scheme}:{one}" for one in listed.split(",")]
    found = split(target)
    if found is None or is_of_this_host(target):
        return None, []
    host, port = found
    try:
        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM,
                                      flags=socket.AI_ADDRCONFIG)  # it may have IPv6 alone
    except (OSError, UnicodeError):  # gRPC's error says more
        return None, []
    # A server's IPv6 address beside its IPv4 address doesn't make it two servers.
    family = min(entry[0] for entry in resolved)
    addresses = dict.fromkeys(entry[4][0] for entry in resolved if entry[0] == family)
    form = "ipv4:{}:{}" if family == socket.AF_INET else "ipv6:[{}]:{}"
    return host, [form.format(one, port) for one in addresses] if len(addresses) > 1 else []
