#!/usr/bin/env python3
"""Calls a server from Python, as often as each input line says, and prints milliseconds.

    python_caller.py TCP UNIX PROBLEM DTYPE

Input lines are "NAME COUNT". Names are tcp, unix, region (operands and results in place),
tcp_out and unix_out (results into existing arrays). For "stages 0" it prints the stages of a
call over TCP, as JSON.
"""

import json
import re
import statistics
import sys
import time

import numpy as np

import convgrad
from convgrad import operations

STAGE_CALLS = 500


class Backward:
    """The arguments of a backward pass, in the layouts of tests/bench/rpc_ratio.cc."""

    def __init__(self, problem, dtype):
        size = {letter: int(value) for letter, value in re.findall(r"_([a-z])(\d+)", problem)}
        kernel, stride, pad = size["k"], size.get("s", 1), size.get("p", 0)
        extent = (size["i"] + 2 * pad - kernel) // stride + 1
        shapes = {"grad_output": (size["n"], extent, extent, size["o"]),
                  "input": (size["n"], size["i"], size["i"], size["c"]),
                  "weight": (size["o"], size["c"], kernel, kernel)}
        self.dtype = convgrad.layouts.DTYPES[dtype]
        self.arrays = {name: np.full(shape, 0.5, self.dtype) for name, shape in shapes.items()}
        self.keywords = dict(layout="NXC", stride=stride, padding=pad)
        self.results = {"grad_weight": (shapes["weight"], np.float32),
                        "grad_bias": ((size["o"],), np.float32)}
        if size["c"] == 3:  # a first layer needs no grad_input
            weight = self.arrays.pop("weight")
            self.keywords["weight_shape"] = weight.shape
        else:
            self.results["grad_input"] = (shapes["input"], self.dtype)
        self.keywords["gradients"] = tuple(self.results)

    def out(self, empty):
        return {name: empty(shape, dtype) for name, (shape, dtype) in self.results.items()}

    def moved(self, region):
        found = {}
        for name, array in self.arrays.items():
            found[name] = region.empty(array.shape, array.dtype)
            found[name][...] = array
        return found


def callers(tcp, unix, backward):
    """Returns functions that make one call, by name."""
    near = convgrad.Client(tcp)
    clients = {"tcp": near, "unix": convgrad.Client(unix)}
    found = {}
    for way, client in clients.items():
        found[way] = lambda client=client: client.conv_backward(
            **backward.arrays, **backward.keywords)
        out = backward.out(np.empty)
        found[f"{way}_out"] = lambda client=client, out=out: client.conv_backward(
            **backward.arrays, **backward.keywords, out=out)
    size = sum(array.nbytes for array in backward.arrays.values()) + sum(
        array.nbytes for array in backward.out(np.empty).values())
    sharing = convgrad.Client(tcp)  # a second client, so that other calls need no region lookup
    region = sharing.region(size + 4096)
    inside, out = backward.moved(region), backward.out(region.empty)
    found["region"] = lambda: sharing.conv_backward(**inside, **backward.keywords, out=out)
    return found


def seconds_of(call):
    """Returns the time of the call. Frees its result after the measurement, as caller.cc does.
    """
    start = time.perf_counter()
    result = call()
    took = time.perf_counter() - start
    del result
    return took


def stages(call, backward):
    """Returns medians in seconds: the client's checks and encoding, the server, the rest."""
    totals, servers, prepared = [], [], []
    for _ in range(STAGE_CALLS):
        start = time.perf_counter()
        report = call().report
        totals.append(time.perf_counter() - start)
        servers.append(report.seconds.total)
        prepared.append(seconds_of(lambda: operations.conv_backward(
            **backward.arrays, **backward.keywords)))
    total, server, prepare = map(statistics.median, (totals, servers, prepared))
    return {"all": total, "checks and message": prepare, "server": server,
            "transport and reply": total - server - prepare}


def main():
    tcp, unix, problem, dtype = sys.argv[1:]
    backward = Backward(problem, dtype)
    calls = callers(tcp, unix, backward)
    for line in sys.stdin:
        name, count = line.split()
        if name == "stages":
            print(json.dumps(stages(calls["tcp"], backward)), flush=True)
            continue
        print(*(f"{1e3 * seconds_of(calls[name]):.4f}" for _ in range(int(count))), flush=True)


if __name__ == "__main__":
    main()
