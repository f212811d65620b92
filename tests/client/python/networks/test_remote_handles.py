"""Tests that functions for tensors refuse a remote network's handles by name."""

import numpy as np
import pytest
import torch
from torch import nn

import convgrad
from convgrad.torch import optim


@pytest.fixture
def net(make_remote):
    return make_remote(nn.Linear(4, 2))


@pytest.fixture
def scaler(monkeypatch):
    """Returns a GradScaler that works without a GPU, as in newer PyTorch."""
    if hasattr(torch.amp, "GradScaler"):
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.ones(()))
        return scaler
    module = torch.cuda.amp.grad_scaler
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    # The scaler requires tensors of a GPU.
    monkeypatch.setattr(module, "_MultiDeviceReplicator", lambda tensor: tensor)
    scaler = module.GradScaler()
    scaler._lazy_init_scale_growth_tracker(torch.device("cpu"))
    return scaler


@pytest.mark.parametrize("method", ["step", "unscale_"])
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_a_grad_scaler(net, scaler, kind, method):
    optimizer = getattr(optim, kind)(net.parameters(), lr=0.1)
    net(torch.ones(3, 4)).sum().backward()
    with pytest.raises(convgrad.Unimplemented, match="GradScaler: found an optimizer whose "
                       "gradients are on the server, expected no scaler: autocast to bfloat16"):
        getattr(scaler, method)(optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1]
    optimizer.step()


def test_a_scaler_that_is_disabled(net):
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    before = net.state_dict()["weight"]
    scaler.scale(net(torch.ones(3, 4)).sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(net.state_dict()["weight"], before)


@pytest.mark.parametrize("use", [
    lambda p: p ** 2, lambda p: 2 * p, lambda p: p * 2, lambda p: p - torch.ones(2, 4),
    lambda p: torch.ones(2, 4) - p, lambda p: -p, abs, lambda p: p / 2, lambda p: p @ p,
    lambda p: p[0], list, lambda p: p > 0, torch.norm, torch.sum, lambda p: torch.stack([p, p]),
    lambda p: torch.nn.functional.mse_loss(p, torch.ones(2, 4)), np.asarray, float,
])
def test_arithmetic(net, use):
    (weight, _) = net.parameters()
    with pytest.raises(convgrad.Unimplemented, match="parameters.weight: found arithmetic with "
                       "a parameter that is on the server, expected weight_decay of .*, "
                       r"param_groups for a schedule, net.state_dict\(\)"):
        use(weight)


def test_what_handles_are_for(net):
    weight, bias = net.parameters()
    assert weight in [bias, weight] and weight == weight and weight != bias
    assert {weight: 1}[weight] == 1 and not isinstance(weight, torch.Tensor)
    with pytest.raises(AttributeError, match="parameter 'weight' is on the server and has no"):
        weight.pow(2)
    optimizer = optim.SGD([{"params": [weight], "lr": 0.5}, {"params": bias}], lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    assert [group["lr"] for group in optimizer.state_dict()["param_groups"]] == [0.25, 0.05]
