"""Tests changes of a remote network's model after the first call: supported or refused."""

import contextlib
import copy
import datetime
import enum
import logging
import types

import pytest
import torch
from small_networks import integers
from torch import nn

import convgrad
from convgrad.torch import optim

X = integers(6, 2, 4, 4)


class Plain(nn.Module):
    """Has everything that a trainer may change."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.0)
        self.head = nn.Linear(64, 3)
        self.options = types.SimpleNamespace(scales=[1], skips=False)
        self.negative_slope = 0.1

    def forward(self, x):
        y = self.bn(self.conv(x))
        y = nn.functional.leaky_relu(y, self.negative_slope)
        if not self.options.skips:
            y = torch.sigmoid(y)
        for _ in self.options.scales:
            y = y + y
        return self.head(self.drop(y).flatten(1))


class Scaled(Plain):
    slopes = 1

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.full((4, 1, 1), 3.0))
        self.shift = nn.Parameter(torch.full((4, 1, 1), 0.25))

    def forward(self, x):
        y = self.drop(self.bn(self.conv(x) * self.scale))
        y = y if self.shift is None else y + self.shift
        y = nn.functional.leaky_relu(y, self.negative_slope * self.slopes)
        return self.head(torch.sigmoid(y * len(self.options.scales)).flatten(1))


def assert_same(net, model, x=X):
    found, expected = net(x), model(x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    return found, expected


def both(make_remote):
    model = Plain()
    net = make_remote(model)
    assert_same(net, model)
    return net, model


def set_hyperparameters(m):
    m.bn.momentum, m.bn.eps = 0.5, 0.1


def set_head(m):
    torch.manual_seed(3)
    m.head = nn.Linear(64, 7)


def set_weight(m):
    m.head.weight = nn.Parameter(torch.full((3, 64), 0.25))


def set_statistics(m):
    m.bn.running_mean = torch.full((4,), 2.0)


def set_block(m):
    torch.manual_seed(4)
    m.drop = nn.Sequential(nn.ReLU(), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))


def no_head(m):
    m.head = nn.Identity()


def scale(m):
    m.register_buffer("scale", torch.full((4, 1, 1), 0.5))


def replaced_shift(m):
    m.register_parameter("shift", nn.Parameter(torch.full((4, 1, 1), 0.75)))
    m.scale = torch.full((4, 1, 1), -2.0)


def without_shift(m):
    m.shift = None


def with_modules(m):
    m.add_module("drop", nn.ReLU())
    m.set_submodule("bn", nn.Identity())
    del m.head
    m.register_module("head", nn.Linear(64, 2))
    nn.init.ones_(m.head.weight), nn.init.zeros_(m.head.bias)


@pytest.mark.parametrize("change", [
    set_head, no_head, scale, replaced_shift, without_shift, with_modules,
    lambda m: setattr(m, "negative_slope", 0.5), lambda m: setattr(m, "slopes", 2),
    lambda m: setattr(m, "options", types.SimpleNamespace(scales=[1, 2], skips=True)),
    lambda m: setattr(m, "conv", nn.Conv2d(2, 4, 3, padding=1))])
def test_attributes_that_the_network_is_given(make_remote, change):
    """They are the model's, whose next call uses them."""
    model = Scaled()
    net = make_remote(model)
    assert_same(net, model)
    torch.manual_seed(3)
    change(model)
    torch.manual_seed(3)
    change(net)
    assert_same(net, model)
    assert_same(net.eval(), model.eval())
    assert list(net.state_dict()) == list(model.state_dict())


@pytest.mark.parametrize("name", ["fast", "save", "session"])
def test_a_name_of_both(make_remote, name):
    model = Scaled()
    setattr(model, name, 1)
    net = make_remote(model)
    before = getattr(net, name)
    with pytest.raises(convgrad.Unimplemented, match=rf"net\.{name}: .* expected net\.model"):
        setattr(net, name, 2)
    assert getattr(net, name) == before
    net.more = 3
    assert net.more == 3 and not hasattr(net.model, "more")
    del net.more
    with pytest.raises(AttributeError):
        del net.more


def test_a_private_name_of_both(client):
    model = Scaled()
    model._is_closed = "no"
    net = convgrad.torch.remote(model, client)
    net.close()
    assert net.model._is_closed == "no"
    with pytest.raises(convgrad.ConvgradError):
        net.state_dict()


@pytest.mark.parametrize("change", [
    set_hyperparameters, set_head, set_weight, set_statistics, no_head,
    lambda m: setattr(m, "negative_slope", 0.5),
    lambda m: setattr(m.options, "skips", True), lambda m: m.options.scales.append(2),
    lambda m: setattr(m, "bn", nn.Identity()),
    set_block,
    lambda m: setattr(m.bn, "track_running_stats", False)])
def test_changes_after_a_call(make_remote, change):
    net, model = both(make_remote)
    for one in (net.model, model):
        change(one)
    assert_same(net, model)
    assert_same(net, model)
    assert_same(net.eval(), model.eval())
    state, expected = net.state_dict(), model.state_dict()
    assert list(state) == list(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-4, atol=1e-5)


def test_dropout_that_is_changed(make_remote):
    net, _ = both(make_remote)
    net.model.drop.p = 1.0
    assert torch.equal(net(X), net(X * 2))  # only the head's bias remains
    net.model.drop.p = 0.0
    assert not torch.equal(net(X), net(X * 2))


