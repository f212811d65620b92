"""Tests changes of the model from which a network was made: the network warns about them."""

import gc
import logging
import weakref

import pytest
import torch
from small_networks import images, make
from torch import nn

from convgrad.torch import optim


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, "convgrad")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


X, Y = torch.ones(3, 4), torch.tensor([0, 1, 0])


def write(model):
    with torch.no_grad():
        model[0].weight.zero_()


@pytest.mark.parametrize("change, words", [
    (nn.Module.eval, r"(train() or eval()), "),
    (lambda model: model[1].eval(), r"(train() or eval()), "),
    (lambda model: model.requires_grad_(False), "(requires_grad), "),
    (lambda model: model[2].bias.requires_grad_(False), "(requires_grad), "),
    (write, "(a weight), "),
    (lambda model: model.load_state_dict(model.state_dict()), "(a weight), "),
], ids=["eval", "eval of a part", "freeze", "freeze a part", "write", "load"])
@pytest.mark.parametrize("is_step", [False, True])
def test_a_change_is_said_once(make_remote, model, warnings, change, words, is_step):
    net = make_remote(model)
    sgd = optim.SGD(net.parameters(), lr=0.0)

    def call():
        return net.train_step(X, Y, optimizer=sgd) if is_step else net(X)

    call()
    assert warnings() == []
    change(model)
    for _ in range(2):
        call()
    (text,) = warnings()
    assert words in text and "use net." in text
    assert net.training and all(p.requires_grad for p in net.parameters())


def test_each_kind_is_said(make_remote, model, warnings):
    net = make_remote(model)
    model.eval()
    net(X)
    model.train()
    write(model)
    net(X)
    model.eval()
    write(model)
    net(X)
    assert len(warnings()) == 2


def test_what_is_no_mistake(make_remote, model, warnings):
    net = make_remote(model)
    net.model.eval()
    net.model[0].requires_grad_(False)
    net(X)
    write(model)
    net.load_state_dict(model.state_dict())
    net.train()(X)
    # Copies trained values back, and uses them here.
    for _ in range(2):
        model.load_state_dict(net.state_dict())
        model.eval()(X)
        net(X)
        model(X)
        net(X)
    assert warnings() == []


def test_a_copy_in_use_is_watched_no_more(make_remote, model, warnings):
    net = make_remote(model)
    state = net.state_dict()
    for _ in range(2):
        model.load_state_dict(state)
        net(X)
    for change in (nn.Module.eval, nn.Module.train, write):
        change(model)
        net(X)
    assert warnings() == []


def test_a_copy_that_is_loaded_back(make_remote, model, warnings):
    net = make_remote(model)
    model.load_state_dict(net.state_dict())
    net.load_state_dict(model.state_dict())
    model.eval()
    net(X)
    assert warnings() == []


def test_a_copy_after_another_change(make_remote, model, warnings):
    net = make_remote(model)
    state = net.state_dict()
    model.eval()
    net(X)
    model.load_state_dict(state)
    net(X)
    (text,) = warnings()
    assert "eval()" in text


def test_a_change_before_values_are_fetched(make_remote, model, warnings):
    net = make_remote(model)
    write(model)
    net.state_dict()
    net(X)
    (text,) = warnings()
    assert "a weight" in text


def test_the_original_is_not_kept(make_remote, warnings):
    model = make("ResNet")
    net, gone = make_remote(model), weakref.ref(model)
    part = model.conv1
    part.eval()
    del model
    gc.collect()
    assert gone() is None
    net(images())
    part.train()
    net(images())
    assert warnings() == []


def test_parameters_of_inference_mode(make_remote, warnings):
    with torch.inference_mode():
        net = make_remote(nn.Linear(4, 2))
    net(X)
    assert warnings() == []
