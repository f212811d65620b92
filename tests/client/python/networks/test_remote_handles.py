"""Tests a remote network's handles: their gradients, and which functions refuse them by name.
"""

import copy
import gc
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

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
    assert (weight.dtype, weight.device.type, weight.is_cuda) == (torch.float32, "cpu", False)
    assert (weight.ndim, weight.size(), weight.size(1), weight.nelement()) == (2, (2, 4), 4, 8)
    with pytest.raises(AttributeError, match="parameter 'weight' is on the server and has no"):
        weight.pow(2)
    optimizer = optim.SGD([{"params": [weight], "lr": 0.5}, {"params": bias}], lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    assert [group["lr"] for group in optimizer.state_dict()["param_groups"]] == [0.25, 0.05]


def test_what_follows_from_a_dtype(net):
    weight, other = list(net.parameters())[0], nn.Linear(4, 2).weight
    for name in ("is_leaf", "itemsize", "nbytes", "layout", "is_sparse", "is_quantized"):
        assert getattr(weight, name) == getattr(other, name)
    for name in ("element_size", "is_floating_point", "is_complex", "numel"):
        assert getattr(weight, name)() == getattr(other, name)()


@pytest.mark.parametrize("name, instead", [
    ("register_hook", r"p\.grad is"), ("mul_", r"net\.load_state_dict\(state, strict=False\)"),
    ("detach", r"net\.state_dict\(\)"), ("data", r"net\.state_dict\(\)")])
def test_what_handles_lack(net, name, instead):
    weight, _ = net.parameters()
    with pytest.raises(AttributeError, match=rf"'weight' .* no '{name}' here; {instead}"):
        getattr(weight, name)


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrizations_of_the_models_parameters(net, name):
    with pytest.raises(convgrad.Unimplemented, match="parametrization"):
        getattr(nn.utils.parametrizations, name)(net.model)
        net(torch.ones(3, 4))


def test_an_optimizer_of_named_parameters(make_remote):
    models = [make_remote(nn.Sequential(nn.Linear(4, 2))), nn.Sequential(nn.Linear(4, 2))]
    models[1].load_state_dict(models[0].state_dict())
    states = []
    for model, kind in zip(models, (optim, torch.optim)):
        named = list(model.named_parameters())
        optimizer = kind.SGD([{"params": named[:1], "lr": 0.5}, {"params": named[1:]}], lr=0.1)
        model(torch.ones(3, 4)).square().sum().backward()
        optimizer.step()
        again = kind.SGD(model.named_parameters(), lr=0.1, momentum=0.9)
        again.load_state_dict(again.state_dict())
        states.append([group["param_names"] for group in (
            *optimizer.param_groups, *again.state_dict()["param_groups"])])
    assert states[0] == states[1] == [["0.weight"], ["0.bias"], ["0.weight", "0.bias"]]
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())


def test_handles_stay_the_same(make_remote):
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model[0].bias.no_decay = True
    model[1].bias._optim = {"lr": 0.5}
    net = make_remote(model)
    ids = [id(p) for p in net.parameters()]
    for p in net.parameters():
        p.is_seen = p.name
    gc.collect()
    others = [object() for _ in range(1000)]
    assert [id(p) for p in net.parameters()] == ids and others
    assert [p.is_seen for p in net.parameters()] == [n for n, _ in model.named_parameters()]
    assert [getattr(p, "no_decay", False) for p in net.parameters()] == [0, 1, 0, 0]
    assert net._parameters["1.bias"]._optim == {"lr": 0.5}
    net.model[1] = nn.Linear(3, 2)
    assert not hasattr(list(net.parameters())[3], "is_seen")
    assert [id(p) for p in net.parameters()][:2] == ids[:2]
    optimizer = optim.SGD(net.parameters())
    for copied in (list(net.parameters())[0], optimizer):
        with pytest.raises(convgrad.Unimplemented, match="a copy or a pickle of what is on a"):
            copy.deepcopy(copied)


@pytest.mark.parametrize("name", ["data", "name", "_grad", "is_leaf"])
def test_assignments_of_tensors_attributes(net, name):
    weight, _ = net.parameters()
    with pytest.raises(convgrad.Unimplemented, match=rf"parameters\.weight\.{name}: found"):
        setattr(weight, name, torch.ones(2, 4))
    assert weight.name == "weight" and not hasattr(weight, "data")
    with pytest.raises(convgrad.Unimplemented, match=r"weight: found arithmetic"):
        nn.utils.vector_to_parameters(torch.ones(10), net.parameters())


@pytest.mark.parametrize("use", [
    lambda p, net: [one.grad for one in p], lambda p, net: nn.utils.clip_grad_norm_(p, 1.0),
    lambda p, net: setattr(p[0], "grad", torch.ones(2, 4)), lambda p, net: net.fc.zero_grad(),
    lambda p, net: torch.optim.SGD(p).step(), lambda p, net: torch.optim.SGD(p).zero_grad(),
])
def test_gradients_of_the_models_parameters(make_remote, use):
    """The model's own parameters have no gradient, not even None."""
    net = make_remote(nn.Sequential(OrderedDict(fc=nn.Linear(4, 2))))
    net(torch.ones(3, 4)).sum().backward()
    with pytest.raises(convgrad.Unimplemented, match=r"net\.model: found grad of a param.* "
                       r"expected grad of net\.parameters\(\)"):
        use(list(net.model.parameters()), net)
    assert net.gradients()["fc.bias"].tolist() == [3, 3]


def test_values_of_the_models_tensors(make_remote):
    net = make_remote(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)))
    for tensor in (*net.model.parameters(), *net.model.buffers()):
        for use in (lambda t: t.data.zero_(), lambda t: setattr(t, "data", torch.ones(2))):
            with pytest.raises(convgrad.Unimplemented, match=r"net\.model: found data of a t"):
                use(tensor)
        assert tensor.is_meta and repr(tensor) and copy.deepcopy(tensor).is_meta


