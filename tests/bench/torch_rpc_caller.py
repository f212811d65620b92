#!/usr/bin/env python3
"""Makes a worker of torch.distributed.rpc compute a backward pass, over TCP on loopback.

    torch_rpc_caller.py PROBLEM DTYPE

Runs it as often as each input line says ("rpc COUNT") and prints milliseconds. Tensors are
channels last, which is PyTorch's fastest layout.
"""

import re
import sys
import time

import torch
from torch.distributed import rpc
from torch_rpc_worker import start_worker


def backward(grad_output, data, weight, settings):
    """Returns the gradients; runs on the worker."""
    stride, pad, wanted = settings
    return torch.ops.aten.convolution_backward(
        grad_output, data, weight, [weight.shape[0]], [stride] * 2, [pad] * 2, [1, 1],
        False, [0, 0], 1, wanted)


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
    start_worker()
    arguments = arguments_of(problem, dtype)
    for line in sys.stdin:
        times = []
        for _ in range(int(line.split()[1])):
            start = time.perf_counter()
            result = rpc.rpc_sync("worker", backward, arguments)
            times.append(1e3 * (time.perf_counter() - start))
            del result
        print(*(f"{one:.4f}" for one in times), flush=True)


if __name__ == "__main__":
    main()
