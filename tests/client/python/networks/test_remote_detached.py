"""Tests forwards that end gradients, by detach() and torch.no_grad(), against PyTorch."""

import copy

import pytest
import torch
import torch.nn.functional as F
from small_networks import images
from test_remote_import import import_, steps_of
from test_remote_optim import assert_states
from test_remote_writes import Model, assert_as_torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import convgrad
from convgrad.torch import optim


def detached(self, y, x):
    return y.detach() * y + x.detach()[:, :1] * self.bias.detach()


def by_data(self, y, x):
    return y.data * y + x.data[:, :1] * self.bias.data


def detached_weight(self, y, x):
    return F.conv2d(x, self.conv.weight.detach() * 2) + y


def a_region(self, y, x):
    with torch.no_grad():
        scale = y.relu().mean((2, 3), keepdim=True)
        seen = x[:, :2]
    return y * scale + seen.sum(1, keepdim=True)


def a_region_and_writes(self, y, x):
    with torch.no_grad():
        z = y * 2
        z[:, 1:].mul_(3)
        z.add_(self.bias)
    z.add_(y)
    return z


def nested_regions(self, y, x):
    with torch.no_grad():
        z = y.sigmoid()
        with torch.no_grad():
            z = z.square()
        z = z + y.detach()
    with torch.enable_grad():
        return y * z


def changed_after_it_was_detached(self, y, x):
    seen = y.detach()
    y.mul_(2)
    return y * seen


def with_gradients_inside(self, y, x):
    with torch.no_grad():
        a = y * 2
        with torch.enable_grad():
            b = a * y
        c = b * y
    return b + c


def all_of_it(self, y, x):
    with torch.no_grad():
        return y * 2, self.bias * y


def of_fixed_numbers(self, y, x):
    with torch.no_grad():
        places = torch.arange(6.0) * self.mean.sum()
    return y * places.detach()


def of_seven_axes(self, y, x):
    wide = y.view(y.shape[0], 2, 2, 2, 2, 2, 3).permute(0, 6, 4, 2, 5, 3, 1).detach()
    return y + wide.reshape(y.shape)


def undefined_without_gradient(self, y, x):
    """The root's slope at 0 is infinite, but no gradient gets there."""
    return y * (x * 0).sqrt().detach()[:, :1] + y


def nested_checkpoints(self, y, x):
    def inner(y):
        return torch.sigmoid(y) * self.bias

    def outer(y):
        return checkpoint(inner, self.conv(x) + y * 2, use_reentrant=False)

    return y + checkpoint(outer, y, use_reentrant=False)


FORWARDS = (detached, by_data, detached_weight, a_region, a_region_and_writes,
            nested_regions, changed_after_it_was_detached, with_gradients_inside,
            of_fixed_numbers, of_seven_axes, undefined_without_gradient, nested_checkpoints)


@pytest.mark.parametrize("function", FORWARDS)
def test_a_forward(make_remote, function):
    assert_as_torch(make_remote, Model(function))


def test_no_output_with_a_gradient(make_remote):
    model, x = Model(all_of_it), torch.randn(2, 3, 4, 6)
    found, expected = make_remote(copy.deepcopy(model))(x), model(x)
    assert not any(y.requires_grad for y in (*found, *expected))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_first_call_without_gradients(make_remote, mode):
    model, x = Model(a_region), torch.randn(2, 3, 4, 6)
    net = make_remote(copy.deepcopy(model))
    with mode():
        torch.testing.assert_close(net(x), model(x), rtol=1e-4, atol=1e-5)
    for one in (net, model):
        one(x).square().mean().backward()
    torch.testing.assert_close(net.gradients()["conv.weight"], model.conv.weight.grad)


def test_nothing_to_end_needs_no_step():
    assert "detach" not in [step[1] for step in steps_of(import_(
        Model(of_fixed_numbers), shape=(2, 3, 4, 6)))]


class FrozenBackbone(nn.Module):
    """Trains a head on the features of a part without gradients, which is in train mode."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(features.flatten(1))


def test_a_frozen_part(make_remote):
    model, x, y = FrozenBackbone(), images(4, 3, 6, 6), torch.tensor([0, 4, 2, 2])
    net = make_remote(copy.deepcopy(model))
    ours = optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.5, eps=1e-3)
    theirs = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5, eps=1e-3)
    for _ in range(3):
        for one, optimizer in ((net, ours), (model, theirs)):
            optimizer.zero_grad()
            F.cross_entropy(one(x), y).backward()
            optimizer.step()
        assert net.gradients().keys() == {"head.weight", "head.bias"}
    ours.zero_grad()
    net.train_step(x, y, optimizer=ours)
    theirs.zero_grad()
    F.cross_entropy(model(x), y).backward()
    theirs.step()
    assert_states(net.state_dict(), model.state_dict())
    assert torch.equal(net.state_dict()["backbone.0.weight"],
                       FrozenBackbone().backbone[0].weight)


def in_place_on_what_is_outside(self, y, x):
    with torch.no_grad():
        y.mul_(2)
    return y


def in_place_on_a_detached(self, y, x):
    y.detach().mul_(2)
    return y


def detached_in_place(self, y, x):
    y.detach_()
    return y


@pytest.mark.parametrize("function, words", [
    (in_place_on_what_is_outside, r"aten\.mul_ under torch.no_grad\(\) of a tensor"),
    (in_place_on_a_detached, "elements that share memory"),
    (detached_in_place, r"aten\.detach_")])
def test_what_is_refused(function, words):
    with pytest.raises(convgrad.Unimplemented, match=words):
        import_(Model(function), shape=(2, 3, 4, 6))
