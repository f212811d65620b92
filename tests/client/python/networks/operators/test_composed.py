"""Tests operators that are made of several steps against PyTorch: recurrent layers, distances,
sums of all before, and elements at places."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from test_remote_import import Module
from test_remote_optim import assert_states
from test_remote_writes import Model, assert_as_torch
from torch import nn
from torch.nn.utils import parametrizations

import convgrad
from convgrad.torch import optim


@pytest.mark.parametrize("function", [
    lambda self, y, x: y.logsumexp(1) + x.logsumexp((1, 3), keepdim=True).squeeze(1),
    lambda self, y, x: F.cosine_similarity(y[:, :3], x) + F.cosine_similarity(
        y, self.mean[:, None, None], dim=1).sin(),
    lambda self, y, x: F.cosine_similarity(1e-9 * y[:, :3], x),
    lambda self, y, x: F.pairwise_distance(y[:, :3], x, keepdim=True),
    lambda self, y, x: 1e15 * (1e-15 * y).std(1) + y.expand(-1, 4, -1, -1).std(1),
    lambda self, y, x: torch.cdist(y, x[:, :1, :3]),
    lambda self, y, x: F.triplet_margin_loss(y[:, 0], x[:, 0], x[:, 1], swap=True) * 2,
    lambda self, y, x: y.cumsum(1) + x[:, :1].cumsum(-1),
    lambda self, y, x: y.cumprod(-1),
    lambda self, y, x: F.celu(y, 1.7) + F.softshrink(x[:, :1]),
    lambda self, y, x: F.bilinear(y, x[:, :1].expand(-1, 4, -1, -1), self.bias.outer(
        self.bias)[..., None] * self.bias, self.bias),
    lambda self, y, x: torch.addmm(self.bias, y[0, 0], self.bias.outer(self.bias), beta=0),
    lambda self, y, x: y.triu(1) + x[:, :1].tril(),
    lambda self, y, x: y @ torch.diag(self.bias) + torch.diag(self.bias.outer(self.bias)),
    lambda self, y, x: F.interpolate(y, size=(7, 9), mode="nearest-exact"),
    lambda self, y, x: F.interpolate(y, scale_factor=0.6, mode="nearest-exact"),
    lambda self, y, x: y[:, [-1, 0, -2]],
    lambda self, y, x: y[:, [-1, 0], [2, -3]],
    lambda self, y, x: y[:, :, [[2, 0, 1], [1, 1, 3]], [[4, 2, 3], [3, -1, 5]]],
    lambda self, y, x: y[:, :, torch.ones(4, 6).tril() == 1],
    lambda self, y, x: y[:, torch.tensor([True, False, True, True])],
    lambda self, y, x: F.lp_pool2d(y.abs() + 0.1, 2, 2),
    lambda self, y, x: torch.linalg.vector_norm(y, math.inf, (2, 3)) * y.norm(math.inf)])
def test_as_torch(make_remote, function):
    assert_as_torch(make_remote, Model(function))


@pytest.mark.parametrize("function", [
    lambda x: F.threshold(x, 0.5, 7.0), lambda x: F.threshold(x, 0.5, math.nan), F.hardshrink,
    F.softshrink, lambda x: F.softshrink(x, 0.0)])
def test_numbers_at_a_limit_and_nan(make_remote, function):
    x = torch.tensor([[-1, -0.5, -0.0, 0.5, 0.6, math.inf, -math.inf, math.nan]])
    model = Module(lambda self, one: function(one))
    found = []
    for one in (make_remote(model), model):
        own = x.clone().requires_grad_()
        y = one(own)
        y.sum().backward()
        found.append((y.detach(), own.grad))
    torch.testing.assert_close(*found, equal_nan=True)


def test_a_logsumexp_of_what_is_infinite(make_remote):
    model = Module(lambda self, x: self.fc(x).masked_fill(torch.tensor([
        [True] * 3, [False, True, False]])[:, None], -math.inf).logsumexp(-1),
        fc=nn.Linear(2, 3))
    x = torch.randn(2, 4, 2)
    torch.testing.assert_close(make_remote(copy.deepcopy(model))(x), model(x))


@pytest.mark.parametrize("is_affine", [False, True])
def test_an_instance_norm_in_eval_mode(make_remote, is_affine):
    """It uses its running statistics, and in train mode it would update them."""
    norm = nn.InstanceNorm2d(4, affine=is_affine, track_running_stats=True)
    norm(3 * torch.randn(2, 4, 5, 5) + 1)
    model = Model(lambda self, y, x: self.norm(y))
    model.norm = norm.eval()
    assert_as_torch(make_remote, model)
    with pytest.raises(convgrad.Unimplemented, match="updates running statistics"):
        make_remote(copy.deepcopy(model).train())(torch.randn(2, 3, 4, 6))


class Recurrent(nn.Module):
    def __init__(self, layer, **kwargs):
        super().__init__()
        torch.manual_seed(0)
        self.layer = layer(4, 5, **kwargs)
        self.fc = nn.Linear(self.layer.hidden_size * (1 + self.layer.bidirectional), 2)

    def forward(self, x, state=None):
        if isinstance(self.layer, nn.LSTM) and state is not None:
            state = (state, state.sin())
        y, last = self.layer(x, state)
        return self.fc(y), *(last if isinstance(last, tuple) else (last,))


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("kwargs", [
    {"batch_first": True}, {}, {"batch_first": True, "num_layers": 2, "bidirectional": True},
    {"batch_first": True, "bias": False}])
def test_recurrent_layers(make_remote, layer, kwargs):
    model = Recurrent(layer, **kwargs)
    net = make_remote(copy.deepcopy(model))
    shape = (kwargs.get("num_layers", 1) * (1 + model.layer.bidirectional), 3, 5)
    x = torch.randn(3, 6, 4) if "batch_first" in kwargs else torch.randn(6, 3, 4)
    for state in (None, torch.randn(shape)):
        gradients = []
        for one in (net, model):
            given = x.clone().requires_grad_()
            sum((y * y.detach().cos()).sum() for y in one(given, state)).backward()
            gradients.append(given.grad)
        torch.testing.assert_close(net(x, state), model(x, state), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    assert_states(net.gradients(), {n: p.grad for n, p in model.named_parameters()}, 1e-4, 1e-5)


def test_training_of_recurrent_layers(make_remote):
    model = Recurrent(nn.LSTM, batch_first=True)
    net, x = make_remote(copy.deepcopy(model)), torch.randn(3, 6, 4)
    ours = convgrad.torch.optim.SGD(net.parameters(), lr=0.5)
    theirs = torch.optim.SGD(model.parameters(), lr=0.5)
    for one, optimizer in ((net, ours), (model, theirs)):
        for _ in range(3):
            optimizer.zero_grad()
            one(x)[0].square().mean().backward()
            optimizer.step()
    assert_states(net.state_dict(), model.state_dict(), 1e-4, 1e-5)


def test_a_long_sequence(make_remote):
    net = make_remote(Recurrent(nn.GRU, batch_first=True, num_layers=2))
    with pytest.raises(convgrad.Unimplemented, match="of 251 elements, expected at most 250"):
        net(torch.randn(2, 251, 4))


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells(make_remote, cell):
    def forward(self, x):
        state = None
        for one in x.unbind(1):
            state = self.cell(one, state)
        return state[0] * state[1] if isinstance(state, tuple) else state

    torch.manual_seed(0)
    model = Module(forward, cell=cell(4, 5))
    net, x = make_remote(copy.deepcopy(model)), torch.randn(3, 6, 4)
    for one in (net, model):
        one(x).sum().backward()
    torch.testing.assert_close(net(x), model(x), rtol=1e-5, atol=1e-6)
    assert_states(net.gradients(), {n: p.grad for n, p in model.named_parameters()}, 1e-4, 1e-5)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(make_remote, dim):
    torch.manual_seed(0)
    weight_norm = parametrizations.weight_norm  # which PyTorch 1.13 lacks
    model = nn.Sequential(weight_norm(nn.Conv1d(3, 4, 3, dilation=2), dim=dim), nn.Tanh(),
                          nn.Flatten(), weight_norm(nn.Linear(20, 2), dim=dim))
    net, x = make_remote(copy.deepcopy(model)), torch.randn(5, 3, 9)
    pairs = ((net, optim.Adam(net.parameters(), 0.01)),
             (model, torch.optim.Adam(model.parameters(), 0.01)))
    for one, optimizer in pairs:
        for _ in range(3):
            optimizer.zero_grad()
            one(x).square().mean().backward()
            optimizer.step()
    assert_states(net.state_dict(), model.state_dict())
    net.load_state_dict({name: 2 * tensor for name, tensor in model.state_dict().items()})
    assert list(net.state_dict()) == list(model.state_dict())


@pytest.mark.parametrize("function, words", [
    (lambda self, y, x: y.gather(1, y.argmax(1, keepdim=True)), r"aten\.argmax"),
    (lambda self, y, x: y[:, [0, 1], :, [1, 2]], "next to each other"),
    (lambda self, y, x: y[:, [0, 1], [4, 0]], r"at \[4, 0\], expected places from -4 to 3"),
    (lambda self, y, x: y[:, [0, 1], [0, -5]], r"at \[0, -5\]"),
    (lambda self, y, x: F.celu(y, -1.3), "celu with alpha=-1.3, expected one above 0"),
    (lambda self, y, x: torch.diag(self.bias, 1), "the main diagonal")])
def test_what_is_refused(make_remote, function, words):
    with pytest.raises(convgrad.Unimplemented, match=words):
        make_remote(Model(function))(torch.randn(2, 3, 4, 6))


def test_places_of_rows(make_remote):
    """Places in more than one axis aren't one for each row."""
    net = make_remote(Indexed(lambda x, at: x[torch.arange(len(x)), at]))
    with pytest.raises(convgrad.Unimplemented, match="an index of 2 axes"):
        net(torch.randn(3, 5, 2), torch.tensor([[1], [0], [4]]))


