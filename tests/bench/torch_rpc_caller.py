#!/usr/bin/env python3
"""Has a worker of torch.distributed.rpc compute a backward pass, over TCP on loopback.

    torch_rpc_caller.py PROBLEM DTYPE

Runs it as often as each line read says ("rpc COUNT") and prints milliseconds. Tensors are
channels last, as PyTorch computes them fastest.
"""

import multiprocessing
import os
import re
import socket
import sys
import time

import torch
from torch.distributed import rpc


def backward(grad_output, data, weight, settings):
    """Returns the gradients, on the worker."""
    stride, pad, wanted = settings
    return torch.ops.aten.convolution_backward(
        grad_output, data, weight, [weight.shape[0]], [stride] * 2, [pad] * 2, [1, 1],
        False, [0, 0], 1, wanted)


def join(name, rank, port):
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    # Without the transports through shared memory, which are quicker and no network.
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://127.0.0.1:{port}", _transports=["uv"], _channels=["basic"])
    rpc.init_rpc(name, rank=rank, world_size=2, rpc_backend_options=options)


def serve(port):
    join("worker", 1, port)
    rpc.shutdown()  # returns once the caller is done


def arguments_of(problem, dtype):
    size = {letter: int(value) for letter, value in re.findall(r"_([a-z])(\d+)", problem)}
    kernel, stride, pad = size["k"], size.get("s", 1), size.get("p", 0)
    extent = (size["i"] + 2 * pad - kernel) // stride + 1

    def tensor(*shape):
        values = torch.full(shape, 0.5, dtype=dtype)
        return values.contiguous(memory_format=torch.channels_last)

    wanted = [size["c"] != 3, True, True]
    return (tensor(size["n"], size["o"], extent, extent),
            tensor(size["n"], size["c"], size["i"], size["i"]),
            tensor(size["o"], size["c"], kernel, kernel), (stride, pad, wanted))


def main():
    problem, dtype = sys.argv[1], {"f32": torch.float32, "bf16": torch.bfloat16}[sys.argv[2]]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    worker = multiprocessing.get_context("spawn").Process(target=serve, args=(port,))
    worker.start()
    join("caller", 0, port)
    arguments = arguments_of(problem, dtype)
    for line in sys.stdin:
        times = []
        for _ in range(int(line.split()[1])):
            start = time.perf_counter()
            result = rpc.rpc_sync("worker", backward, arguments)
            times.append(1e3 * (time.perf_counter() - start))
            del result
        print(*(f"{one:.4f}" for one in times), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main()
