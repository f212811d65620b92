"""Tests which layers offload takes, which it leaves and why, and that restore undoes it."""

import copy
import logging

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import convgrad
import convgrad.aio
import convgrad.torch
from convgrad.torch import offload, restore


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


class Own(nn.Conv2d):
    pass


class Derived(convgrad.torch.Conv2d):
    pass


def make_model():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Sequential(
        nn.ConvTranspose2d(2, 2, 3), Own(2, 2, 3)), nn.Flatten(), nn.Linear(72, 2))


def test_offload_keeps_what_a_model_is(client):
    model = make_model()
    parameters = dict(model.named_parameters())
    x = torch.randn(1, 1, 8, 8)
    expected = model.eval()(x)
    assert offload(model, client).taken == ("0", "2.0")
    assert offload(model, client, linear=True).taken == ("0", "2.0", "4")
    assert all(p is parameters[name] for name, p in model.named_parameters())
    torch.testing.assert_close(model(x), expected)
    single = nn.Conv2d(1, 1, 1)
    assert offload(single, client).taken == ("",)
    assert isinstance(single, convgrad.torch.Conv2d) and isinstance(single, nn.Conv2d)


def test_restore_undoes_offload(client):
    model = make_model()
    x = torch.randn(1, 1, 8, 8)
    expected, kinds = model.eval()(x), [type(module) for module in model.modules()]
    parameters, attributes = list(model.parameters()), [set(vars(m)) for m in model.modules()]
    offload(model, client, linear=True)
    assert restore(model) == ("0", "2.0", "4")
    assert [type(module) for module in model.modules()] == kinds
    assert [set(vars(module)) for module in model.modules()] == attributes
    assert all(a is b for a, b in zip(model.parameters(), parameters))
    torch.testing.assert_close(model(x), expected, rtol=0, atol=0)
    assert restore(model) == ()


def test_what_is_left_is_named_with_the_reason(client, caplog):
    model = nn.ModuleDict({"plain": nn.Conv2d(1, 1, 1), "own": Own(1, 1, 1),
                           "lazy": nn.LazyConv2d(1, 1), "derived": Derived(1, 1, 1),
                           "linear": nn.Linear(1, 1)})
    with caplog.at_level(logging.INFO, "convgrad"):
        report = offload(model, client)
    assert report.taken == ("plain", "derived") and model["derived"].client is client
    assert report.left.keys() == {"own", "lazy"}
    assert repr(report).splitlines() == [
        "Offloaded 2 layers: plain, derived",
        "left own: Own is derived from Conv2d and may compute something else, derive it from "
        "convgrad.torch.Conv2d if it doesn't",
        "left lazy: LazyConv2d has no parameters yet, offload again after a batch went through "
        "the model"]
    assert [record.getMessage() for record in caplog.records] == [repr(report)]
    model["lazy"](torch.ones(1, 1, 2, 2))
    assert offload(model, client).left.keys() == {"own"}


@pytest.mark.parametrize("norm", [parametrizations.spectral_norm, parametrizations.orthogonal])
def test_parametrized_layers(client, norm):
    x = torch.randn(2, 2, 5, 5)
    local = norm(nn.Conv2d(2, 4, 3)).eval()
    remote, other = copy.deepcopy(local), copy.deepcopy(local)
    assert offload(nn.ModuleList([remote]), client).taken == ("0",)
    assert isinstance(remote, convgrad.torch.Conv2d)
    assert not isinstance(other, convgrad.torch.Conv2d)
    for module in (local, remote):
        module(x).square().mean().backward()
    for found, wanted in zip(remote.parameters(), local.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad)
    torch.testing.assert_close(copy.deepcopy(remote)(x), local(x))
    assert restore(remote) == ("",)
    assert parametrize.type_before_parametrizations(remote) is nn.Conv2d
    torch.testing.assert_close(remote(x), local(x), rtol=0, atol=0)
    offload(remote, client)
    parametrize.remove_parametrizations(remote, "weight")
    assert type(remote) is convgrad.torch.Conv2d


class NoClient:
    conv_backward = "not a method"


@pytest.mark.parametrize("wrong, found", [
    (None, "nothing"), ("localhost:7070", "builtins.str"),
    (convgrad.aio.Client("localhost:7070"), "convgrad.aio.Client"),
    (convgrad.Client, "builtins.type"), (NoClient(), "test_offload.NoClient")])
def test_a_client_that_is_none_is_refused_at_once(wrong, found):
    model = nn.Sequential(nn.Conv2d(1, 1, 1))
    x, w = torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1)
    attempts = [lambda: convgrad.torch.conv2d(x, w, client=wrong)]
    if wrong is not None:  # None is valid: offload() starts a server; a layer gets one later
        attempts += [lambda: offload(model, wrong), lambda: offload(nn.Flatten(), wrong),
                     lambda: convgrad.torch.Conv2d(1, 1, 1, client=wrong)]
    for attempt in attempts:
        with pytest.raises(convgrad.InvalidArgument) as caught:
            attempt()
        assert caught.value.message == f"client: found {found}, expected a convgrad.Client"
    assert type(model[0]) is nn.Conv2d
