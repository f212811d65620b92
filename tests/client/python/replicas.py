"""Runs two servers behind one name."""

from __future__ import annotations

import pathlib

from server_process import ServerProcess, free_port

HOSTS = ("127.0.0.1", "127.0.0.2")


class Replicas:
    """Two servers at one port of two addresses of this host, with durable sessions. Each
    advertises its own address."""

    def __init__(self, folder: pathlib.Path, *flags: str, advertise: str = "{}:{}") -> None:
        self.port = free_port(*HOSTS)
        self.servers = {
            f"{host}:{self.port}": ServerProcess(
                f"--listen={host}:{self.port}", f"--state_dir={folder / host}",
                f"--advertise={advertise.format(host, self.port)}", *flags)
            for host in HOSTS}
        # gRPC uses the addresses in turn, like those of a name.
        self.target = f"ipv4:{','.join(self.servers)}"

    def kill(self) -> None:
        for server in self.servers.values():
            server.kill()
