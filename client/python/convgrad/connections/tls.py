"""Checks keys and certificates, and finds out which of them prevents a connection."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from convgrad.connections.addresses import split
from convgrad.errors import Unavailable, invalid, unavailable

File = str | Path | bytes

# Timeout of a handshake that finds out why another connection failed.
_PROBE_SECONDS = 1.0


@dataclass(frozen=True)
class Tls:
    """TLS settings; mutual TLS if certificate and key are set. Paths of PEM files, or bytes."""

    ca: File | None = None
    """Authorities that may have signed the server's certificate; None: gRPC's default."""
    certificate: File | None = None
    key: File | None = field(default=None, repr=False)
    server_name: str | None = None
    """Name expected in the server's certificate; None: the target's host."""

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            _read(self.ca), _read(self.key), _read(self.certificate))

    def pems(self) -> tuple[bytes, bytes, bytes] | None:
        """Returns authorities, key and certificate as PEM, b"" for missing ones. Returns None
        if grpcio has to provide the default authorities."""
        if self.ca is None:
            return None
        return _read(self.ca) or b"", _read(self.key) or b"", _read(self.certificate) or b""

    def context(self) -> ssl.SSLContext:
        """Returns the settings for Python's own sockets.

        Errors: InvalidArgument naming a file that isn't the expected PEM file.
        """
        if (self.certificate is None) != (self.key is None):
            missing, given = (("key", "certificate") if self.key is None
                              else ("certificate", "key"))
            raise invalid("MISSING", f"tls.{missing}", "nothing", f"one beside the {given}")
        context = _client_context()
        if self.ca is None:
            context.load_default_certs()
        else:
            _load_certificates(context, self.ca, "tls.ca")
        if self.certificate is not None and self.key is not None:
            _load_certificates(_client_context(), self.certificate, "tls.certificate")
            _load_pair(context, self.certificate, self.key)
        return context


class TlsProbe:
    """Finds out why a connection with these settings fails. Thread-safe."""

    def __init__(self, tls: Tls | None) -> None:
        """Errors: as Tls.context()."""
        self._tls = tls
        self._context = tls.context() if tls else _trusting_context()
        self._context.set_alpn_protocols(["h2"])

    def explain(self, target: str, seconds: float) -> Unavailable | None:
        """Returns the problem with keys and certificates; None if they aren't the cause.

        Connects once more, for at most a second.
        """
        address = split(target)
        if address is None:
            return None
        tls, where = self._tls, "{}:{}".format(*address)
        name = tls.server_name if tls and tls.server_name else address[0]
        try:
            with socket.create_connection(address, min(seconds, _PROBE_SECONDS)) as plain, (
                    self._context.wrap_socket(plain, server_hostname=name)) as connection:
                if tls is None:
                    return unavailable("MISSING", "tls", "none", f"tls, which {where} speaks")
                return _refused(tls, where) if _is_closed(connection) else None
        except ssl.SSLCertVerificationError as error:
            authority = "an authority in tls.ca" if tls and tls.ca else "a well-known authority"
            return unavailable(
                "OUT_OF_RANGE", "tls", f"a certificate of {where} that isn't valid "
                f"({error.verify_message.rstrip('.')})", f"one for '{name}' from {authority}")
        except ssl.SSLError as error:
            if tls and error.reason == "WRONG_VERSION_NUMBER":
                return unavailable("OUT_OF_RANGE", "tls", f"plaintext at {where}",
                                   "a server that speaks TLS, or a client without tls")
            return _refused(tls, where) if tls and "ALERT" in (error.reason or "") else None
        except OSError:  # no server, or no answer
            return None


def _is_closed(connection: ssl.SSLSocket) -> bool:
    """Returns whether the server closes the connection after its part of the handshake.

    It does so if it requires a client certificate or refuses the client's. Otherwise it begins
    to speak HTTP/2.
    """
    try:
        return not connection.recv(1)
    except ConnectionError:
        return True


def _refused(tls: Tls, where: str) -> Unavailable:
    return unavailable(
        "OUT_OF_RANGE" if tls.certificate else "MISSING", "tls.certificate",
        "one that isn't taken" if tls.certificate else "none",
        f"one from an authority that {where} trusts")


def _client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Accept every cipher that gRPC accepts.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    return context


def _trusting_context() -> ssl.SSLContext:
    context = _client_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _read(file: File | None) -> bytes | None:
    return file if file is None or isinstance(file, bytes) else Path(file).read_bytes()


def _shown(file: File) -> str:
    return "bytes" if isinstance(file, bytes) else f"'{file}'"


def _load_certificates(context: ssl.SSLContext, file: File, option: str) -> None:
    try:
        context.load_verify_locations(cadata=(_read(file) or b"").decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise invalid("OUT_OF_RANGE", option, _shown(file), "certificates in PEM") from None


def _load_pair(context: ssl.SSLContext, certificate: File, key: File) -> None:
    if not hasattr(os, "memfd_create"):  # outside Linux
        return
    with _in_memory(certificate) as certificate_path, _in_memory(key) as key_path:
        try:
            context.load_cert_chain(certificate_path, key_path, password="")
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                found, expected = "another certificate's", "that of tls.certificate"
            else:
                found, expected = _shown(key), "a private key in PEM that isn't encrypted"
            raise invalid("OUT_OF_RANGE", "tls.key", found, expected) from None


@contextlib.contextmanager
def _in_memory(file: File) -> Iterator[str]:
    """Yields the path of an in-memory file, because OpenSSL reads pairs only from files."""
    descriptor = os.memfd_create("pem")
    try:
        os.write(descriptor, _read(file) or b"")
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