def halved(parameters):
    for parameter in parameters:
        parameter.grad = parameter.grad * torch.tensor(0.5, requires_grad=True)


def edited(parameters):
    first, *others = parameters
    first.grad = None
    for parameter in others:
        parameter.grad.data.add_(0.25)  # which the tensor's version counter doesn't count
        parameter.grad[0] *= 3


def accumulated(parameters):
    for parameter in parameters:
        parameter.grad.mul_(4)


@pytest.mark.parametrize("change", [
    lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.01),
    lambda parameters: nn.utils.clip_grad_value_(parameters, 0.01),
    halved, edited, accumulated,
])
def test_gradients_that_the_caller_changes(make_remote, change):
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    net = make_remote(model)
    x = torch.arange(12.0).reshape(3, 4) / 8
    both = ((model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)),
            (net, optim.SGD(net.parameters(), lr=0.1, momentum=0.5)))
    for _ in range(3):
        for module, optimizer in both:
            optimizer.zero_grad()
            assert all(parameter.grad is None for parameter in module.parameters())
            F.mse_loss(module(x), torch.ones(3, 2)).backward()
            change(list(module.parameters()))
            if change is accumulated:
                F.mse_loss(module(x), torch.ones(3, 2)).backward()
            optimizer.step()
        for own, handle in zip(model.parameters(), net.parameters()):
            assert (handle.grad is None) == (own.grad is None)
            if own.grad is not None:
                torch.testing.assert_close(handle.grad, own.grad)
        torch.testing.assert_close(dict(net.state_dict()), dict(model.state_dict()))


def test_gradients_of_a_containing_module(net):
    whole = nn.ModuleList([net])
    net(torch.ones(3, 4)).sum().backward()
    assert [parameter.grad.sum().item() for parameter in whole.parameters()] == [24, 6]
    whole.zero_grad()
    assert net.gradients() == {}


def test_what_a_gradient_refuses(net):
    net(torch.ones(3, 4)).sum().backward()
    weight, bias = net.parameters()
    with pytest.raises(convgrad.InvalidArgument, match=r"weight\.grad: found \[4, 2\]"):
        weight.grad = torch.ones(4, 2)
    with pytest.raises(convgrad.InvalidArgument, match=r"found torch\.float64"):
        weight.grad = torch.ones(2, 4, dtype=torch.float64)
    bias.grad.zero_()
    net.clip_grad_norm_(1.0)
    with pytest.raises(convgrad.Unimplemented, match="before clip_grad_norm_"):
        _ = weight.grad
    for gradient in (None, torch.ones(2)):
        with pytest.raises(convgrad.Unimplemented, match="before clip_grad_norm_"):
            bias.grad = gradient
    torch.testing.assert_close(net.gradients()["bias"], torch.zeros(2))


def pair(make_remote):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    net = make_remote(model)
    both = []
    for module, kinds in ((model, torch.optim), (net, optim)):
        handles = list(module.parameters())
        both.append((module, kinds.SGD(handles[:2], lr=0.5), kinds.SGD(handles[2:], lr=0.5)))
        (module(torch.ones(3, 4)) * 8).sum().backward()
    return both


def test_clipping_a_part(make_remote):
    both = pair(make_remote)
    for module, one, other in both:
        handles = list(module.parameters())
        nn.utils.clip_grad_norm_(handles[:2], 0.1)
        nn.utils.clip_grad_norm_(handles[3:], 0.2)
        one.step()
        other.step()
        one.zero_grad()
        other.zero_grad(set_to_none=False)
        assert [p.grad is None for p in module.parameters()] == [True, True, False, False]
    (model, *_), (net, *_) = both
    torch.testing.assert_close(dict(net.state_dict()), dict(model.state_dict()))


@pytest.mark.parametrize("lose", [
    lambda net, one: one.zero_grad(), lambda net, one: one.zero_grad(set_to_none=False),
    lambda net, one: net.zero_grad(names=["0.bias"]),
    lambda net, one: setattr(net.model, "2", nn.Linear(3, 2)) or net.eval()(torch.ones(1, 4))])
def test_losing_a_part_of_what_is_clipped(make_remote, lose):
    _, (net, one, other) = pair(make_remote)
    net.clip_grad_norm_(1.0)
    for _ in range(2):
        with pytest.raises(convgrad.Unimplemented, match="found a loss of the gradient of '"):
            lose(net, one)
    assert len(net.kept_gradients.names()) == 4
    net.zero_grad()
    net.eval()(torch.ones(1, 4)).sum().backward()


def test_clipping_twice(make_remote):
    both = pair(make_remote)
    for module, *_ in both:
        for norm in (3.0, 0.25, 8.0):
            if isinstance(module, convgrad.torch.RemoteNetwork):
                module.clip_grad_norm_(norm)
            else:
                nn.utils.clip_grad_norm_(module.parameters(), norm)
        kind = optim if module is both[1][0] else torch.optim
        kind.SGD(module.parameters(), lr=0.5).step()
    (model, *_), (net, *_) = both
    torch.testing.assert_close(dict(net.state_dict()), dict(model.state_dict()))


def test_gradients_of_replaced_parameters(make_remote):
    _, (net, *_) = pair(make_remote)
    old = list(net.parameters())[3]
    net.model[2] = nn.Linear(3, 2)
    net(torch.ones(3, 4)).sum().backward()
    assert old.grad is None
    old.grad = None
    with pytest.raises(convgrad.Unimplemented, match="parameter that the network has rep"):
        old.grad = torch.ones(2)
    assert net.gradients()["2.bias"].tolist() == [3, 3]
