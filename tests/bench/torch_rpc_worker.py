"""A worker of torch.distributed.rpc in a process of its own, over TCP on loopback."""

import atexit
import functools
import multiprocessing
import os
import socket

from torch.distributed import rpc


def _join(name, rank, port):
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    # The transports through shared memory are left out: they are no network, and their
    # threads poll while they are idle, which slows whatever else is measured.
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://127.0.0.1:{port}", rpc_timeout=600, _transports=["uv"],
        _channels=["basic"])
    rpc.init_rpc(name, rank=rank, world_size=2, rpc_backend_options=options)


def _serve(port):
    _join("worker", 1, port)
    rpc.shutdown()  # returns once the caller is done


@functools.cache
def start_worker():
    """Starts the process that calls name "worker". It ends with this process, once for
    all: a process that has joined a group can't join another."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    multiprocessing.get_context("spawn").Process(
        target=_serve, args=(port,), daemon=True).start()
    _join("caller", 0, port)
    atexit.register(rpc.shutdown)
