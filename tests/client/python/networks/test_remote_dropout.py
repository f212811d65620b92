"""Tests that torch's default generator determines dropout masks, as in torch."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from convgrad.torch import optim

X = torch.ones(4, 250)


@pytest.fixture(params=[False, True], ids=["keep", "recompute"])
def net(request, make_remote):
    return make_remote(nn.Sequential(nn.ReLU(), nn.Dropout(0.5), nn.ReLU(), nn.Dropout(0.25)),
                       recompute=request.param)


def seeded(call, seed=5):
    torch.manual_seed(seed)
    return call()


def test_the_same_seed_gives_the_same_masks(net):
    first = seeded(lambda: net(X))
    second = net(X)
    assert 0 < (first > 0).float().mean() < 0.5 and not torch.equal(first, second)
    assert torch.equal(seeded(lambda: net(X)), first) and torch.equal(net(X), second)
    assert not torch.equal(seeded(lambda: net(X), seed=6), first)
    with torch.no_grad():
        assert torch.equal(seeded(lambda: net(X)), first)
    with torch.random.fork_rng():
        net(X)
    assert torch.equal(net(X), second)


def test_two_networks_and_one_seed(make_remote):
    model = nn.Dropout(0.5)
    first, second = make_remote(model), make_remote(model)
    first(X)
    assert torch.equal(seeded(lambda: first(X)), seeded(lambda: second(X)))


def test_a_backward_has_the_masks_of_its_forward(net):
    x = X.clone().requires_grad_()
    y = net(x)
    net(X)
    net.wait()
    y.sum().backward()
    assert torch.equal(x.grad, y)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_draws_the_same_masks_again(net, reentrant):
    x = X.clone().requires_grad_()
    y = checkpoint(net, x, use_reentrant=reentrant)
    y.sum().backward()
    assert torch.equal(x.grad, y)


def test_steps_of_training(make_remote):
    def losses():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(250, 32), nn.ReLU(), nn.Dropout(0.5),
                              nn.Linear(32, 5))
        net = make_remote(model)
        sgd = optim.SGD(net.parameters(), lr=0.1)
        y = torch.arange(4)
        found = [net.train_step(X, y, optimizer=sgd) for _ in range(3)]
        found += [net.submit_train_step(X, y, optimizer=sgd).result()]
        return [*found, net.forward_backward(X, y), net.forward_backward(X, y)]

    found = losses()
    assert losses() == found and found[-1] != found[-2]


@pytest.mark.parametrize("layer, is_training, draws", [
    (nn.BatchNorm1d(8), True, False), (nn.Dropout(0.5), False, False),
    (nn.Dropout(0.0), True, False), (nn.Dropout(0.5), True, True)])
def test_nothing_is_drawn_without_a_dropout_that_is_training(
        make_remote, layer, is_training, draws):
    net = make_remote(nn.Sequential(nn.Linear(250, 8), layer)).train(is_training)
    before = seeded(torch.get_rng_state)
    net(X)
    assert torch.equal(torch.get_rng_state(), before) != draws
