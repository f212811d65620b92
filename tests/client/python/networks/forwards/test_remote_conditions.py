"""Tests inputs other than images, as diffusion models take times and classes, and forwards that
depend on the batch."""

import copy
import math
import re

import pytest
import torch
import torch.nn.functional as F
from small_networks import integers
from torch import nn

import convgrad.torch
from convgrad.errors import InvalidArgument
from convgrad.torch import optim

CLASSES = 6


class Denoiser(nn.Module):
    """Predicts noise of images, given their times and classes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.stem, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 8))
        self.kind = nn.Embedding(CLASSES, 8, padding_idx=1)
        self.register_buffer("scales", torch.linspace(0.5, 2, 1000))

    def forward(self, x, t, kind):
        frequencies = torch.exp(-math.log(10000) * torch.arange(8, dtype=torch.float32) / 8)
        angles = t[:, None].float() * frequencies[None]
        shift = self.time(torch.cat([angles.sin(), angles.cos()], -1)) + self.kind(kind)
        return self.head(F.silu(self.stem(x) + shift[:, :, None, None]))


class Conditioned(nn.Module):
    """Computes a function of itself, images and times."""

    def __init__(self, function):
        super().__init__()
        self.conv, self.function = nn.Conv2d(3, 3, 1), function
        self.register_buffer("scales", torch.linspace(0.5, 2, 1000))

    def forward(self, x, t):
        return self.function(self, x, t)


def batch(n, seed=1):
    draw = torch.Generator().manual_seed(seed)
    return (torch.randn(n, 3, 8, 8, generator=draw),
            torch.randint(0, 1000, (n,), generator=draw),
            torch.randint(0, CLASSES, (n,), generator=draw))


def test_a_diffusion_model_trains(make_remote):
    model = Denoiser()
    net = make_remote(copy.deepcopy(model))
    ours = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    theirs = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step, n in enumerate((4, 7, 1)):
        x, t, kind = batch(n, step)
        kind[0] = 1  # whose row is padding
        noise = torch.randn(x.shape)
        for one in (net, model):
            one.zero_grad()
            F.mse_loss(one(x, t, kind.int() if step else kind), noise).backward()
        found = net.gradients()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-5)
        for one in (ours, theirs):
            one.step()
            one.zero_grad()
        loss = net.train_step(x, t, kind, noise, optimizer=ours, loss="mse")
        expected = F.mse_loss(model(x, t, kind), noise)
        expected.backward()
        theirs.step()
        assert loss == pytest.approx(expected.item(), rel=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(net(*batch(5)), model(*batch(5)), rtol=1e-4, atol=1e-4)


def test_rows_of_a_buffer_at_times(make_remote):
    model = Conditioned(
        lambda self, x, t: self.conv(x) * self.scales[t][:, None, None, None])
    x, t, _ = batch(3)
    torch.testing.assert_close(make_remote(model)(x, t), model(x, t))


@pytest.mark.parametrize("shape", [(4,), ()])
def test_the_gradient_of_an_input_of_fewer_axes(make_remote, shape):
    model = Conditioned(lambda self, x, t: self.conv(x) * t.reshape(-1, 1, 1, 1))
    net, x = make_remote(model), torch.randn(4, 3, 2, 2)
    times = [torch.full(shape, 0.3, requires_grad=True) for _ in range(2)]
    for one, t in zip((net, model), times):
        one(x, t).sum().backward()
    torch.testing.assert_close(times[0].grad, times[1].grad)


def test_a_vector_is_a_factor_of_a_product(make_remote):
    model = Conditioned(lambda self, x, t: torch.softmax(t @ self.query, 1))
    model.query = nn.Parameter(torch.randn(6))
    net, t = make_remote(model), torch.randn(3, 5, 6)
    for one in (net, model):
        one(None, t)[:, 0].sum().backward()
    torch.testing.assert_close(net.gradients()["query"], model.query.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrong", [-1, CLASSES, 2**40])
def test_an_index_outside_is_refused(make_remote, wrong):
    net, (x, t, kind) = make_remote(Denoiser()), batch(3)
    kind[2] = wrong
    with pytest.raises(InvalidArgument, match=rf"kind\[2\]: found {wrong}, expected an index "
                       f"from 0 to {CLASSES - 1}"):
        net(x, t, kind)


def test_a_time_is_rounded_to_float32_as_in_torch(make_remote):
    model = Conditioned(lambda self, x, t: self.conv(x) * t.float()[:, None, None, None])
    x, t = integers(3, 3, 8, 8), torch.tensor([2**24 + 1, -2**60 - 1, 7])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(integers(*parameter.shape))
    torch.testing.assert_close(make_remote(model)(x, t), model(x, t), rtol=0, atol=0)


def test_a_time_that_bf16_lacks_is_refused(make_remote):
    net, (x, t, kind) = make_remote(Denoiser(), dtype=torch.bfloat16), batch(3)
    t[:] = torch.tensor([0, 256, 1000])
    net(x, t, kind)
    t[1] = 257
    with pytest.raises(InvalidArgument, match="inputs.t: found 257, expected integers"):
        net(x, t, kind)


@pytest.mark.parametrize("forward, found", [
    (lambda self, x, t: self.conv(x) * t[:, None, None, None]
     + self.scales[t][:, None, None, None], "t, an input, as indices and as numbers"),
    (lambda self, x, t: self.conv(x) * self.scales[t[0]], "a number that depends on")])
def test_integers_that_are_refused(forward, found):
    explanation = convgrad.torch.explain(Conditioned(forward), *batch(3)[:2])
    assert any(re.search(found, refusal.found) for refusal in explanation.refusals)


def groups(y):
    """A dynamic convolution, with kernels of its own for each sample."""
    kernels = y.flatten(1)[:, :8].reshape(-1, 4, 1, 1)
    return F.conv2d(y.reshape(1, -1, 4, 6), kernels, groups=len(y)).reshape(-1, 2, 4, 6)


def deviation(y):
    """StyleGAN's deviation within the batch, as one more channel."""
    mean = y.std(0, correction=0).mean()
    return torch.cat([y, mean.expand(len(y), 1, *y.shape[2:])], 1)


