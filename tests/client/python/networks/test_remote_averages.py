"""Tests moving averages of a network's tensors, and the optimizers of timm's recipes."""

import pytest
import torch
import torch.nn.functional as F
from small_networks import images
from test_remote_optim import X, Y, assert_states, model_of, step
from torch import nn
from torch.optim import swa_utils

import convgrad
from convgrad.torch import optim


def with_statistics(seed=0):
    """Returns a network with batch_norm. The layer before it has no bias, because this bias's
    gradient is 0 but for rounding, which AdamW divides by itself."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Sigmoid(),
                         nn.Flatten(), nn.Linear(64, 5))


@pytest.mark.parametrize("kind, decay", [("SGD", 0.9), ("AdamW", 0.25)])
def test_averages_are_those_of_torch(make_remote, kind, decay):
    model = with_statistics()
    net = make_remote(model)
    ours = getattr(optim, kind)(net.parameters(), lr=0.1, ema_decay=decay)
    theirs = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
    averaged = swa_utils.AveragedModel(
        model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(decay), use_buffers=True)
    for _ in range(4):
        step(net, ours)
        step(model, theirs)
        averaged.update_parameters(model)
    expected = averaged.module.state_dict()
    # The server doesn't average counts.
    expected["1.num_batches_tracked"] = torch.tensor(4)
    assert_states(net.averaged_state_dict(), expected)
    net.eval(), averaged.eval(), model.eval()
    x = images(3, 3, 6, 6)
    with torch.no_grad():
        with net.averaged():
            torch.testing.assert_close(net(x), averaged(x), rtol=2e-5, atol=2e-6)
        torch.testing.assert_close(net(x), model(x), rtol=2e-5, atol=2e-6)


def test_averages_in_one_call_with_the_step(make_remote):
    nets = [make_remote(with_statistics()) for _ in range(2)]
    optimizers = [optim.SGD(net.parameters(), lr=0.1, ema_decay=0.5) for net in nets]
    for _ in range(3):
        step(nets[0], optimizers[0])
        nets[1].train_step(X, Y, optimizer=optimizers[1])
    assert_states(nets[0].averaged_state_dict(), nets[1].averaged_state_dict(), 1e-6, 1e-7)


def test_loaded_averages_continue(make_remote):
    def network():
        net = make_remote(with_statistics())
        return net, optim.Adam(net.parameters(), lr=0.1, ema_decay=0.5)

    net, optimizer = network()
    for _ in range(2):
        step(net, optimizer)
    saved = net.state_dict(), optimizer.state_dict(), net.averaged_state_dict()
    step(net, optimizer)
    again, optimizer = network()
    again.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    again.load_averaged_state_dict(saved[2])
    assert_states(again.averaged_state_dict(), saved[2], 0, 0)
    step(again, optimizer)
    assert_states(again.averaged_state_dict(), net.averaged_state_dict(), 0, 0)
    with pytest.raises(RuntimeError, match="Missing key"):
        del saved[2]["0.weight"]
        again.load_averaged_state_dict(saved[2])


def test_a_frozen_parameter_has_its_value_as_average(make_remote):
    model = model_of()
    model[0].requires_grad_(False)
    net = make_remote(model)
    optimizer = optim.SGD(net.parameters(), lr=0.1, ema_decay=0.5)
    for _ in range(2):
        step(net, optimizer)
    found = net.averaged_state_dict()
    assert torch.equal(found["0.weight"], model[0].weight)
    assert not torch.equal(found["3.weight"], net.state_dict()["3.weight"])


def test_a_step_that_is_skipped_averages_nothing(make_remote):
    net = make_remote(model_of())
    optimizer = optim.SGD(net.parameters(), lr=0.1, ema_decay=0.5, skip_nonfinite=True)
    step(net, optimizer)
    before = net.averaged_state_dict()
    step(net, optimizer, X * float("inf"))
    assert_states(net.averaged_state_dict(), before, 0, 0)


def test_a_new_optimizer_averages_anew(make_remote):
    net = make_remote(with_statistics())
    step(net, optim.SGD(net.parameters(), lr=0.1, ema_decay=0.9))
    step(net, optim.SGD(net.parameters(), lr=0.1, ema_decay=0.9))
    assert_states(net.averaged_state_dict(), net.state_dict(), 0, 0)


def test_a_later_group_keeps_the_averages_of_buffers(make_remote):
    net, whole = make_remote(with_statistics()), make_remote(with_statistics())
    parameters = list(net.parameters())
    ours = optim.SGD(parameters[:-1], lr=0.1, ema_decay=0.5)
    beside = optim.SGD(whole.parameters(), lr=0.1, ema_decay=0.5)
    for _ in range(2):
        step(net, ours)
        step(whole, beside)
    before = net.averaged_state_dict()
    ours.add_param_group({"params": parameters[-1:]})
    for name in ("1.running_mean", "1.running_var", "1.weight"):
        assert torch.equal(net.averaged_state_dict()[name], before[name])
    step(net, ours)
    step(whole, beside)
    found, expected = net.averaged_state_dict(), whole.averaged_state_dict()
    torch.testing.assert_close(found["1.running_mean"], expected["1.running_mean"])


def test_one_of_two_optimizers_averages_buffers(make_remote):
    net, whole = make_remote(with_statistics()), make_remote(with_statistics())
    parameters = list(net.parameters())
    both = [optim.SGD(some, lr=0.1, ema_decay=0.5) for some in (parameters[:2], parameters[2:])]
    beside = optim.SGD(whole.parameters(), lr=0.1, ema_decay=0.5)
    for _ in range(3):
        step(whole, beside)
        net.zero_grad()
        F.cross_entropy(net(X), Y).backward()
        for optimizer in both:
            optimizer.step()
    assert_states(net.averaged_state_dict(), whole.averaged_state_dict())


def test_training_with_averages_is_refused(make_remote):
    net = make_remote(with_statistics())
    step(net, optim.SGD(net.parameters(), lr=0.1, ema_decay=0.9))
    with net.averaged(), pytest.raises(convgrad.InvalidArgument, match="averaged: found a run"):
        F.cross_entropy(net(X), Y)


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_decays_out_of_range(make_remote, decay):
    net = make_remote(model_of())
    with pytest.raises(convgrad.InvalidArgument, match="ema_decay"):
        optim.SGD(net.parameters(), ema_decay=decay)


def test_elements_are_limited_before_the_norm(make_remote):
    model = model_of()
    net = make_remote(model)
    ours = optim.SGD(net.parameters(), lr=0.5, clip_grad_value=0.02, clip_grad_norm=0.05)
    theirs = torch.optim.SGD(model.parameters(), lr=0.5)
    F.cross_entropy(net(X), Y).backward()
    F.cross_entropy(model(X), Y).backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.02)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    theirs.step()
    assert ours.submit_step().result().gradient_norm == pytest.approx(norm.item(), 1e-5)
    assert_states(net.state_dict(), model.state_dict())


def test_a_limit_that_is_0_in_float32(make_remote):
    model = model_of()
    net = make_remote(model)
    optimizer = optim.SGD(net.parameters(), lr=0.5, clip_grad_value=1e-50)
    F.cross_entropy(net(X), Y).backward()
    optimizer.step()
    model(X)
    assert_states(net.state_dict(), model.state_dict())


def lamb_step(parameters, states, count, lr, weight_decay, eps=1e-6):
    """Computes a step of timm's Lamb with its defaults, by the formulas of You et al., 2019."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    assert norm > 0
    for parameter, state in zip(parameters, states):
        mean, square = state
        mean.lerp_(parameter.grad, 0.1)
        square.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
        denominator = square.sqrt() / (1 - 0.999**count)**0.5 + eps
        update = mean / (1 - 0.9**count) / denominator + weight_decay * parameter.detach()
        ratio = 1.0
        if weight_decay and parameter.norm() > 0 and update.norm() > 0:
            ratio = (parameter.norm() / update.norm()).item()
        with torch.no_grad():
            parameter.sub_(lr * ratio * update)


