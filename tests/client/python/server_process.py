"""Runs a convgrad-server for a test."""

from __future__ import annotations

import atexit
import contextlib
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator

BINARY = (pathlib.Path(os.environ.get("CONVGRAD_BUILD_DIR", "build/release"))
          / "server" / "convgrad-server").resolve()


def free_port(*hosts: str) -> int:
    """Returns a port that is free at each of these addresses. A server that is started again
    finds it free, because no outgoing connection gets it."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10000, max(first, 20000))
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for host in hosts:
                stack.enter_context(socket.socket()).bind((host, port))
            return port


class ServerProcess:
    """Serves on a free port, and on the same one after restart().

    Workers have one thread, because threads that wait for each other are slow on a
    busy machine.
    """

    def __init__(self, *flags: str) -> None:
        self.flags = flags
        self.address = f"127.0.0.1:{free_port('127.0.0.1')}"
        self.restart()
        # For tests that fail before they end the server.
        atexit.register(self.kill)

    def restart(self) -> None:
        listen = () if any(f.startswith("--listen=") for f in self.flags) else (
            f"--listen={self.address}",)
        self.process = subprocess.Popen(
            [BINARY, *listen, "--metrics_listen=", "--workers=2",
             "--threads_per_worker=1", "--pin_workers=false", *self.flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        text = ""
        for line in self.process.stdout:
            text += line
            metrics = re.search(r"metrics on port (\d+)", line)
            if metrics:
                self.metrics_port = int(metrics[1])
            found = re.search(r"listening on (\S+)", line)
            if found:
                self.address = found[1]
                break
        else:
            raise AssertionError(f"convgrad-server didn't start: {text}")
        # Reads the rest, because the pipe must not fill.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def received_bytes(self, operation: str = "") -> float:
        """Returns the payload of requests so far, of one operation or all. Needs the flag
        --metrics_listen=127.0.0.1:0."""
        return sum(float(line.split()[-1]) for line in self._metrics()
                   if line.startswith("convgrad_received_bytes_total{")
                   and (not operation or f'op="{operation}"' in line))

    def metric(self, name: str) -> float:
        """Returns a metric without labels. Needs the same flag."""
        return next(float(line.split()[-1]) for line in self._metrics()
                    if line.startswith(f"{name} "))

    def _metrics(self) -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics") as page:
            return page.read().decode().splitlines()

    def stand_still(self) -> None:
        """Stops the server until SIGCONT or kill(). Returns when none of its threads runs."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        self.stand_still()
        yield
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kills the server, as a loss of power would."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=60)
