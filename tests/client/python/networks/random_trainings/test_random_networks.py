"""Compares random networks and trainings on a server with torch's in float64.

CONVGRAD_SEEDS=FIRST:END selects other seeds, as a Python range.
"""

import concurrent.futures
import multiprocessing
import os
import warnings
from collections import Counter

import pytest
import random_verdicts
import torch
from random_verdicts import Verdict, judge, judge_beside

import convgrad
from convgrad.torch import optim

_SEEDS = 20_000 if os.environ.get("CONVGRAD_FULL") else 300
# Number of trainings that run at once in one process.
_BESIDE = 4


def seeds():
    first, _, end = os.environ.get("CONVGRAD_SEEDS", f"0:{_SEEDS}").partition(":")
    return range(int(first), int(end))


def begin(address):
    """Prepares a process for judge_here()."""
    global client
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # PyTorch 1.13's backward by oneDNN writes past its memory (the network of seed 2682).
    torch.backends.mkldnn.set_flags(False)
    client = convgrad.Client(address, timeout=120)


def judge_here(seed):
    return judge(seed, client)


def test_trainings_are_those_of_torch(server):
    with concurrent.futures.ProcessPoolExecutor(
            os.cpu_count(), multiprocessing.get_context("spawn"), begin,
            (server.address,)) as pool:
        verdicts = list(pool.map(judge_here, seeds(), chunksize=5))
    faults = [verdict.text for verdict in verdicts if verdict.is_fault]
    assert not faults, "\n".join(faults)
    kinds = Counter(verdict.text.partition(":")[0] for verdict in verdicts)
    print(kinds)
    # Most trainings are neither refused nor on different sides of a ReLU's zero.
    assert kinds["same"] > 0.6 * len(verdicts)
    assert len(verdicts) - kinds["same"] - kinds["refused"] <= 0.03 * len(verdicts)


def test_trainings_of_several_threads(client):
    verdicts = judge_beside(range(1000, 1000 + _BESIDE), client)
    assert not [verdict.text for verdict in verdicts if verdict.is_fault]


# The tests below show that the comparison finds a wrong client.

def _of_group(change):
    def broken(monkeypatch):
        settings_of = optim.SGD.settings_of
        monkeypatch.setattr(optim.SGD, "settings_of",
                            lambda self, group: settings_of(self, {**group, **change}))

    return broken


def _of_step(operator, change):
    """Makes programs contain a wrong step."""
    def broken(monkeypatch):
        step = convgrad.Program.step

        def other(self, kind, /, *operands, attributes=None, **keywords):
            if kind == operator:
                attributes = {**(attributes or {}), **change}
            return step(self, kind, *operands, attributes=attributes, **keywords)

        monkeypatch.setattr(convgrad.Program, "step", other)

    return broken


def _zero_grad_forgets(monkeypatch):
    monkeypatch.setattr(optim.RemoteOptimizer, "zero_grad", lambda self: None)


BREAKAGES = {
    "weight decay": _of_group(dict(weight_decay=0.0)),
    "dampening": _of_group(dict(dampening=0.0)),
    "epsilon": _of_step("batch_norm", dict(eps=2e-5)),
    "slope": _of_step("leaky_relu", dict(negative_slope=0.02)),
    "count_include_pad": _of_step("avg_pool", dict(count_include_pad=True)),
    "zero_grad": _zero_grad_forgets,
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_client_that_is_wrong_is_found(client, monkeypatch, name):
    BREAKAGES[name](monkeypatch)
    assert any(judge(seed, client).is_fault for seed in range(120))


@pytest.mark.parametrize("differing, is_fault", [
    ({}, False), ({0}, False), ({0, 3}, False), ({0, 1, 4}, True), ({0, 1, 2, 3, 4}, True),
    ({1, 2, 3, 4}, False)])
def test_what_differs_once_lies_within_rounding_of_zero(monkeypatch, differing, is_fault):
    class Stub:
        def __init__(self, seed, client, data=0):
            self.comparison = type("C", (), {
                "differences": ["output 0"] if data in differing else []})
            self.story = []

        def run(self):
            return "same"

    monkeypatch.setattr(random_verdicts, "Training", Stub)
    assert judge(7, None).is_fault == is_fault


def test_what_differs_otherwise_when_it_is_repeated_is_a_fault(monkeypatch):
    found = iter((["one"], ["other"]))

    class Stub:
        def __init__(self, seed, client, data=0):
            self.comparison, self.story = type("C", (), {"differences": next(found)}), []

        def run(self):
            return "same"

    monkeypatch.setattr(random_verdicts, "Training", Stub)
    assert judge(7, None) == Verdict(7, True, judge_text())


def judge_text():
    return ("seed 7:\n  one\n  after: \n  differs otherwise when it is repeated: ['other']")
