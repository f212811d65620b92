"""Which addresses a client follows, and how it finds the servers behind a name."""

import socket

import pytest

import convgrad
from convgrad.connections.addresses import addresses_of, followed


@pytest.mark.parametrize("target, advertised, expected", [
    ("servers:7070", "", "servers:7070"),
    ("servers:7070", "server-0.servers:7070", "server-0.servers:7070"),
    ("ipv4:10.0.0.1:1,10.0.0.2:1", "[fd00::1]:7070", "[fd00::1]:7070"),
    # Behind an address of this host there may be a tunnel.
    ("localhost:7070", "server-0.servers:7070", "localhost:7070"),
    ("127.0.0.1:7070", "127.evil.test:7070", "127.0.0.1:7070"),
    ("localhost:7070", "127.0.0.1:7071", "127.0.0.1:7071"),
    ("localhost:7070", "127.999.0.1:7071", "localhost:7070"),
    ("servers:7070", "a" * 63 + ".b.:7070", "a" * 63 + ".b.:7070"),
    ("unix:/run/server.sock", "localhost:7070", "unix:/run/server.sock"),
    ("unix-gpu.test:7070", "server-0.servers:7070", "server-0.servers:7070"),
])
def test_which_address_is_followed(target, advertised, expected):
    assert followed(target, advertised) == expected


@pytest.mark.parametrize("advertised", [
    "server", "server:0", "server:65536", "unix:/run/server.sock", "unix:70", "ipv4:10.0.0.1:1",
    "dns:server:1", "dns://10.0.0.1/server:1", "a b:1", "server\n:1", "a:1,b:1", "fd00::1:7070",
    "https://server:1", "sérver:1", "server:07070", "server:000007070", "..:1", "a..b:1",
    "[.]:1", "[::1::]:1", "dns:1", "a" * 64 + ".b:1", "b." * 130 + ":1"])
def test_an_address_that_is_more_than_host_and_port_is_refused(advertised):
    with pytest.raises(convgrad.Internal) as caught:
        followed("servers:7070", advertised)
    assert caught.value.field == "reply.address"


def test_a_name_that_cannot_be_resolved_has_no_addresses():
    assert addresses_of("a..b:7070") == (None, [])


def resolves_to(monkeypatch, *addresses):
    def resolve(host, port, **keywords):
        assert (host, port) == ("servers", 7070)
        return [(socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, 6, "",
                 (one, port)) for one in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_a_name_with_several_addresses_stands_for_several_servers(monkeypatch):
    resolves_to(monkeypatch, "10.0.0.1", "10.0.0.2", "10.0.0.1")
    expected = ["ipv4:10.0.0.1:7070", "ipv4:10.0.0.2:7070"]
    assert addresses_of("servers:7070") == ("servers", expected)
    assert addresses_of("dns:///servers:7070") == ("servers", expected)
    resolves_to(monkeypatch, "fd00::1", "fd00::2")
    assert addresses_of("servers:7070")[1] == ["ipv6:[fd00::1]:7070", "ipv6:[fd00::2]:7070"]


def test_a_server_of_both_families_is_one(monkeypatch):
    resolves_to(monkeypatch, "fd00::1", "10.0.0.1")
    assert addresses_of("servers:7070")[1] == []


def test_targets_that_are_no_names_are_left_as_they_are(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", None)
    for target in ("localhost:7070", "unix:/run/x.sock", "ipv4:10.0.0.1:1"):
        assert addresses_of(target)[1] == []


def test_a_name_that_dns_lacks_is_left_to_grpc(monkeypatch):
    def fail(*arguments, **keywords):
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert addresses_of("servers:7070") == (None, [])


def test_a_list_of_addresses_stands_for_each():
    assert addresses_of("ipv4:10.0.0.1:1,10.0.0.2:1") == (
        None, ["ipv4:10.0.0.1:1", "ipv4:10.0.0.2:1"])
