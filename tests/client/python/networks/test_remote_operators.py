"""Tests every row of the table of torch's operators: the calls that lead to it, and its
documentation."""

import copy
import inspect
import pathlib
import re
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from test_remote_import import Module, import_, steps_of
from torch import nn

from convgrad.torch import optim
from convgrad.torch.networks.operators import table

PAGE = pathlib.Path(__file__).parents[4] / "client/python/networks.md"


class Row(NamedTuple):
    """The modules and functions that lead to one operator."""

    modules: tuple
    functions: tuple = ()
    in_place: tuple = ()


ACTIVATIONS = (
    Row((nn.ReLU,), (F.relu, torch.relu, "relu", "relu_"), (F.relu_, torch.relu_)),
    Row((nn.ReLU6,), (F.relu6,)),
    Row((nn.LeakyReLU,), (F.leaky_relu,), (F.leaky_relu_,)),
    Row((nn.Sigmoid,), (F.sigmoid, torch.sigmoid, "sigmoid", "sigmoid_"), (torch.sigmoid_,)),
    Row((nn.SiLU,), (F.silu,)),
    Row((nn.Tanh,), (F.tanh, torch.tanh, "tanh", "tanh_"), (torch.tanh_,)),
    Row((nn.GELU,), (F.gelu,)),
    Row((nn.ELU,), (F.elu,), (F.elu_,)),
    Row((nn.Mish,), (F.mish,)),
    Row((nn.Softplus,), (F.softplus,)),
    Row((nn.Hardsigmoid,), (F.hardsigmoid,)),
    Row((nn.Hardswish,), (F.hardswish,)),
    Row((nn.Hardtanh,), (F.hardtanh,), (F.hardtanh_,)),
)


def ids_of(row):
    return row.modules[0].__name__


def modules_of(row):
    module = row.modules[0]
    takes = inspect.signature(module).parameters
    return [module()] + ([module(inplace=True)] if "inplace" in takes else [])


def call(function, y):
    """Calls a function, or the tensor's method of this name."""
    return getattr(y, function)() if isinstance(function, str) else function(y)


def batches():
    """Yields ordinary, large and tiny numbers."""
    generator = torch.Generator().manual_seed(3)
    for scale in (1.0, 30.0, 1e-20):
        yield scale * torch.randn(6, 5, generator=generator)


@pytest.mark.parametrize("row", ACTIVATIONS, ids=ids_of)
def test_an_activation_is_torchs(make_remote, row):
    for activation in modules_of(row):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 7), activation, nn.Linear(7, 3))
        net = make_remote(copy.deepcopy(model))
        pairs = [(net, optim.SGD(net.parameters(), lr=0.1)),
                 (model, torch.optim.SGD(model.parameters(), lr=0.1))]
        for x in batches():
            found = []
            for one, optimizer in pairs:
                given = x.clone().requires_grad_()
                y = one(given)
                y.square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                found.append((y.detach(), given.grad))
            torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
        for name, tensor in net.state_dict().items():
            torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("row", ACTIVATIONS, ids=ids_of)
def test_calls_that_lead_to_an_activation(row):
    steps = [steps_of(import_(nn.Sequential(nn.Linear(2, 2), module), ("input",)))
             for module in modules_of(row)]
    calls = [*row.functions, *row.in_place]
    for function in calls:
        steps.append(steps_of(import_(Module(
            lambda self, x, function=function: call(function, self.f(x)),
            f=nn.Linear(2, 2)), shape=(2, 2))))
    assert len({tuple(step[1] for step in found) for found in steps}) == 1
    # An in-place call changes its operand for all later users.
    for function in calls:
        def forward(self, x, function=function):
            y = self.f(x)
            call(function, y)
            return y

        name = function if isinstance(function, str) else function.__name__
        found = steps_of(import_(Module(forward, f=nn.Linear(2, 2)), shape=(2, 2)))
        assert len(found) == (2 if name.endswith("_") else 1), name


def test_the_page_has_the_operators():
    """Each row of the page's table has the names of one dictionary of rows."""
    kinds = {"layers": table._LAYERS, "elements": table._ELEMENTS, "sums": table._SUMS,
             "moves": table._VIEWS, "writes": table._WRITES, "tokens": table._TOKENS}
    found = {title: set(re.findall(r"`(\w+)`", names)) for title, names in re.findall(
        r"^\| (\w+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE) if title in kinds}
    assert found == {title: set(rows) for title, rows in kinds.items()}