def test_a_place_for_each_row(make_remote):
    model = Indexed(lambda x, at: x[torch.arange(len(x)), at].exp())
    x, at = torch.randn(4, 5), torch.tensor([1, 0, -1, 3])
    found = [torch.autograd.grad((y := net(given, at)).square().sum(), given) + (y,)
             for net in (make_remote(copy.deepcopy(model)), model)
             for given in [x.clone().requires_grad_()]]
    torch.testing.assert_close(*found)


def test_negative_places_of_a_gather(make_remote):
    """Torch refuses them, too."""
    net = make_remote(Indexed(lambda x, at: x.gather(1, at)))
    x = torch.randn(2, 4)
    torch.testing.assert_close(net(x, torch.tensor([[3], [0]])), x[[0, 1], [3, 0]][:, None])
    for wrong in (-1, 4):
        with pytest.raises(convgrad.InvalidArgument,
                           match=f"index: found {wrong}, expected an index from 0 to 3"):
            net(x, torch.tensor([[wrong], [0]]))


def test_a_gather_of_many_makes_no_table(make_remote):
    """A vocabulary has so many words that a row for each one would take gigabytes."""
    net = make_remote(Indexed(lambda x, at: x.gather(1, at)))
    x = torch.randn(2, 50_000)
    places = torch.tensor([[49_999, 7], [0, 31_111]])
    torch.testing.assert_close(net(x, places), x.gather(1, places))
    with pytest.raises(convgrad.InvalidArgument, match="found 50000"):
        net(x, places + 1)


class Indexed(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.one, self.function = nn.Parameter(torch.ones(1)), function

    def forward(self, x, at):
        return self.function(x * self.one, at)
