"""Pools the connections to one or several servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import grpc

from convgrad.connections import transport
from convgrad.connections.addresses import addresses_of, check_target, is_of_this_host
from convgrad.connections.processes import Home
from convgrad.connections.tls import Tls, TlsProbe
from convgrad.errors import Cancelled, Unauthenticated, invalid
from convgrad.wire import joined

_PACKAGE = "/convgrad.v1."
_SERVICE = "ConvGrad/"
# Time for which calls avoid a server that was unavailable, if there are others.
_DOWN_SECONDS = 1.0
# Timeout of a connection until the server's first bytes. With gRPC's 20 s, a client would learn
# only after 40 s that a server, which retries give about 30 s, doesn't answer.
_CONNECT_SECONDS = 30
# Disables gRPC's pings.
_NEVER_MS = 2**31 - 1
Token = str | Callable[[], str]


def _secrets_left_out() -> str:
    raise Unauthenticated(
        "client: found one from a pickle, which holds no token and no key, expected one made "
        "here, or one whose token is a function and whose key is a file")


@dataclass(frozen=True)
class Connections:
    """Targets and settings of connections."""

    targets: tuple[str, ...]
    tls: Tls | None = None
    token: Token | None = field(default=None, repr=False)
    connections: int = 1
    keepalive_seconds: float = 20.0

    def without_secrets(self) -> Connections:
        """Returns what a pickle may contain: functions and paths, no tokens and no keys.

        If a secret had to be left out, using the result raises Unauthenticated.
        """
        if self.tls is not None and isinstance(self.tls.key, bytes):
            tls = replace(self.tls, certificate=None, key=None)
            return replace(self, tls=tls, token=_secrets_left_out)
        if isinstance(self.token, str):
            return replace(self, token=_secrets_left_out)
        return self

    def check(self) -> None:
        if not self.targets or not all(self.targets):
            raise invalid("MISSING", "server", "nothing", "HOST:PORT or unix:PATH")
        for target in self.targets:
            check_target(target)
        if self.connections < 1:
            raise invalid("OUT_OF_RANGE", "connections", self.connections, "at least 1")
        if not self.keepalive_seconds >= 1:
            raise invalid("OUT_OF_RANGE", "keepalive_seconds", self.keepalive_seconds,
                          "at least 1")
        if self.token is not None and self.tls is None and not all(
                map(is_of_this_host, self.targets)):
            raise invalid("OUT_OF_RANGE", "token", "a plaintext connection",
                          "tls or a server on this host, a token is a secret")

    def channel_options(self, server_name: str | None = None) -> list[tuple[str, Any]]:
        """Returns gRPC's options. `server_name` is the name that the server's certificate must
        have if `tls` names none; None: that of the target."""
        options: list[tuple[str, Any]] = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            # An http_proxy in the environment would also apply to servers on loopback.
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
            # A name with several addresses stands for replicas.
            ("grpc.lb_policy_name", "round_robin"),
            # Gives each channel its own connection.
            ("grpc.use_local_subchannel_pool", 1),
            # Retries decide when to try again; gRPC's own backoff would grow to 2 minutes.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.min_reconnect_backoff_ms", _CONNECT_SECONDS * 1000),
            # With gRPC's default of 30 s, clients of a rolling restart would keep addresses
            # without a server.
            ("grpc.dns_min_time_between_resolutions_ms", 1000),
            ("grpc.keepalive_time_ms", int(min(self.keepalive_seconds * 1000, _NEVER_MS))),
            ("grpc.keepalive_timeout_ms", int(min(self.keepalive_seconds, 20.0) * 1000)),
            # A call that waits longer than two pings take sends no data meanwhile.
            ("grpc.http2.max_pings_without_data", 0),
        ]
        if self.tls is not None and self.tls.server_name is not None:
            server_name = self.tls.server_name
        if self.tls is not None and server_name is not None:
            options.append(("grpc.ssl_target_name_override", server_name))
        return options

    def metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        if self.token is None:
            return ()
        token: Any = self.token() if callable(self.token) else self.token
        if not isinstance(token, str):
            raise Unauthenticated(f"token: found a {type(token).__name__}, expected a str")
        if not token.isprintable() or not token.isascii():
            raise Unauthenticated("token: found control characters, expected printable ASCII")
        return (("authorization", f"Bearer {token}"),)


@dataclass(eq=False)
class Slot:
    """A connection of the pool, made on first use. If the first channel is the native module's,
    it has a second channel for streams."""

    target: str
    options: list[tuple[str, Any]]
    unary_channel: Any = None
    stream_channel: Any = None
    down_until: float = 0.0
    has_answered: bool = False
    methods: dict[str, Any] = field(default_factory=dict)


class ChannelPool:
    """Hands out channels in turn; those that were just unavailable come last. Thread-safe."""

    def __init__(self, connections: Connections) -> None:
        connections.check()
        self.connections = connections
        self.home = Home()
        self.probe = TlsProbe(connections.tls)
        self._credentials = connections.tls.credentials() if connections.tls else None
        self._pems = connections.tls.pems() if connections.tls else None
        is_said = connections.tls is None or self._pems is not None
        self._is_native = transport.NATIVE and is_said
        options = connections.channel_options()
        slots = [Slot(target, options) for _ in range(connections.connections)
                 for target in connections.targets]
        # By target, the slots in the order of their next use; None: of all of the client's.
        self._turns: dict[str | None, list[Slot]] = {None: slots, **{
            target: [slot for slot in slots if slot.target == target]
            for target in connections.targets}}
        self._server_names: dict[str, str | None] = {}
        self._closed = False
        self._lock = threading.Lock()

    def pick(self, target: str | None = None) -> Slot:
        """Returns the next channel, or the next one of `target`, which may be a server of its
        own beside those of the client. Raises Cancelled after close()."""
        with self._lock:
            if self._closed:
                raise Cancelled("the client is closed")
            now = time.monotonic()
            if target not in self._turns:
                options = self.connections.channel_options(self._server_names.get(str(target)))
                self._turns[target] = [Slot(str(target), options)
                                       for _ in range(self.connections.connections)]
            turn = self._turns[target]
            slot = next((s for s in turn if s.down_until <= now), turn[0])
            # One assignment, because Ctrl-C between two calls would lose the slot.
            turn[:] = [*(s for s in turn if s is not slot), slot]
            return slot

    def strangers(self, target: str | None) -> int:
        """Returns how many servers pick() takes in turn, or 0 if one has answered."""
        with self._lock:
            turn = self._turns[target]
            return (0 if any(slot.has_answered for slot in turn)
                    else len({slot.target for slot in turn}))

    def replicas(self) -> list[str]:
        """Returns the client's targets, with the addresses of a name that has several instead
        of the name. Asks DNS."""
        found = []
        for target in self.connections.targets:
            name, addresses = addresses_of(target)
            found += addresses or [target]
            with self._lock:
                self._server_names |= dict.fromkeys(addresses, name)
        return list(dict.fromkeys(found))

    def method(self, slot: Slot, name: str) -> Any:
        """Returns a function that calls the method.

        It takes a Message and returns a Response (wire.py). If the name ends in Stream, it
        takes and returns streams of bytes; if tensors are put, it returns one answer. `name` is
        a method of the service ConvGrad unless it names the service: "ConvGradSessions/...".

        Errors: Cancelled after close().
        """
        with self._lock:
            if self._closed:
                raise Cancelled("the client is closed")
            self.home.settle()
            if name not in slot.methods:
                path = _PACKAGE + (name if "/" in name else _SERVICE + name)
                slot.methods[name] = (
                    self._unary_channel(slot).unary_unary(path, request_serializer=joined)
                    if not name.endswith("Stream")
                    else self._stream_channel(slot).stream_unary(path) if "/Put" in name
                    else self._stream_channel(slot).stream_stream(path))
            return slot.methods[name]

    def mark_down(self, slot: Slot) -> None:
        slot.down_until = time.monotonic() + _DOWN_SECONDS

    def close(self) -> Sequence[Any]:
        """Closes the pool and returns its channels, which the caller must close."""
        with self._lock:
            self._closed = True
            channels = [channel for turn in self._turns.values() for slot in turn
                        for channel in (slot.unary_channel, slot.stream_channel)]
            return [*{id(channel): channel for channel in channels if channel}.values()]

    def _unary_channel(self, slot: Slot) -> Any:
        if slot.unary_channel is None:
            slot.unary_channel = (
                transport.NativeChannel(slot.target, slot.options, self._pems)
                if self._is_native else self._stream_channel(slot))
        return slot.unary_channel

    def _stream_channel(self, slot: Slot) -> Any:
        if slot.stream_channel is None:
            if self._credentials is None:
                slot.stream_channel = grpc.insecure_channel(slot.target, slot.options)
            else:
                slot.stream_channel = grpc.secure_channel(
                    slot.target, self._credentials, slot.options)
        return slot.stream_channel
