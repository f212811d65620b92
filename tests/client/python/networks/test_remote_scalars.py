"""Tests tensors without axes: parameters, as NFNets have them, and inputs."""

import copy

import pytest
import torch
from family_blocks import stem
from family_convolutions import StandardizedConv
from test_remote_import import import_
from test_remote_optim import assert_states
from torch import nn

from convgrad.torch import optim


class Block(nn.Module):
    """timm's NormFreeBlock, without attention: two gains of one number each."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = StandardizedConv(8, 8, 3), StandardizedConv(8, 8, 3)
        self.act = nn.SiLU(inplace=True)
        self.skipinit_gain = nn.Parameter(torch.tensor(0.0))
        self.shift = nn.Parameter(torch.tensor(0.25))
        self.register_buffer("alpha", torch.tensor(0.5))

    def forward(self, x):
        y = self.conv2(self.act(self.conv1(x * self.alpha)))
        y.mul_(self.skipinit_gain)
        return x + y + self.shift * self.skipinit_gain


def nfnet():
    torch.manual_seed(3)
    return nn.Sequential(stem(), Block(), Block(), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(8, 5))


@pytest.mark.parametrize("kind, settings", [
    ("SGD", dict(lr=0.1, momentum=0.9)), ("AdamW", dict(lr=0.01)),
    ("RMSprop", dict(lr=0.01, centered=True, momentum=0.5)), ("Lamb", dict(lr=0.01))])
def test_a_network_with_gains_trains(make_remote, kind, settings):
    model, x = nfnet(), torch.randn(4, 3, 16, 16)
    net = make_remote(copy.deepcopy(model))
    ours = getattr(optim, kind)(net.parameters(), ema_decay=0.9, clip_grad_norm=1.0, **settings)
    theirs = getattr(torch.optim, kind, torch.optim.SGD)(model.parameters(), **settings)
    for _ in range(4):
        for one in (net, model):
            one.zero_grad()
            one(x).square().mean().backward()
        found = net.gradients()
        assert found["1.skipinit_gain"].shape == ()
        assert found.keys() == dict(model.named_parameters()).keys()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-5)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        ours.step()
        theirs.step()
        state = net.state_dict()
        if kind != "Lamb":  # torch has none
            assert_states(state, model.state_dict(), 1e-3, 1e-4)
        model.load_state_dict(state)
    assert float(state["1.skipinit_gain"]) != 0
    assert net.averaged_state_dict().keys() == state.keys()
    net.load_state_dict(nfnet().state_dict())
    assert float(net.state_dict()["1.skipinit_gain"]) == 0


def test_a_gain_in_bf16(make_remote):
    model, x = nfnet(), torch.randn(4, 3, 16, 16)
    with torch.no_grad():
        model[1].skipinit_gain.fill_(0.5)
    net = make_remote(copy.deepcopy(model), dtype=torch.bfloat16)
    for one in (net, model):
        one(x).square().mean().backward()
    torch.testing.assert_close(net.gradients()["1.skipinit_gain"], model[1].skipinit_gain.grad,
                               rtol=0.05, atol=1e-3)


def test_a_number_is_read_with_the_axes_of_the_other():
    message = import_(nfnet(), ("input",), shape=(2, 3, 16, 16)).program.message
    read = [step for step in message.steps if step.operator == "read"
            and step.operands[0].endswith(("skipinit_gain", "alpha", "shift"))]
    assert len(read) >= 6
    assert {tuple(one.attributes[0].integers.values) for one in read} == {(1, 1), (1, 1, 1, 1)}


class Timed(nn.Module):
    """Takes a number of steps as diffusers' U-Nets do."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 8)

    def forward(self, x, steps):
        if not torch.is_tensor(steps):
            steps = torch.tensor([steps], dtype=torch.long)
        elif not steps.dim():
            steps = steps[None].to(x.device)
        steps = steps * torch.ones(x.shape[0], dtype=steps.dtype)
        angles = steps[:, None].float() * torch.tensor([[0.1, 0.01]])
        return x + self.fc(angles.sin())


@pytest.mark.parametrize("steps", [7, torch.tensor(7), torch.tensor([7]), torch.tensor(0.5),
                                   torch.tensor([7, 1, 99])])
def test_numbers_of_steps(make_remote, steps):
    model, x = Timed(), torch.randn(3, 8)
    net = make_remote(copy.deepcopy(model))
    torch.testing.assert_close(net(x, steps), model(x, steps), rtol=1e-5, atol=1e-5)