def rows(y):
    y = y.clone()
    y[:1] = 0
    return y


def expanded_before(y):
    row = torch.ones(1, 4, 1, 1)
    rows = row.expand(len(y), 4, 1, 1)
    row.mul_(2)
    return y * rows


def pairs(y):
    first, second = y.flatten(1).chunk(2)
    return first @ second.t()


@pytest.mark.parametrize("function", [
    groups, deviation, rows, expanded_before, pairs, lambda y: y[:1], lambda y: y[0],
    lambda y: y.mean((0, 3)), lambda y: y.amax(0), lambda y: y.roll(1, 0),
    lambda y: y.roll(y.shape[0], 2), lambda y: y.clamp(max=y.shape[0] / 8),
    lambda y: F.interpolate(y, size=9, mode="bicubic", antialias=True),
    lambda y: y.relu() if len(y) > 2 else y.sigmoid(), lambda y: y.relu() * len(y)])
def test_a_forward_that_depends_on_the_batch(make_remote, function):
    model = Conditioned(lambda self, x, t: function(self.conv(x)))
    model.conv = nn.Conv2d(3, 4, 1)
    net = make_remote(model)
    for n in (4, 2, 1, 4):
        if n == 1 and function is pairs:
            continue
        x = torch.randn(n, 3, 4, 6)
        found, expected = net(x, None), model(x, None)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        if not (n == 1 and function is rows):  # of which nothing depends on parameters
            for one, y in ((net, found), (model, expected)):
                one.zero_grad()
                y.square().sum().backward()
            torch.testing.assert_close(net.gradients()["conv.weight"], model.conv.weight.grad,
                                       rtol=1e-3, atol=1e-4)


def test_a_batch_is_exported_once(make_remote, monkeypatch):
    from convgrad.torch.networks import variants
    exported = []
    imported = variants.import_model
    monkeypatch.setattr(variants, "import_model",
                        lambda *given: exported.append(1) or imported(*given))
    model = Conditioned(lambda self, x, t: self.conv(x) - self.conv(x).mean(0))
    net = make_remote(model)
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    for n in (4, 3, 4, 3, 4):
        x, target = torch.randn(n, 3, 2, 2), torch.randn(n, 3, 2, 2)
        expected = F.mse_loss(model(x, None), target)
        loss = net.train_step(x, None, target, optimizer=optimizer, loss="mse")
        assert loss == pytest.approx(expected.item(), rel=1e-4)
        model.load_state_dict(net.state_dict())
    assert len(exported) == 2


def test_explain_counts_them():
    explanation = convgrad.torch.explain(Denoiser(), *batch(3))
    assert explanation.is_taken
    assert explanation.inputs["t"] == (3,)
