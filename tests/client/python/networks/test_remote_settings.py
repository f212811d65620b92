"""Tests what a network's programs are kept for: dtypes of inputs, values that aren't tensors,
autocast, and settings of modules. Another one gives what PyTorch gives, or is refused."""

import dataclasses

import pytest
import torch
from small_networks import images
from test_remote_import import IMAGES, Module, import_
from torch import nn

import convgrad

X = images(3, 2, 4, 4)


class OfConstants(nn.Module):
    def forward(self, x, flag=None, name=""):
        if isinstance(flag, bool):
            return torch.relu(x) if flag else torch.sigmoid(x)
        if isinstance(flag, int):
            return x * 3
        return x * 2 if str(flag).startswith("-") else torch.tanh(x)


def test_equal_constants_of_other_types(make_remote):
    model = OfConstants()
    net = make_remote(model)
    for flag in (True, 1, 1.0, False, 0, 0.0, -0.0, float("nan"), 1, True):
        torch.testing.assert_close(net(X, flag=flag), model(X, flag=flag))


def test_the_same_constants_are_found(make_remote, monkeypatch):
    net, count = make_remote(OfConstants()), []
    net(X, flag=float("nan"))
    monkeypatch.setattr(convgrad.torch.networks.variants, "import_model", count.append)
    net(X, flag=float("nan"))
    assert not count


class OfDtypes(nn.Module):
    def forward(self, x):
        if x.dtype == torch.uint8:
            return x.permute(0, 2, 3, 1).float() / 255
        return torch.relu(x)


def test_dtypes_of_inputs(make_remote):
    model, numbers = OfDtypes(), torch.arange(96).reshape(3, 2, 4, 4)
    net = make_remote(model)
    for x in (numbers.float(), numbers.byte(), numbers.half()):
        torch.testing.assert_close(net(x), model(x).float())
    for function, words in ((lambda self, x: x * 2, r"mul in torch\.uint8"),
                            (lambda self, x: x + x, r"add in torch\.uint8"),
                            (lambda self, x: x.flatten(1), r"torch\.uint8 among what it ")):
        net = make_remote(Module(function))
        assert torch.equal(net(numbers.float()), function(None, numbers.float()))
        with pytest.raises(convgrad.Unimplemented, match=words):
            net(numbers.byte())


def in_bfloat16(self, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.relu(self.conv(x))


def in_float32(self, x):
    with torch.autocast("cpu", enabled=False):
        return torch.relu(self.conv(x))


@pytest.mark.parametrize("function, dtypes", [(in_bfloat16, (torch.bfloat16, None)),
                                              (in_float32, (None, torch.bfloat16))])
def test_autocast_in_a_forward(make_remote, function, dtypes):
    """It is as the one around the network, or refused."""
    net = make_remote(Module(function, conv=nn.Conv2d(3, 3, 1)))
    for dtype, is_same in zip((*dtypes, dtypes[0]), (True, False, True)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is not None):
            if is_same:
                assert net(IMAGES).shape == IMAGES.shape
                continue
            with pytest.raises(convgrad.Unimplemented, match="autocast inside a forward"):
                net(IMAGES)


@dataclasses.dataclass
class Plain:
    scale: object = 1
    also: object = dataclasses.field(default=1, compare=False)


class Slots:
    __slots__ = ("__also", "scale")

    def __init__(self):
        self.scale, self.__also = 1, 1

    def get(self):
        return self.__also

    def set(self, value):
        self.__also = value


class Namespace:
    scale = 1
    scales = [1]  # noqa: RUF012


class Configured(nn.Module):
    factor = 1

    def __init__(self):
        super().__init__()
        self.flag, self.flags = True, (1, [True])
        self.plain, self.slots, self.space = Plain(), Slots(), Namespace
        self.acts = [nn.LeakyReLU(0.5)]
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        found = (self.flag, *self.flags[1], self.plain.scale, self.plain.also, self.slots.get(),
                 self.slots.scale, self.space.scale, *self.space.scales, self.factor)
        for i, one in enumerate(found):
            x = x + (i if isinstance(one, bool) else i * 0.5 if str(one)[0] == "-" else one)
        return self.drop(self.acts[0](x))


def also(m):
    m.plain = Plain()
    m.plain.also = 3


@pytest.mark.parametrize("change", [
    lambda m: setattr(m, "flag", 1), lambda m: setattr(m, "flag", -0.0),
    lambda m: m.flags[1].__setitem__(0, 1), lambda m: setattr(m.plain, "scale", True), also,
    lambda m: setattr(m.slots, "scale", 2), lambda m: m.slots.set(2),
    lambda m: setattr(m.space, "scale", 2), lambda m: m.space.scales.append(3),
    lambda m: setattr(type(m), "factor", 5), lambda m: setattr(m.acts[0], "negative_slope", 2),
    lambda m: setattr(m, "acts", [nn.ReLU()])])
def test_settings_that_change(make_remote, monkeypatch, change):
    monkeypatch.setattr(Namespace, "scale", 1)
    monkeypatch.setattr(Namespace, "scales", [1])
    monkeypatch.setattr(Configured, "factor", 1)
    model = Configured()
    net = make_remote(model)
    for is_changed in (False, True):
        if is_changed:
            for one in (net.model, model):
                change(one)
        for _ in range(2):
            torch.testing.assert_close(net(X), model(X))
            torch.testing.assert_close(net.eval()(X), model.eval()(X))
            for one in (net, model):
                one.train()


def test_one_program_for_settings_that_come_back(make_remote, monkeypatch):
    model = Configured()
    net = make_remote(model)
    for _ in range(2):
        net(X)
        net.eval()(X)
        net.train()
    monkeypatch.setattr(convgrad.torch.networks.variants, "import_model", None)
    for scale in (2, 1):
        net.model.slots.scale = scale
    net(X)


def count_in_slots(self, x):
    self.slots.scale += 1
    return torch.relu(x)


def test_slots_that_a_forward_changes():
    model = Module(count_in_slots)
    model.slots = Slots()
    with pytest.raises(convgrad.Unimplemented, match="'slots', which its forward changes"):
        import_(model)