@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
def test_lamb(make_remote, weight_decay):
    model = model_of()
    net = make_remote(model)
    ours = optim.Lamb(net.parameters(), lr=0.01, weight_decay=weight_decay)
    parameters = list(model.parameters())
    states = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
    for count in range(1, 5):
        step(net, ours)
        model.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        lamb_step(parameters, states, count, 0.01, weight_decay)
    assert_states(net.state_dict(), model.state_dict())


def test_an_averaged_training_goes_on_after_resuming(client):
    model = model_of()
    with client.session(keep_open=True) as session:
        net = convgrad.torch.remote(model, session)
        step(net, optim.SGD(net.parameters(), lr=0.1, ema_decay=0.5))
        net.wait()
    with client.session(resume=session.id) as session:
        net = convgrad.torch.remote(model_of(seed=5), session, put=False)
        first = net.averaged_state_dict()
        step(net, optim.SGD(net.parameters(), lr=0.1, ema_decay=0.5, resume=True))
        now, value = net.averaged_state_dict(), net.state_dict()
        for name, average in now.items():
            torch.testing.assert_close(average, (first[name] + value[name]) / 2)


def batches(count=3):
    return [images(3, 3, 6, 6, seed=seed) for seed in range(count)]


def test_statistics_anew(make_remote):
    """update_bn() resets statistics in place, which is refused. This does the same."""
    model = with_statistics()
    net = make_remote(model)
    with pytest.raises(convgrad.Unimplemented, match="running_mean: found a change in place"):
        swa_utils.update_bn(batches(), net)
    swa_utils.update_bn(batches(), model)
    net.load_state_dict({"1.running_mean": torch.zeros(4), "1.running_var": torch.ones(4),
                         "1.num_batches_tracked": torch.tensor(0)}, strict=False)
    assert net.training and net.model[1].momentum is None
    with torch.no_grad():
        for x in batches():
            net(x)
    assert_states(net.state_dict(), model.state_dict())


def test_averages_by_torch_are_refused(make_remote):
    model = with_statistics()
    net = make_remote(model)
    with pytest.raises(convgrad.Unimplemented, match="a copy or a pickle .* ema_decay"):
        swa_utils.AveragedModel(net)
    for decay in (swa_utils.get_ema_avg_fn(0.5), None):
        averaged = swa_utils.AveragedModel(model, avg_fn=decay, use_buffers=True)
        averaged.update_parameters(model)
        for one in (net, net.model):
            with pytest.raises((AttributeError, NotImplementedError),
                               match="on the server|out of meta tensor"):
                averaged.update_parameters(one)
    net.model[1].running_mean.mul_(0.5)
    with pytest.raises(convgrad.Unimplemented, match="running_mean: found a change in place"):
        net.state_dict()
