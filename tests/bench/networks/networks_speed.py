"""Times steps of whole networks on the server, in PyTorch and in other programs."""

import concurrent.futures
import contextlib
import multiprocessing
import statistics
import sys
import time

import torch
from networks_models import NETWORKS, data
from networks_peers import OnnxRuntime, OpenVino, RayActor, TorchRpc, has
from networks_runners import InProcess, OnServer
from networks_server import counted, peak_mib, server

import convgrad

MEASURED = ("resnet18", "resnet50", "mobilenet_v2", "unet")
EAGER = ("eager-first", "eager-last")
COMPILED = ("compiled-first", "compiled-last")
RUNNERS = ("ours", *EAGER, *COMPILED, "onnxruntime", "openvino", "ray", "rpc")
# The groups of runners that ours is compared with: the best of each.
REFERENCES = {
    "training": {"eager": EAGER, "compiled": COMPILED, "PyTorch": EAGER + COMPILED,
                 "Ray and RPC": ("ray", "rpc")},
    "inference": {"eager": EAGER, "PyTorch and ONNX Runtime":
                  (*EAGER, *COMPILED, "onnxruntime"), "OpenVINO": ("openvino",),
                  "Ray and RPC": ("ray", "rpc")},
}


def make_runner(kind, name, dtype, images, client, fast):
    """Returns None if the runner's package isn't installed or lacks the dtype."""
    if kind == "ours":
        return OnServer(name, dtype, client, fast)
    if kind in EAGER + COMPILED:
        how, layout = kind.split("-")
        return InProcess(name, dtype, layout, how == "compiled")
    if kind == "rpc":
        return TorchRpc(name, dtype)
    if not has(kind) or (kind == "onnxruntime" and dtype != "f32"):
        return None
    if kind == "ray":
        return RayActor(name, dtype)
    return OnnxRuntime(name, images) if kind == "onnxruntime" else OpenVino(
        name, images, dtype)


def turns(runners, work, rounds, steps):
    """Returns milliseconds per step for each runner and round; the runners take turns."""
    times = {kind: [] for kind in runners}
    for runner in runners.values():
        work(runner, 2)
    for _ in range(rounds):
        for kind, runner in runners.items():
            start = time.perf_counter()
            work(runner, steps)
            times[kind].append((time.perf_counter() - start) / steps * 1000)
    return times


def train_alone(name, dtype, layout, threads, shape):
    """Returns the peak of resident memory of a process that trains two steps, in MiB."""
    torch.set_num_threads(threads)
    InProcess(name, dtype, layout).train(*data(name, *shape), 2)
    return peak_mib()


def torch_peaks(name, dtype, threads, shape):
    """Returns PyTorch's peak for each layout, each in its own process, in MiB."""
    peaks = {}
    for layout in ("first", "last"):
        with concurrent.futures.ProcessPoolExecutor(
                1, multiprocessing.get_context("spawn")) as process:
            peaks[layout] = process.submit(
                train_alone, name, dtype, layout, threads, shape).result()
    return peaks


def cost(name, dtype, options, shape):
    """Returns a row with the bytes that a step moves and the peaks of memory."""
    images, labels = data(name, *shape)
    families = [f"convgrad_{way}_bytes_total" for way in ("received", "sent")]
    with server(options.build, options.threads) as (pid, target, port), \
            convgrad.Client(target, timeout=600) as client, \
            contextlib.closing(OnServer(name, dtype, client)) as runner:
        runner.train(images, labels, 1)
        before = [counted(port, family) for family in families]
        runner.train(images, labels, 4)
        up, down = ((counted(port, family) - then) / 4
                    for family, then in zip(families, before))
        ours = peak_mib(pid)
    theirs = torch_peaks(name, dtype, options.threads, shape)
    best = min(theirs.values())
    return [name, f"{up / 1e6:.3f}", f"{down / 1e6:.6f}", f"{ours:.0f}",
            *(f"{peak:.0f}" for peak in theirs.values()), f"{ours / best:.2f}"]


def measure(name, dtype, options, shape):
    """Returns milliseconds for each runner and round, of training and of inference."""
    images, labels = data(name, *shape)
    with server(options.build, options.threads) as (_, target, _), \
            convgrad.Client(target, timeout=600) as client, contextlib.ExitStack() as stack:
        runners = {}
        for kind in options.runners:
            runner = make_runner(kind, name, dtype, images, client, options.fast)
            if runner is not None:
                runners[kind] = runner
                stack.callback(runner.close)
        trainers = {kind: r for kind, r in runners.items() if hasattr(r, "train")}
        times = {"training": turns(trainers, lambda r, n: r.train(images, labels, n),
                                   options.rounds, options.steps)}
        for runner in trainers.values():
            runner.eval()
        times["inference"] = turns(runners, lambda r, n: r.infer(images, n),
                                   options.rounds, options.steps)
    return times


def ratios(times, references, of):
    """Returns ours divided by the best of each reference, where `of` reduces a runner's rounds;
    None for a reference that didn't run."""
    ours = of(times["ours"])
    best = [min((of(times[kind]) for kind in kinds if kind in times), default=None)
            for kinds in references.values()]
    return [None if b is None else ours / b for b in best]


def markdown(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def ratio_text(ratio):
    return "" if ratio is None else f"{ratio:.2f}"


def speed_table(what, times_by_network):
    """Returns minimum (median) of each runner, and ours divided by the others' best minimum."""
    references = REFERENCES[what]
    kinds = list(next(iter(times_by_network.values())))
    header = ["network", *kinds, *(f"over {name}" for name in references)]
    rows, least, middle = [], [], []
    for name, times in times_by_network.items():
        least.append(ratios(times, references, min))
        middle.append(ratios(times, references, statistics.median))
        rows.append([name, *(f"{min(times[k]):.1f} ({statistics.median(times[k]):.1f})"
                             for k in kinds), *map(ratio_text, least[-1])])
    for title, found in (("geomean", least), ("geomean of medians", middle)):
        means = [None if None in column else statistics.geometric_mean(column)
                 for column in zip(*found)]
        rows.append([title, *[""] * len(kinds), *map(ratio_text, means)])
    return markdown(header, rows)


def speed(options):
    """Prints the tables, one for each dtype and kind of work."""
    torch.set_num_threads(options.threads)
    for dtype in options.dtypes:
        found, costs = {"training": {}, "inference": {}}, []
        for name in options.networks or MEASURED:
            batch, size = NETWORKS[name][1]
            shape = (options.batch or batch, options.size or size)
            costs.append(cost(name, dtype, options, shape))
            for what, times in measure(name, dtype, options, shape).items():
                found[what][name] = times
            print(f"{dtype} {name} is measured", file=sys.stderr, flush=True)
        for what, times in found.items():
            print(f"## {what}, {dtype}: milliseconds a step, minimum (median)\n")
            print(speed_table(what, times))
        print(f"## {dtype}: bytes of a training step, and the peak of resident memory\n")
        print(markdown(["network", "MB up", "MB down", "server MiB", "PyTorch first MiB",
                        "PyTorch last MiB", "over PyTorch's least"], costs), flush=True)
