#!/usr/bin/env python3
"""Times calls of Python, of the C++ client and of torch RPC, interleaved in one run.

    python_speed.py [--build build/release] [--repeats 7] [--short]

Needs the convgrad package with its native module, and PyTorch for torch RPC. Prints tables:
the least milliseconds of backward passes by layer, with geometric means of their ratios, and
the stages of a tiny call. Client and server are on this machine.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from call_server import LAYERS, SHORT_LAYERS, TINY, Server
from report import geomean, machine, number, table

HERE = pathlib.Path(__file__).resolve().parent
WAYS = ("tcp", "unix", "region")
# For each contestant, the C++ client's call over the same transport.
CPP = {"tcp": "tcp", "unix": "unix", "region": "region_in_place"}


class Process:
    """Runs a program that answers "NAME COUNT" with milliseconds."""

    def __init__(self, command, **environment):
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_WAIT_POLICY": "passive", **environment})

    def run(self, name, count):
        """Returns the milliseconds of `count` runs."""
        print(name, count, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args[:3]} has ended")
        return [float(time) for time in line.split()]

    def ask(self, name):
        """Returns its statistics of the last calls."""
        print(name, 0, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def python(server, problem, dtype, **environment):
    return Process([sys.executable, HERE / "python_caller.py", server.tcp, server.unix,
                    problem, dtype], **environment)


def contestants(build, server, problem, dtype, with_torch):
    """Yields (label, process, the name that the process knows it by)."""
    cpp = Process([f"{build}/tests/bench/rpc_ratio", "--part=asked", f"--dtype={dtype}",
                   f"--tcp={server.tcp}", f"--unix={server.unix}",
                   f"--regions={server.regions}", problem])
    native = python(server, problem, dtype, CONVGRAD_TRANSPORT="native")
    pure = python(server, problem, dtype, CONVGRAD_TRANSPORT="python")
    yield "bare gRPC", cpp, "grpc"
    for way in WAYS:
        yield f"C++ {way}", cpp, CPP[way]
        yield f"Python native {way}", native, way
        if way != "region":
            yield f"Python native {way}, out=", native, f"{way}_out"
        yield f"Python pure {way}", pure, way
    if with_torch:
        yield "torch RPC tcp", Process(
            [sys.executable, "-W", "ignore", HERE / "torch_rpc_caller.py", problem, dtype]), "rpc"


def race(build, server, problem, dtype, counts, with_torch=False):
    """Returns each contestant's milliseconds, and the processes' answers to "stages"."""
    runs, count = counts
    entries = list(contestants(build, server, problem, dtype, with_torch))
    times = {label: [] for label, _, _ in entries}
    for turn in range(-2, runs):
        for label, process, name in entries:
            found = process.run(name, count)
            if turn >= 0:
                times[label] += found
    stages = next(process for label, process, _ in entries
                  if label == "Python native tcp").ask("stages")
    for process in {id(process): process for _, process, _ in entries}.values():
        process.close()
    return times, stages


def layers_table(races, dtype):
    """Returns the minima of each contestant, and geometric means against C++ and torch RPC."""
    least = [{label: min(times) for label, times in found.items()}
               for found in races.values()]
    lines = []
    for label in least[0]:
        same_way = next((f"C++ {way}" for way in WAYS if way in label), None)
        lines.append([label, *(number(one[label], 1) for one in least),
                      _ratio(least, label, same_way), _ratio(least, label, "torch RPC tcp")])
    return (f"## {dtype}: milliseconds, minimum\n\n"
            + table(["", *races, "/ C++ the same way", "/ torch RPC"], lines))


def _ratio(least, label, other):
    if other not in least[0]:
        return "-"
    return number(geomean(one[label] / one[other] for one in least))


def tiny_table(times, stages):
    """Returns the quantiles and the stages of a tiny call."""
    lines = [[label, number(1e3 * statistics.median(found), 0),
              number(1e3 * sorted(found)[int(0.99 * (len(found) - 1))], 0)]
             for label, found in times.items()]
    parts = [[name, number(1e6 * seconds, 0)] for name, seconds in stages.items()]
    return ("## tiny call: microseconds\n\n" + table(["", "p50", "p99"], lines)
            + "\nOf Python's call over TCP, by the native module, p50:\n\n"
            + table(["part", "us"], parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--short", action="store_true", help="whether it works, not how fast")
    options = parser.parse_args()
    with_torch = importlib.util.find_spec("torch") is not None
    layers = SHORT_LAYERS if options.short else LAYERS
    print(f"# Python's calls\n\n{machine()}.\n", flush=True)
    with tempfile.TemporaryDirectory() as folder, Server(
            options.build, folder, prefix=["env", "OMP_WAIT_POLICY=passive"]) as server:
        times, stages = race(options.build, server, TINY, "f32",
                             (2, 20) if options.short else (8, 100))
        print(tiny_table(times, stages), flush=True)
        for dtype in ("f32", "bf16"):
            races = {label: race(options.build, server, problem, dtype,
                                 (1 if options.short else options.repeats, 1), with_torch)[0]
                     for label, problem in layers.items()}
            print(layers_table(races, dtype), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
