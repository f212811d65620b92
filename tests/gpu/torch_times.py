#!/usr/bin/env python3
"""Times PyTorch's convolution backward on the GPU for cuda_times: prints lines
"LAYER DTYPE MILLISECONDS".

    torch_times.py LAYER...

Uses PyTorch's defaults except TF32, which is off; heuristics choose cuDNN's
engines. Without PyTorch or a device it reports this on stderr and returns 77.
"""
import re
import statistics
import sys

SKIPPED = 77
CALLS = 10  # between two events, so that launches don't count
RUNS = 21
FIELDS = re.compile(r"_(n|c|o|i|k|s|p)(\d+)(?=_|$)")


def milliseconds(torch, layer, dtype):
    size = {"s": 1, "p": 0}
    size.update({key: int(value) for key, value in FIELDS.findall(layer)})
    out = (size["i"] + 2 * size["p"] - size["k"]) // size["s"] + 1
    order = (torch.contiguous_format if dtype == torch.float32
             else torch.channels_last)

    def tensor(*dims):
        return torch.zeros(dims, dtype=dtype, device="cuda").to(
            memory_format=order)

    gradient = tensor(size["n"], size["o"], out, out)
    data = tensor(size["n"], size["c"], size["i"], size["i"])
    weight = tensor(size["o"], size["c"], size["k"], size["k"])

    def run():
        for _ in range(CALLS):
            torch.ops.aten.convolution_backward(
                gradient, data, weight, None, [size["s"]] * 2, [size["p"]] * 2,
                [1, 1], False, [0, 0], 1, [True, True, False])

    run()
    times = []
    for _ in range(RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / CALLS)
    return statistics.median(times)


def main(layers):
    try:
        import torch
    except ImportError:
        print("no PyTorch: not compared with", file=sys.stderr)
        return SKIPPED
    if not torch.cuda.is_available():
        print("this PyTorch sees no GPU: not compared with", file=sys.stderr)
        return SKIPPED
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"PyTorch {torch.__version__}, cuDNN "
          f"{torch.backends.cudnn.version()}", file=sys.stderr)
    for name, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16),
                        ("f32", torch.float32)):
        for layer in layers:
            print(layer, name, milliseconds(torch, layer, dtype))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
