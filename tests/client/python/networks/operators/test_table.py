"""Tests rows of the table of torch's operators: the calls that lead to them, their results, and
their documentation."""

import copy
import inspect
import math
import pathlib
import re
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from test_remote_import import Module, import_, steps_of
from test_remote_writes import Model, assert_as_torch
from torch import nn

import convgrad
from convgrad.torch import optim
from convgrad.torch.networks.operators import table

PAGE = pathlib.Path(__file__).parents[5] / "client/python/networks.md"


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


def moved(self, y, x):
    tokens = y.movedim(1, -1)
    tokens[..., 0] = 2.0
    y.narrow(3, 1, 2).mul_(3)
    return (y, y.moveaxis((1, 3), (-1, 1)), y.swapdims(1, 2) + 0, y.mT @ y, y.flip(3, 1),
            self.bias.flip(0) * y, F.channel_shuffle(y, 2), self.bias.roll(2) * y,
            self.bias.narrow(0, -3, 1) * y, self.bias[0].movedim(0, -1) * y)


def smallest(self, y, x):
    y = F.relu(y)  # with equal elements
    return (y.min(1)[0], y.min(-1, keepdim=True).values, y.amin((2, 3)),
            torch.max(y, self.bias), torch.min(y, torch.tensor([[0.5]])), y / y.max(),
            self.bias.min() * y.min())


def norms(self, y, x):
    return (torch.linalg.norm(y, dim=(1, 2)), torch.linalg.norm(y, 1, -1, keepdim=True),
            torch.linalg.norm(self.bias) * y, *torch.std_mean(y, (1, 3), correction=0))


def padded(self, y, x):
    return F.pad(y, (1, 0, 0, 0, 2, 1, 0, 0)), F.pad(y, (0, 0, 0, 0)) * 2, F.pad(y, ()) * 2


def of_each(self, y, x):
    return torch.exp2(y), y.abs().add(1).log2(), y.abs().add(1).log10(), F.selu(
        y), F.logsigmoid(30 * y), torch.lerp(y, y * y, self.bias), torch.lerp(
            y, self.bias.view(1, 1, 1, 6), self.bias[0]), torch.lerp(
                1e8 * y, y, 1.0), torch.lerp(1e8 * y, y, 1 - 1e-9 * self.bias.abs())


def of_matrices(self, y, x):
    tokens = y.flatten(2)
    squares = 0.01 * tokens @ tokens.mT
    return (torch.baddbmm(squares, squares, squares, beta=0.5, alpha=-2),
            (y.mT @ y).diagonal(dim1=-2, dim2=-1), torch.diagonal(y, 0, 3, 1) * 2,
            F.linear(y, self.bias), F.linear(y.transpose(1, 2)[:, 0], self.bias, self.bias[0]),
            torch.addmm(self.bias, y[:, 0, 0], self.bias[:, None] * self.bias, alpha=3))


def generalized_mean(self, y, x):
    """GeM pooling, with a learned exponent."""
    p = self.bias[:1].abs() + 1
    powers = y.clamp(min=1e-6).pow(p)
    return F.avg_pool2d(powers, (4, 6)).pow(1.0 / p), F.adaptive_avg_pool2d(
        powers, 1).flatten(1) ** (1 / p), powers.mean((-2, -1)).pow(1 / p)


def elsewhere(self, y, x):
    return (y.to(x.device) * 2, y.cpu() * self.bias.to(x.device),
            y.to("cpu", non_blocking=True, memory_format=torch.channels_last) + 1)


@pytest.mark.parametrize("function", [
    moved, smallest, norms, padded, of_each, generalized_mean, elsewhere])
def test_a_call(make_remote, function):
    assert_as_torch(make_remote, Model(function), 4, 3, 4, 6)


@pytest.mark.parametrize("function", [
    lambda self, y, x: y.pow(self.bias), lambda self, y, x: y.clamp(min=0).pow(self.bias),
    lambda self, y, x: y.clamp(max=1) ** self.bias, lambda self, y, x: 2.0 ** y,
    lambda self, y, x: (y.clamp(min=1) - 2).mean(1) ** self.bias,
    lambda self, y, x: y.clamp(min=1, max=-1) ** self.bias,
    lambda self, y, x: y.clamp(min=1e-50) ** self.bias,
    lambda self, y, x: (y - 200).exp() ** self.bias])
def test_a_power_of_what_may_be_0_or_negative(function):
    with pytest.raises(convgrad.Unimplemented, match="pow"):
        import_(Model(function), shape=(2, 3, 4, 6))


@pytest.mark.parametrize("function", [
    lambda x: x.pow(0.5), lambda x: x.pow(-0.5), lambda x: x.pow(1.5), lambda x: x.pow(-1.5),
    lambda x: F.l1_loss(x, torch.zeros(1, 14), reduction="sum"),
    lambda x: F.smooth_l1_loss(x, torch.zeros(1, 14), beta=0.0),
    lambda x: F.smooth_l1_loss(x, torch.zeros(1, 14), beta=0.1),
    lambda x: F.binary_cross_entropy_with_logits(x, torch.zeros(1, 14))])
