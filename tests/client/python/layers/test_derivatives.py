"""Compares derivatives of any order with central differences and with torch's derivatives.

Each operator is linear in each of its tensors. So differences of small integers are exact,
and float32 is as good as float64.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import convgrad.torch

# In PyTorch 1.13 it is in another module.
functional_call = getattr(torch, "func", torch.nn.utils.stateless).functional_call
KINDS = [
    (lambda: nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2), (2, 2, 5)),
    (lambda: nn.Conv1d(2, 2, 2, padding="same", dilation=3), (1, 2, 5)),
    (lambda: nn.Conv2d(2, 2, (2, 3), stride=(1, 2), padding=(0, 1)), (1, 2, 3, 4)),
    (lambda: nn.Conv2d(2, 1, 2, dilation=2, bias=False), (2, 2, 3, 3)),
    (lambda: nn.Conv3d(1, 2, 2), (1, 1, 3, 2, 3)),
    (lambda: nn.ConvTranspose1d(2, 4, 3, stride=2, padding=1, groups=2), (2, 2, 3)),
    (lambda: nn.ConvTranspose2d(2, 2, 2, stride=(1, 2)), (1, 2, 2, 3)),
    (lambda: nn.ConvTranspose3d(1, 2, 2), (1, 1, 2, 2, 2)),
    (lambda: nn.Linear(3, 2), (2, 3)),
]
# PyTorch 1.13 itself lacks its third derivatives.
PADDED = (lambda: nn.ConvTranspose1d(1, 2, 3, stride=2, padding=1, output_padding=1), (1, 1, 3))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def integers(*shape, dtype=torch.float32):
    return torch.randint(-3, 4, shape).to(dtype)


def filled(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(integers(*parameter.shape))
    return module


def offloaded(make, client, forward="remote"):
    module = filled(make())
    twin = copy.deepcopy(module).double()
    convgrad.torch.offload(module, client, forward=forward, linear=True)
    return module, twin


# No tolerance, because differences of integers are exact in float32.
EXACT = dict(eps=1.0, atol=0.0, rtol=0.0)


@pytest.mark.filterwarnings("ignore:Input #. requires gradient and is not a double")
@pytest.mark.parametrize("make, shape, forward", [
    *((*kind, "remote") for kind in [*KINDS, PADDED]), (*KINDS[0], "local")])
def test_central_differences(client, make, shape, forward):
    module, _ = offloaded(make, client, forward)
    operands = [integers(*shape).requires_grad_(),
                *(p.detach().clone().requires_grad_() for p in module.parameters())]
    names = [name for name, _ in module.named_parameters()]

    def function(x, *parameters):
        return functional_call(module, dict(zip(names, parameters)), (x,))

    grad_output = integers(*function(*operands).shape)
    assert gradcheck(function, operands, check_forward_ad=True, **EXACT)
    assert gradgradcheck(function, operands, [grad_output.requires_grad_()],
                         check_fwd_over_rev=True, **EXACT)


def derivatives(module, x, order):
    """Returns the derivatives of a sum of cubes of outputs, with nested gradient penalties."""
    x = x.clone().requires_grad_()
    operands = [x, *module.parameters()]
    sums = module(x).pow(3).sum()
    found = []
    for _ in range(order):
        gradients = torch.autograd.grad(sums, operands, create_graph=True)
        found += [gradient.detach().double() for gradient in gradients]
        sums = sum(gradient.sum() for gradient in gradients)
    return found


@pytest.mark.parametrize("make, shape", KINDS)
def test_derivatives_of_every_order_are_torchs(client, make, shape):
    module, twin = offloaded(make, client)
    x = integers(*shape)
    for found, wanted in zip(derivatives(module, x, 3), derivatives(twin, x.double(), 3),
                             strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_channels_last_and_bfloat16(client):
    module, twin = offloaded(lambda: nn.Conv2d(2, 3, 2), client)
    x = integers(2, 2, 3, 3)
    wanted = derivatives(twin, x.double(), 2)
    last = x.to(memory_format=torch.channels_last)
    for found, exact in zip(derivatives(module, last, 2), wanted, strict=True):
        torch.testing.assert_close(found, exact, rtol=0, atol=0)
    for found, exact in zip(derivatives(module.bfloat16(), x.bfloat16(), 2), wanted,
                            strict=True):
        assert (found - exact).norm() <= 0.02 * exact.norm()


def test_a_penalty_on_the_bias_alone(client):
    module, twin = offloaded(lambda: nn.Conv2d(2, 3, 2), client)
    x, found = integers(1, 2, 4, 4), []
    for layer, values in ((module, x), (twin, x.double())):
        gradient, = torch.autograd.grad(layer(values).square().sum(), layer.bias,
                                        create_graph=True)
        gradient.square().sum().backward()
        found.append([p.grad.double() for p in layer.parameters()])
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_second_derivatives_are_the_servers(client):
    class Counting:
        def __getattr__(self, name):
            calls.append(name)
            return getattr(client, name)

    calls, counting = [], Counting()
    module = convgrad.torch.Conv2d(1, 1, 2, client=counting, forward="local")
    x = integers(1, 1, 4, 4).requires_grad_()
    gradient, = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
    calls.clear()
    gradient.square().sum().backward()
    assert set(calls) == {"conv_forward", "conv_backward"}


def critic():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.LeakyReLU(0.2),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.LeakyReLU(0.2),
        nn.Flatten(), nn.Linear(64, 1))


def critic_loss(model, real, made):
    """Wasserstein's distance with a gradient penalty (Gulrajani et al., 2017)."""
    share = torch.linspace(0, 1, len(real), dtype=real.dtype).reshape(-1, 1, 1, 1)
    mixed = (share * real + (1 - share) * made).requires_grad_()
    gradient, = torch.autograd.grad(model(mixed).sum(), mixed, create_graph=True)
    penalty = (gradient.flatten(1).norm(dim=1) - 1).square().mean()
    return model(made).mean() - model(real).mean() + 10 * penalty


def test_a_critic_with_a_gradient_penalty_learns_as_torchs(client):
    remote = critic()
    local = copy.deepcopy(remote).double()
    assert len(convgrad.torch.offload(remote, client, linear=True).taken) == 3
    losses = ([], [])
    for model, out in zip((remote, local), losses):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        numbers = torch.Generator().manual_seed(1)
        dtype = next(model.parameters()).dtype
        for _ in range(10):
            real, made = torch.randn(2, 8, 1, 8, 8, generator=numbers).to(dtype)
            optimizer.zero_grad()
            loss = critic_loss(model, real + 1, F.relu(made))
            loss.backward()
            optimizer.step()
            out.append(loss.item())
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]),
                               rtol=1e-4, atol=1e-5)
    assert losses[1][-1] < losses[1][0] - 1


def test_second_derivatives_beside_an_offloaded_layer_are_torchs(client):
    local, remote = filled(nn.Conv2d(1, 1, 2)), filled(nn.Conv2d(1, 1, 2))
    twin = copy.deepcopy((local, remote))
    convgrad.torch.offload(remote, client)
    found, expected = [], []
    for (first, second), out in (((local, remote), found), (twin, expected)):
        x = torch.full((1, 1, 4, 4), 2.0, requires_grad=True)
        gradient, = torch.autograd.grad(first(x).square().sum(), x, create_graph=True)
        (second(x).sum() + gradient.sum()).backward()
        out += [first.weight.grad, second.weight.grad]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
