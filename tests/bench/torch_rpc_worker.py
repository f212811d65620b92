"""Runs a worker of torch.distributed.rpc in its own process, over TCP on loopback."""

import atexit
import functools
import multiprocessing
import os
import socket

from torch.distributed import rpc


def _join(name, rank, port):
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    # Excludes the transports through shared memory, because they aren't a network, and their
    # idle threads poll, which slows other measurements.
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://127.0.0.1:{port}", rpc_timeout=600, _transports=["uv"],
        _channels=["basic"])
    rpc.init_rpc(name, rank=rank, world_size=2, rpc_backend_options=options)


def _serve(port):
    _join("worker", 1, port)
    rpc.shutdown()  # returns when the caller has ended


@functools.cache
def start_worker():
    """Starts the process that calls address as "worker". It ends with this process. Call this
    only once, because a process that has joined a group can't join another."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    multiprocessing.get_context("spawn").Process(
        target=_serve, args=(port,), daemon=True).start()
    _join("caller", 0, port)
    atexit.register(rpc.shutdown)