def test_a_new_head_is_trained(make_remote):
    """Does transfer learning: freezes, replaces the head, and makes an optimizer for it."""
    net, model = both(make_remote)
    old = [(net, optim.SGD(net.parameters(), lr=0.1, momentum=0.9)),
           (model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))]
    for one, optimizer in old:
        one(X).square().mean().backward()
        optimizer.step()
    for one, m in ((net, net.model), (model, model)):
        m.requires_grad_(False)
        set_head(m)
        assert {n for n, p in one.named_parameters() if p.requires_grad} == {
            "head.weight", "head.bias"}
    new = [(net, optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1,
                           momentum=0.9)),
           (model, torch.optim.SGD(model.head.parameters(), lr=0.1, momentum=0.9))]
    assert not {name for name in net.gradients() if name.startswith("head")}
    for _ in range(3):
        for one, optimizer in new:
            optimizer.zero_grad()
            one(X).square().mean().backward()
            optimizer.step()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], tensor, rtol=1e-4, atol=1e-5)


def test_an_optimizer_whose_parameter_is_replaced(make_remote):
    net, model = both(make_remote)
    pairs = [(net, net.model, optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1)),
             (model, model, torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1))]
    for one, m, optimizer in pairs:
        set_head(m)
        one(X).square().mean().backward()
        optimizer.step()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], tensor, rtol=1e-4, atol=1e-5)


def test_settings_that_come_back_are_known(make_remote):
    model = Plain()
    net = make_remote(model)
    before = net.session.number
    with torch.no_grad():
        for _ in range(3):
            for slope in (0.1, 0.7):
                net.model.negative_slope = model.negative_slope = slope
                assert_same(net.eval(), model.eval())
                assert_same(net.train(), model.train())
    # A program for each of four settings; six runs that update statistics.
    assert net.session.number == before + 4 + 6


class Slope(enum.Enum):
    SMALL = 0.1
    LARGE = 0.7


class Default:
    value: "Default"


Default.value = Default()


class Chosen(Plain):
    slope = Slope.SMALL

    def forward(self, x):
        return nn.functional.leaky_relu(self.conv(x), self.slope.value)


@pytest.mark.parametrize("value", [
    Slope.LARGE, Default(), datetime.timedelta(1, 70000), logging.getLogger("convgrad")])
def test_attributes_whose_class_has_instances(make_remote, value):
    model = Plain()
    model.value = value
    assert_same(make_remote(model).eval(), model.eval())


def test_an_enum_that_changes(make_remote):
    model = Chosen()
    net = make_remote(model)
    for slope in (Slope.SMALL, Slope.LARGE, Slope.SMALL):
        net.model.slope = model.slope = slope
        assert_same(net, model)


@pytest.mark.parametrize("change, words", [
    (lambda m: nn.init.zeros_(m.head.weight),
     r"head\.weight: found a change in place"),
    (lambda m: m.bn.reset_running_stats(), r"bn\.running_mean: found a change in place"),
    (lambda m: m.conv.register_forward_hook(lambda *_: None), r"conv \(Conv2d\): found a hook"),
    (lambda m: m.head.weight.register_hook(lambda g: g), r"head\.weight: found a hook"),
    (lambda m: m.head.weight.register_post_accumulate_grad_hook(lambda p: None),
     r"head\.weight: found a hook"),
    (lambda m: setattr(m, "head", nn.LazyLinear(3)), r"head \(LazyLinear\)")])
def test_changes_that_are_refused(make_remote, change, words):
    net, _ = both(make_remote)
    change(net.model)
    for _ in range(2):
        with pytest.raises(convgrad.Unimplemented, match=words):
            net(X)


@pytest.mark.parametrize("change, words", [
    (lambda m: setattr(m, "extra", m.head) or delattr(m, "head"), r"extra\.weight"),
    (lambda m: setattr(m, "head", copy.deepcopy(m).head), r"head\.weight"),
    (lambda m: nn.utils.weight_norm(m.head), r"head\.weight_g"),
    (lambda m: nn.utils.spectral_norm(m.head), r"head\.weight_orig")])
def test_tensors_without_values_are_not_taken(make_remote, change, words):
    net, model = both(make_remote)
    for _ in range(2):
        with contextlib.suppress(convgrad.Unimplemented):  # in the midst of weight_norm
            change(net.model)
        with pytest.raises(convgrad.Unimplemented, match=f"{words}: found a tensor without"):
            net.state_dict()
        assert net.state_dict().keys() == model.state_dict().keys()
        assert_same(net, model)


def test_a_new_module_of_another_dtype(make_remote):
    net, _ = both(make_remote)
    net.model.head = nn.Linear(64, 3).double()
    for _ in range(2):
        with pytest.raises(convgrad.InvalidArgument, match=r"head\.weight\.dtype: .*float64"):
            net(X)


def test_values_that_are_loaded_after_a_change_in_place(make_remote):
    net, model = both(make_remote)
    nn.init.zeros_(net.model.head.weight)
    net.load_state_dict(model.state_dict())
    assert_same(net.eval(), model.eval())


def test_the_model_itself_stays(make_remote):
    net, _ = both(make_remote)
    with pytest.raises(AttributeError):
        net.model = Plain()


def test_an_attribute_that_changes_with_each_call_is_named_once(make_remote, caplog):
    net = make_remote(nn.ReLU())
    net.model.scale, net.model.step = [0], 0
    with caplog.at_level(logging.WARNING):
        for i in range(60):
            if i < 30:
                net.model.step += 1
            net.model.scale[0] = i // 30 * (i % 2)
            net.follow()
    assert len(caplog.messages) == 1 and "'step' of the model has got 10" in caplog.text


def test_attributes_of_both_are_named(client, caplog):
    model = nn.ReLU()
    model.fast, model.own = 3, 4
    with caplog.at_level(logging.WARNING), convgrad.torch.remote(model, client) as net:
        assert (net.fast, net.model.fast, net.own) == (None, 3, 4)
    assert len(caplog.messages) == 1 and "its model has, too: fast. net.mod" in caplog.text
