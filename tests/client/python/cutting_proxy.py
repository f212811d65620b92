"""Provides a TCP proxy that cuts connections, so that answers of the server get lost."""

from __future__ import annotations

import contextlib
import random
import socket
import threading


class CuttingProxy:
    """Forwards to `address`, and cuts each connection after some bytes in either direction.

    Draws the number of bytes from `mean_bytes`, until it has cut `cuts` connections. It also
    cuts a connection without data for `silence` seconds, and counts it in `silent`.
    """

    def __init__(self, address: str, cuts: int = 0, mean_bytes: float = 1, seed: int = 0,
                 silence: float | None = None) -> None:
        self._silence = silence
        self.silent = 0
        host, port = address.rsplit(":", 1)
        self._server = (host, int(port))
        self._random = random.Random(seed)
        self._mean_bytes = mean_bytes
        self._wanted = cuts
        self.cuts = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(self._server)
                self._connections += [client, server]
                left = [self._random.expovariate(1 / self._mean_bytes)]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(source, sink, left),
                                     daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, left: list[float]) -> None:
        with contextlib.suppress(OSError):
            while data := self._receive(source):
                with self._lock:
                    left[0] -= len(data)
                    is_cut = left[0] < 0 and self.cuts < self._wanted
                    if is_cut:
                        self.cuts += 1
                        left[0] = float("inf")
                if is_cut:
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _receive(self, source: socket.socket) -> bytes:
        source.settimeout(self._silence)
        try:
            return source.recv(4096)
        except TimeoutError:
            self.silent += 1
            raise

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for end in (self._listener, *self._connections):
            end.close()
