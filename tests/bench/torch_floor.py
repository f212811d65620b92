#!/usr/bin/env python3
"""Times PyTorch's backward of a 2-D convolution, channels last.

    torch_floor.py BATCH IN OUT SIZE KERNEL STRIDE PAD DTYPE GRAD_INPUT THREADS

Runs it once for every input line and prints its milliseconds. DTYPE is f32 or
bf16; GRAD_INPUT is 0 or 1; the other gradients are always computed.
"""
import sys
import time

import torch


def main():
    """Answers each line with a time."""
    batch, ins, outs, size, kernel, stride, pad = map(int, sys.argv[1:8])
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[sys.argv[8]]
    torch.set_num_threads(int(sys.argv[10]))

    def tensor(*shape):
        values = torch.randn(*shape).to(dtype)
        return values.contiguous(memory_format=torch.channels_last)

    data = tensor(batch, ins, size, size)
    weight = tensor(outs, ins, kernel, kernel)
    out = (size + 2 * pad - kernel) // stride + 1
    gradient = tensor(batch, outs, out, out)
    wanted = [sys.argv[9] == "1", True, True]
    for _ in sys.stdin:
        start = time.perf_counter()
        torch.ops.aten.convolution_backward(
            gradient, data, weight, [outs], [stride] * 2, [pad] * 2, [1, 1],
            False, [0, 0], 1, wanted)
        print((time.perf_counter() - start) * 1e3, flush=True)


if __name__ == "__main__":
    main()
