"""Tests masks that follow from data against PyTorch: comparisons, and choices by masks."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from small_networks import images
from test_remote_import import Module
from test_remote_writes import Model, assert_as_torch
from torch import nn

import convgrad

EXTREMES = torch.tensor([0.0, -0.0, 2.0**-149, -2.0**-149, 1e-38, -1e-38, 1.0, -1.0, 3e38,
                         -3e38, math.inf, -math.inf, math.nan])


@pytest.mark.parametrize("function", [
    lambda self, y, x: torch.where(y > 0, y, 0.1 * x[:, :1]),
    lambda self, y, x: torch.where(y > 0.1, y.clamp(min=0.05).log(), 0.0),
    lambda self, y, x: torch.where(y > 0, y.abs().log(), torch.zeros(())),
    lambda self, y, x: y.masked_fill(y < self.bias, -1e4),
    lambda self, y, x: y.masked_fill((y < 0) & ~(x[:, :1] > 0) | (y > 1.5), 0.25),
    lambda self, y, x: y.softmax(1).masked_fill(torch.tril(self.bias.outer(self.bias)[:4]) == 0,
                                                -math.inf).clamp(min=-9),
    lambda self, y, x: (y >= 0).float() * x[:, :1] + (y != self.bias).float().mean(1, True),
    lambda self, y, x: y * (y.abs() > 0.5).logical_xor(x[:, :1] < 0),
    lambda self, y, x: y * (y > -1).all(1, keepdim=True) + x[:, 1:2] * (y > 1).any(1, True),
    lambda self, y, x: y.sign() * y.abs().sqrt() + y.relu().bool() * x[:, :1],
    lambda self, y, x: y.clamp(min=self.bias, max=self.bias + 0.5),
    lambda self, y, x: torch.clamp(y, x[:, :1], x[:, :1].abs()),
    lambda self, y, x: y.clamp_min(self.mean[:, None, None] - 1).clamp_max(x[:, 2:]),
    lambda self, y, x: F.scaled_dot_product_attention(y, y, y, attn_mask=(y @ y.mT) > -0.1),
    lambda self, y, x: y.sum((1, 2, 3)) / (y > 0).sum((1, 2, 3)).clamp(min=1),
    lambda self, y, x: ((y > 0).sum(1).float(), y.sum(1) + (y > 0).sum(1)),
    lambda self, y, x: y.sum((1, 2)) / (y > 0).sum() * (y > 1).sum((0, 1, 2)),
    lambda self, y, x: (y > 0).sum(1, keepdim=True) * y + (x[:, :1] > 0).long() / 3,
    lambda self, y, x: y * ((y > 0) & (torch.arange(6) % 2 == 0)) - torch.arange(6),
    lambda self, y, x: torch.where(y.reshape(-1, 2, 2, 2, 2, 3, 2) > self.bias[:2], 0.5,
                                   y.reshape(-1, 2, 2, 2, 2, 3, 2)).reshape(y.shape),
    lambda self, y, x: torch.where(y.reshape(-1, 2, 2, 2, 2, 3, 2) > 0, 1.0,
                                   -math.inf).reshape(y.shape).exp() * y,
    lambda self, y, x: y.reshape(-1, 2, 2, 2, 2, 6).masked_fill(
        torch.ones(1, 2, 1, 2, 2, 6).tril() > 0, 0.5).reshape(y.shape),
    lambda self, y, x: F.hardshrink(y, 0.3) + F.threshold(x[:, :1], 0.1, -2.0)])
def test_choices_by_data(make_remote, function):
    assert_as_torch(make_remote, Model(function))


class Masked(Model):
    """Has masks as buffers."""

    def __init__(self, function):
        super().__init__(function)
        self.register_buffer("causal", torch.tril(torch.ones(6, 6)).bool())
        self.register_buffer("some", torch.tensor([True, False, True, True]))


@pytest.mark.parametrize("function", [
    lambda self, y, x: (y.mT @ y).masked_fill(~self.causal, -math.inf).softmax(-1),
    lambda self, y, x: y @ torch.where(self.causal[:6], self.bias, 0.0),
    lambda self, y, x: F.scaled_dot_product_attention(y.mT, y.mT, y.mT, attn_mask=self.causal),
    lambda self, y, x: y * self.some[:, None, None] + self.causal.float().mean(1)])
def test_a_buffer_of_booleans(make_remote, function):
    assert_as_torch(make_remote, Masked(function))


def test_the_state_of_a_buffer_of_booleans(make_remote):
    model = Masked(lambda self, y, x: y * self.some[:, None, None])
    net, x = make_remote(copy.deepcopy(model)), torch.randn(2, 3, 4, 6)
    assert torch.equal(net.state_dict()["causal"], model.causal)
    state = {**model.state_dict(), "some": ~model.some}
    for one in (net, model):
        one.load_state_dict(state)
    torch.testing.assert_close(net(x), model(x))
    assert torch.equal(net.state_dict()["some"], state["some"])


COMPARISONS = {"gt": torch.gt, "ge": torch.ge, "lt": torch.lt, "le": torch.le, "eq": torch.eq,
               "ne": torch.ne}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_are_exact(make_remote, name):
    """Of the smallest, the largest and infinite numbers, and of NaN."""
    class Compared(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Parameter(torch.ones(1))

        def forward(self, x, y):
            x, y = x * self.one, y * self.one
            return tuple(COMPARISONS[name](x, other).float()
                         for other in (y, 0, 1.5, math.inf, -math.inf, torch.finfo().min))

    pairs = torch.cartesian_prod(EXTREMES, EXTREMES)
    net = make_remote(Compared())
    for found, expected in zip(net(*pairs.T[..., None]), Compared()(*pairs.T[..., None])):
        assert torch.equal(found, expected)


def test_a_nan_of_what_is_not_chosen_stays_out(make_remote):
    """Also out of the gradients, as in torch."""
    def forward(self, x):
        y = self.conv(x)
        return torch.where(y > 100, (y - 200).log(), y), y.masked_fill(y > -100, 1.0)

    model = Module(forward, conv=nn.Conv2d(3, 2, 1))
    net, x = make_remote(copy.deepcopy(model)), images(2, 3, 4, 4)
    for one in (net, model):
        chosen, filled = one(x)
        assert filled.eq(1).all()
        chosen.sum().backward()
    torch.testing.assert_close(net(x)[0], model(x)[0])
    for name, parameter in model.named_parameters():
        assert torch.isfinite(net.gradients()[name]).all()
        torch.testing.assert_close(net.gradients()[name], parameter.grad, rtol=1e-4, atol=1e-5)
    x[0, 0, 0, 0] = math.nan
    torch.testing.assert_close(net(x)[0], model(x)[0], equal_nan=True)


@pytest.mark.parametrize("function", [
    lambda y: y.eq(y) * y, lambda y: y.masked_fill(y != y, 0.5),
    lambda y: y.masked_fill(y.isnan(), 0.5), lambda y: y.masked_fill(y > 0, math.nan),
    lambda y: torch.where(y.isinf(), y.sign(), y), lambda y: torch.where(y.isfinite(), y, -1.0),
    lambda y: torch.where(y < 0, math.inf, -math.inf),
    lambda y: y.clamp(torch.tensor([-1, math.nan, -1]), torch.tensor([1, 1, math.nan])),
    lambda y: torch.nan_to_num(y), lambda y: torch.nan_to_num(y, 1.0, 2.0, -3.0)])
def test_choices_by_nan_and_infinity(make_remote, function):
    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return function(x * self.one)

    net, x = make_remote(Chosen()), EXTREMES[:, None]
    assert torch.equal(net(x).nan_to_num(7.5), Chosen()(x).nan_to_num(7.5))


def test_comparisons_with_infinite_numbers_in_bf16(make_remote):
    """Of a value that the server has in bf16."""
    model = Module(lambda self, x: [
        compare(self.conv(x), limit).float() for limit in (math.inf, -math.inf)
        for compare in COMPARISONS.values()], conv=nn.Conv2d(1, 1, 1, bias=False))
    nn.init.ones_(model.conv.weight)
    net, x = make_remote(copy.deepcopy(model), dtype=torch.bfloat16), EXTREMES.view(-1, 1, 1, 1)
    for found, expected in zip(net(x), model(x)):
        assert torch.equal(found, expected)


def test_a_mask_in_bf16(make_remote):
    model = Module(lambda self, x: torch.where(self.conv(x) > 0, 1.0, -1.0),
                   conv=nn.Conv2d(3, 2, 1))
    found = make_remote(copy.deepcopy(model), dtype=torch.bfloat16)(images(2, 3, 4, 4))
    assert set(found.unique().tolist()) == {1.0, -1.0}


@pytest.mark.parametrize("function", [
    lambda y: y.masked_fill(y >= 0, torch.finfo(y.dtype).min),
    lambda y: y.masked_fill(y > -99, torch.finfo(y.dtype).min).softmax(-1),
    lambda y: torch.where(y >= 0, y, torch.finfo(y.dtype).max),
    lambda y: (y / 0).clamp(torch.finfo(y.dtype).min, torch.finfo(y.dtype).max),
    lambda y: F.pad(y, [1, 0], value=torch.finfo(y.dtype).min),
    lambda y: (y / 0).nan_to_num(),
    lambda y: (y + (y > -99).to(y.dtype) * torch.finfo(y.dtype).min).softmax(-1),
    lambda y: y.masked_fill(y > 0, -math.inf),
    lambda y: torch.stack([compare(y.masked_fill(y >= 0, limit), limit).to(y.dtype)
                           for limit in (torch.finfo(y.dtype).min, torch.finfo(y.dtype).max)
                           for compare in COMPARISONS.values()]),
    lambda y: y + (y.masked_fill(y >= 0, torch.finfo(y.dtype).min) == torch.full(
        (5,), torch.finfo(y.dtype).min)).to(y.dtype),
    lambda y: torch.stack([y.masked_fill(y >= 0, -math.inf).maximum(torch.full(
        (5,), torch.finfo(dtype).min)) for dtype in (y.dtype, torch.bfloat16)]),
    lambda y: F.scaled_dot_product_attention(y, y, y, torch.full(
        (2, 2), torch.finfo(y.dtype).min).tril())])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_largest_numbers(client, make_remote, function, dtype):
    """They are those of the dtype, and don't become infinite in bf16."""
    model = Module(lambda self, x: function(self.fc(x)), fc=nn.Linear(4, 5, bias=False))
    model.requires_grad_(False).fc.weight.copy_(torch.arange(20).reshape(5, 4) % 3 - 1)
    x = torch.tensor([[1.0, 2, 0, -1], [0, 1, 1, 1]])
    net = make_remote(copy.deepcopy(model), dtype=dtype)
    net.prepare(x)
    expected = copy.deepcopy(model).to(dtype)(x.to(dtype)).float()
    with client.attach(net.session.id) as attached:
        attached_net = convgrad.torch.remote(model, attached, dtype=dtype)
        for found in (net(x), attached_net(x)):
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_a_mask_of_float32_under_autocast(make_remote):
    """A row of which nothing is left isn't NaN, as in torch, whose product is in float32."""
    def forward(self, x):
        masked = self.fc(x[:, :4]) + (1 - x[:, 4:]) * torch.finfo(torch.float32).min
        return masked.softmax(-1)

    x = torch.tensor([[1.0, 2, 0, -1, 1, 0, 1], [0, 1, 1, 1, 0, 0, 0]])
    model = Module(forward, fc=nn.Linear(4, 3))
    net = make_remote(copy.deepcopy(model))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(net(x), model(x).float(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("least", [None, -math.inf, torch.finfo().min])
def test_attention_with_dropout_of_queries_without_a_key(make_remote, least):
    """Their results are 0, as torch's, and no gradient is NaN. The least number leaves keys."""
    def forward(self, x):
        y = self.fc(x)
        mask = (y @ y.mT > 0) & (x[..., :1] > 0)
        if least is not None:
            mask = torch.where(mask, 0.0, least)
        return F.scaled_dot_product_attention(y, y, y, attn_mask=mask, dropout_p=1e-9)

    torch.manual_seed(0)
    model, x = Module(forward, fc=nn.Linear(4, 4)), torch.randn(2, 5, 4)
    net = make_remote(copy.deepcopy(model))
    for one in (net, model):
        one(x).square().sum().backward()
    torch.testing.assert_close(net(x), model(x))
    assert (model(x) == 0).all(-1).any() == (least != torch.finfo().min)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(net.gradients()[name], parameter.grad, rtol=1e-4, atol=1e-5)
