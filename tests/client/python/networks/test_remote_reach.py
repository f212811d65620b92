"""Tests which parameters a remote network's backward reaches, as in torch."""

import pytest
import torch
import torch.nn.functional as F
from small_networks import OfIntegers, images, integers
from test_remote_graphs import assert_gradients
from test_remote_import import Module
from test_remote_optim import assert_states
from torch import nn

import convgrad
from convgrad.torch import optim


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.one, self.two = nn.Conv2d(3, 4, 3), nn.Linear(64, 3), nn.Linear(64, 2)
        self.scale = nn.Conv2d(1, 1, 1)

    def forward(self, x, z):
        y = torch.sigmoid(self.stem(x)).flatten(1)
        return self.one(y), self.two(y), self.scale(z)


def test_a_loss_of_some_outputs_leaves_the_others_parameters(make_remote):
    model, z = TwoHeads(), torch.randn(2, 1, 2, 2)
    net = make_remote(model)
    ours, theirs = (library.SGD(one.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
                    for one, library in ((net, optim), (model, torch.optim)))
    for uses in ((0,), (0, 1), (1,), (2,)):
        inputs = []
        for one, optimizer in ((net, ours), (model, theirs)):
            optimizer.zero_grad(set_to_none=True)
            x = images(4, 3, 6, 6).requires_grad_()
            own = z.clone().requires_grad_()
            outputs = one(x, own)
            for _repeat in range(2):
                sum(outputs[i].square().sum() for i in uses).backward(retain_graph=True)
            optimizer.step()
            inputs.append((x.grad, own.grad))
        found = net.gradients()
        expected = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        assert_states(found, expected, 1e-4, 1e-5)
        for ours_, theirs_ in zip(*inputs):
            assert (ours_ is None) == (theirs_ is None), uses
            if ours_ is not None:
                torch.testing.assert_close(ours_, theirs_, rtol=1e-4, atol=1e-5)
    assert_states(net.state_dict(), model.state_dict(), 1e-4, 1e-5)


def test_gradients_of_before_stay_where_a_loss_leaves_parameters(make_remote):
    model, z = TwoHeads(), torch.randn(2, 1, 2, 2)
    net, x = make_remote(model), images(4, 3, 6, 6)
    optimizer = optim.SGD(net.parameters(), lr=0.0, skip_nonfinite=True)
    for one in (net, model):
        F.mse_loss(one(x, z)[1], torch.zeros(4, 2)).backward()
        one(x, z)[0].sum().backward()
    expected = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert_states(net.gradients(), expected, 1e-4, 1e-5)
    optimizer.step()  # the client doesn't know whether the server skips it
    net.zero_grad()
    net(x, z)[0].sum().backward()
    assert set(net.gradients()) == {"stem.weight", "stem.bias", "one.weight", "one.bias"}


def test_outputs_that_depend_on_nothing_trainable(make_remote):
    def forward(self, x):
        return torch.relu(x), self.fixed(x), self.trained(x)

    model = Module(forward, fixed=nn.Linear(3, 2), trained=nn.Linear(3, 2))
    model.fixed.requires_grad_(False)
    for parameter in model.parameters():
        parameter.data = integers(*parameter.shape)
    net = make_remote(model)
    for needs in (False, True):
        x, own = (integers(4, 3).requires_grad_(needs) for _ in range(2))
        found, expected = net(x), model(own)
        assert [y.requires_grad for y in found] == [y.requires_grad for y in expected]
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        for outputs in (found, expected):
            sum(y.sum() for y in outputs if y.requires_grad).backward()
        assert_gradients(net, model)
        if needs:
            torch.testing.assert_close(x.grad, own.grad, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="does not require grad"):
        net(x.detach())[1].sum().backward()


def test_parameters_that_are_frozen_before_the_backward(make_remote):
    model, x = OfIntegers(), integers(3, 2, 6, 6, most=2)
    net = make_remote(model)
    for one, own in ((net, net.model), (model, model)):
        loss = one(x).sum()
        own.fc.requires_grad_(False)
        loss.backward(retain_graph=True)
        own.requires_grad_(False)
        loss.backward()
        own.requires_grad_(True)
    assert_gradients(net, model)
    loss = net(x).sum()
    net.model.one.requires_grad_(False)
    with pytest.raises(convgrad.Unimplemented,
                       match=r"one\.weight\.requires_grad: found False"):
        loss.backward()
    assert_gradients(net, model)


def test_a_batch_of_none(make_remote):
    net = make_remote(OfIntegers())
    x = integers(3, 2, 6, 6)
    before = net(x)
    optimizer = optim.SGD(net.parameters(), lr=1.0)
    for call in (lambda: net(x[:0]), lambda: net.eval()(x[:0].requires_grad_()),
                 lambda: net.train_step(
                     x[:0], torch.zeros(0, 4), loss="mse", optimizer=optimizer)):
        with pytest.raises(convgrad.InvalidArgument,
                           match=r"inputs\.x\.dims: found \[0,2,6,6\], expected extents"):
            call()
    assert torch.equal(net.train()(x), before) and net.gradients() == {}