def test_gradients_of_extreme_numbers(make_remote, function):
    """Torch raises to 0.5 by a root. A gradient near 0 has all its digits."""
    x = torch.tensor([-math.inf, -50, -20, -1, -0.0, 0.0, 1e-30, 1e-6, 0.3, 2, 20, 50, math.inf,
                      math.nan])
    model = Module(lambda self, one: function(self.numbers * one))
    model.numbers = nn.Parameter(x)
    net = make_remote(copy.deepcopy(model))
    for one in (net, model):
        one(torch.ones(1, 14)).sum().backward()
    torch.testing.assert_close(net.gradients()["numbers"], model.numbers.grad, rtol=1e-5,
                               atol=0, equal_nan=True)


def test_products_with_factors(make_remote):
    assert_as_torch(make_remote, Model(of_matrices), 1, 3, 4, 6)
    with pytest.raises(convgrad.Unimplemented, match="a norm of matrices"):
        import_(Model(lambda self, y, x: torch.linalg.norm(y, 2, (2, 3))), shape=(2, 3, 4, 4))


class Tables(nn.Module):
    """Takes rows of a table at places that an input has."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(4)
        self.kind = nn.Embedding(7, 4, padding_idx=2)
        self.register_buffer("places", torch.tensor([[0, 3, 1], [2, 2, 4]]))
        self.function = function

    def forward(self, classes):
        return self.function(self, classes)


def assert_rows_as_torch(make_remote, function, classes):
    model = Tables(function)
    net, found = make_remote(copy.deepcopy(model)), []
    for one in (net, model):
        y = one(classes)
        (y * y.detach().cos()).sum().backward()
        found.append(y.detach())
    torch.testing.assert_close(*found)
    torch.testing.assert_close(net.gradients()["kind.weight"], model.kind.weight.grad)


@pytest.mark.parametrize("function", [
    lambda self, i: self.kind(i.view(-1)), lambda self, i: self.kind(i.flatten(1)),
    lambda self, i: self.kind(i[:, 0]) + self.kind(i[:, -1]).sum(1, keepdim=True),
    lambda self, i: self.kind(i[:, 1:, ::2].transpose(1, 2)),
    lambda self, i: self.kind(i[:, :1].expand(-1, 4, -1).contiguous().unsqueeze(1)),
    lambda self, i: self.kind.weight[i.permute(2, 1, 0).reshape(-1)]])
def test_indices_that_are_views_of_an_input(make_remote, function):
    draw = torch.Generator().manual_seed(5)
    assert_rows_as_torch(make_remote, function, torch.randint(7, (2, 3, 4), generator=draw))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_indices_of_another_dtype(make_remote, dtype):
    classes = torch.tensor([[[0, 6]], [[2, 5]]], dtype=dtype)
    assert_rows_as_torch(make_remote, lambda self, i: self.kind(i.long().squeeze(1)), classes)


def test_indices_that_a_forward_writes(make_remote):
    def forward(self, i):
        places = i.reshape(-1)
        places[:2] = i.reshape(-1)[2:]
        return self.kind(places)

    with pytest.raises(convgrad.Unimplemented, match="an index that follows from data"):
        make_remote(Tables(forward))(torch.tensor([[0, 6], [2, 5]]))


def as_swin_unetr(self, y, x):
    table = self.conv.weight[:, :, 0, 0]
    places = self.places.clone()[:2, :2].reshape(-1)
    return y + table[places].reshape(2, 2, -1).permute(2, 0, 1).mean((1, 2)).sum(), table[
        self.places.t()].sum(0), table[self.places[:, None, 1].expand(2, 4)]


def along_other_axes(self, y, x):
    """Reductions see the shape that the forward gives the buffer."""
    return (y[:, self.places.view(-1)].mean(1), y.mT[..., self.places[:, 1:].T].amax(3),
            y[:, self.places.flatten().clone()[1:4].long()], y[:, self.places[1]])


@pytest.mark.parametrize("function", [as_swin_unetr, along_other_axes])
def test_views_of_a_buffer_of_indices(make_remote, function):
    model = Model(function)
    model.register_buffer("places", torch.tensor([[0, 3, 1], [2, 2, 3]]))
    assert_as_torch(make_remote, model, 2, 3, 4, 6)


def test_a_view_of_a_buffer_that_a_forward_writes():
    def forward(self, y, x):
        places = self.places.clone()
        places[0] = places[1]
        return y[:, places]

    model = Model(forward)
    model.register_buffer("places", torch.tensor([[0, 3, 1], [2, 2, 3]]))
    with pytest.raises(convgrad.Unimplemented, match="in place of a view of indices"):
        import_(model)


def test_the_page_has_the_operators():
    """Each row of the page's table has the names of one dictionary of rows."""
    kinds = {"layers": table._LAYERS, "elements": table._ELEMENTS, "sums": table._SUMS,
             "moves": table._VIEWS, "writes": table._WRITES, "tokens": table._TOKENS,
             "losses": table._LOSSES, "masks": table._MASKS, "composed": table._COMPOSED}
    found = {title: set(re.findall(r"`(\w+)`", names)) for title, names in re.findall(
        r"^\| (\w+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE) if title in kinds}
    assert found == {title: set(rows) for title, rows in kinds.items()}
