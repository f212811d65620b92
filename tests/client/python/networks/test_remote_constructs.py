"""Calls of forwards that become several steps, against PyTorch: values, and gradients of inputs
and parameters."""

import collections
import itertools
import logging
import math
import pathlib
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_remote_import import import_, steps_of
from test_remote_writes import Model, assert_as_torch
from torch import nn

import convgrad


def windows(self, y, x):
    return F.unfold(y, (2, 3), dilation=(1, 2), padding=(1, 2), stride=(2, 1))


def windows_added_up(self, y, x):
    tokens = F.unfold(y, 3, padding=1, stride=2)
    overlapping = F.fold(tokens * tokens, (4, 6), 3, padding=1, stride=2)
    dilated = F.fold(y.reshape(y.shape[0], 16, 6), (4, 7), 2, dilation=(1, 3), stride=(1, 2))
    return overlapping, dilated


def apart_windows_added_up(self, y, x):
    return F.fold(F.unfold(y, 2, stride=2), (5, 7), 2, stride=2)


def windows_of_an_axis(self, y, x):
    return y.unfold(2, 3, 1).unfold(3, 2, 2).flatten(1)


def largest(self, y, x):
    return y.max(1)[0], y.max(-1, keepdim=True).values, y.max(dim=2).values


def parameter_resized(self, y, x):
    places = self.bias.reshape(1, 1, 2, 3)
    return tuple(y[:, :1, :1, :1] * F.interpolate(places, size=(5, 4), **how) for how in (
        dict(mode="bicubic", antialias=True), dict(mode="bilinear", antialias=True),
        dict(mode="bicubic"), dict(mode="bilinear", align_corners=True), {})) + (
            y[:, 0, 0] * F.interpolate(places[:, 0], size=6, mode="linear")[:, 0],)


def data_resized(self, y, x):
    line, volume = y[:, 0], y[:, :, None]
    return tuple(F.interpolate(line, mode="linear", **how) for how in (
        dict(size=9), dict(scale_factor=1.1), dict(size=3, align_corners=True))) + tuple(
            F.interpolate(volume, mode="trilinear", **how) for how in (
                dict(size=(2, 3, 7)), dict(scale_factor=(2, 1.1, 1.6)),
                dict(scale_factor=2, align_corners=True)))


def parameter_pooled(self, y, x):
    places = self.bias.reshape(1, 1, 2, 3)
    return y * F.max_pool2d(places, (2, 1), 1)[..., :1], y + F.avg_pool2d(
        places, (1, 3)).mean(), y * F.adaptive_avg_pool2d(places, 1)


def repeated(self, y, x):
    return y.tile(2, 1), y.repeat(1, 2, 1, 3), y.repeat_interleave(2, 1)


def norms_with_results(self, y, x):
    weight, bias = self.bias.sigmoid(), self.bias * 2
    return (F.layer_norm(y, (6,), weight, bias), F.rms_norm(y, (6,), weight),
            F.group_norm(y, 2, weight[:4], bias[:4]),
            F.batch_norm(y, None, None, weight[:4], bias[:4], training=True))


def like_another(self, y, x):
    return y.flatten(1).reshape_as(y) * 2, x.type_as(y) * 3


def mask_of_attention(self, y, x):
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    of_each = mask.view(1, 1, 4, 4).expand(y.shape[0], -1, 4, 4)  # as transformers makes it
    everything = (torch.arange(4).view(1, 1, 4, 1) >= 0).expand(y.shape[0], -1, 4, 4)
    return (F.scaled_dot_product_attention(y, y.sigmoid(), y * 2, mask),
            F.scaled_dot_product_attention(y, y.sigmoid(), y * 3, of_each),
            F.scaled_dot_product_attention(y, y.sigmoid(), y * 4, everything),
            torch.as_tensor(y * 2))


def queries_without_keys(self, y, x):
    mask = torch.ones(4, 4, dtype=torch.bool).tril(-1)
    return (F.scaled_dot_product_attention(y, y.sigmoid(), y * 2, mask),
            F.scaled_dot_product_attention(y, y.sigmoid(), y * 3, mask.log()))


def masks_of_samples(self, y, x):
    """Not a mask of attention: its sum depends on the batch."""
    return y * (torch.arange(4).view(1, 4, 1, 1) >= 2).expand(y.shape[0], -1, 4, 6).sum(0)


def shared_keys(self, y, x):
    """Multi-query attention, its leading axes as torch broadcasts them."""
    return (F.scaled_dot_product_attention(y, y[:, :1], y[:, 1:2]),
            F.scaled_dot_product_attention(y[:, :1], y, y, is_causal=True))


def chosen(self, y, x):
    mask = torch.ones(4, 6, dtype=torch.bool).triu(1)
    return torch.where(mask, y, y * y), y.masked_fill(mask, -3), torch.where(mask, 0.0, y)


def one_number_an_image(self, y, x):
    return y.mean((1, 2, 3)), y.flatten(1)[:, 0]


def without_elements(self, y, x):
    y[:, :, 3:3] = 7.0
    tokens = y.flatten(2).transpose(1, 2)
    first, rest = tokens.split([0, 24], 1)
    first, none = first * 2 + first.mean(2, keepdim=True), y[:, 4:].relu()
    return torch.cat([first, rest * 2, tokens[:, 5:5].softmax(-1)], 1), torch.cat(
        [torch.zeros(0), y, none, torch.zeros(y.shape[0], 0, 4, 6)], 1) * 3


CONSTRUCTS = (windows, windows_added_up, apart_windows_added_up, windows_of_an_axis, largest,
              parameter_resized, data_resized, parameter_pooled, repeated, norms_with_results,
              like_another, mask_of_attention, queries_without_keys, shared_keys, chosen,
              one_number_an_image, without_elements)


@pytest.mark.parametrize("function", CONSTRUCTS)
def test_a_construct(make_remote, function):
    assert_as_torch(make_remote, Model(function), 4, 3, 4, 6)


def test_what_is_not_finite_stays_where_torch_has_it(make_remote):
    model = Model(lambda self, y, x: F.fold(F.unfold(x, 3, padding=1), (4, 6), 3, padding=1)
                  + 0 * y.mean(1, keepdim=True))
    model.conv.weight.data.zero_()
    net, x = make_remote(model), torch.randn(2, 3, 4, 6)
    x[1, 2, 3, 5] = math.inf
    with torch.no_grad():
        found, expected = net(x)[:, :2], model(x)[:, :2]
    assert torch.isfinite(found[0]).all()
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_dropout_of_attention(make_remote):
    """Each weight is dropped or divided by 0.5. Unit rows as values make them the result."""
    def forward(self, y, x):
        rows = torch.eye(4).expand(y.shape[0], 4, 4, 4)
        return F.scaled_dot_product_attention(
            y, y, rows, dropout_p=0.5 if self.training else 0.0)

    model = Model(forward)
    net, x = make_remote(model), torch.randn(64, 3, 4, 6)
    with torch.no_grad():
        kept = net(x) / model.eval()(x)
    assert torch.logical_or((kept - 2).abs() < 1e-4, kept == 0).all()
    assert abs(kept.mean() - 1) < 0.05
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(x), model(x), rtol=1e-4, atol=1e-5)


class Keeping(nn.Module):
    """A module that keeps a tensor of its first call."""

    def __init__(self, how):
        super().__init__()
        self.how, self.cache, self.kept = how, {}, None
        self.bias = nn.Parameter(torch.randn(3, 4))
        self.register_buffer("places", torch.tensor([[0, 1], [2, 3]]))

    def forward(self, x):
        return self.how(self, x)


def of_a_parameter(self, x):
    if "key" not in self.cache:
        self.cache["key"] = self.bias[:, self.places]
    return x + self.cache["key"]


def of_numbers(self, x):
    if self.kept is None:
        self.kept = torch.arange(2.0)
    return x * self.kept + self.bias[:, :1, None]


def of_the_height(self, x):
    if self.kept is None:
        self.kept = torch.full((2,), float(x.shape[2]))
    return x * self.kept + self.bias[:, :1, None]


def of_an_input(self, x):
    if self.kept is None:
        self.kept = torch.sigmoid(x)
    return x + self.kept


def of_chance(self, x):
    if self.kept is None:
        self.kept = F.dropout(self.bias[:, :1, None], 0.5, self.training)
    return x * self.kept


def changed_after_its_use(self, x):
    if self.kept is None:
        self.kept = self.bias[:, :1, None].clone()
        return x * self.kept
    y = x * self.kept
    self.kept.add_(1)
    return y


def the_first_call_alone(self, x):
    if self.kept is None:
        self.kept = self.bias[:, self.places]
        return torch.relu(x)
    return x + self.kept


def a_count(self, x):
    self.kept = (self.kept or 0) + 1
    return torch.relu(x)


@pytest.mark.parametrize("how", [of_a_parameter, of_numbers])
def test_a_tensor_that_a_module_keeps(make_remote, how):
    torch.manual_seed(0)
    model = Keeping(how)
    net = make_remote(model)
    for batch in (2, 5):
        found = []
        for one in (net, model):
            model.cache, model.kept = {}, None
            x = torch.arange(12.0 * batch).reshape(batch, 3, 2, 2).requires_grad_()
            y = one(x)
            y.square().sum().backward()
            found.append((y.detach(), x.grad))
        torch.testing.assert_close(*found)
    torch.testing.assert_close(net.gradients()["bias"], model.bias.grad)


class Replacing(nn.Module):
    """Replaces a buffer at the first call, as ConViT does, in the state_dict or not."""

    def __init__(self, is_persistent):
        super().__init__()
        torch.manual_seed(4)
        self.scale = nn.Linear(1, 1)
        self.register_buffer("places", torch.zeros(1, 1), persistent=is_persistent)

    def forward(self, x):
        if self.places.shape[1] != x.shape[-1]:
            self.places = torch.zeros(x.shape[-1], x.shape[-1])
            self.places[:, 1:] = torch.arange(x.shape[-1] - 1.0)
        return self.scale((x @ self.places).unsqueeze(-1))


def test_a_buffer_that_a_forward_replaces(make_remote):
    model = Replacing(False)
    assert_as_torch(make_remote, model, 2, 3, 4, 6)
    assert "places" not in make_remote(Replacing(False)).state_dict()
    with pytest.raises(convgrad.Unimplemented, match="'places', which its forward changes"):
        import_(Replacing(True), shape=(2, 3, 4, 6))


def test_a_kept_tensor_and_another_size(make_remote):
    net = make_remote(Keeping(of_the_height))
    for batch in (2, 1):
        net(torch.randn(batch, 3, 2, 2))
    with pytest.raises(convgrad.Unimplemented, match="inputs of other sizes"):
        net(torch.randn(2, 3, 4, 2))


class KeepingAnArgument(nn.Module):
    kept = None

    def forward(self, x, factor=1.0):
        if self.kept is None:
            self.kept = torch.full((1,), factor if torch.is_grad_enabled() else 3.0)
        return torch.relu(x) * self.kept


def test_a_kept_tensor_and_another_call(make_remote):
    net, x = make_remote(KeepingAnArgument()), torch.randn(2, 3, requires_grad=True)
    for _ in range(2):
        assert torch.equal(net(x, 2.0), torch.relu(x) * 2)
    with pytest.raises(convgrad.Unimplemented, match="other arguments"):
        net(x, 4.0)
    with torch.no_grad(), pytest.raises(convgrad.Unimplemented, match="another kind of call"):
        net(x, 2.0)


@pytest.mark.parametrize("how", [of_an_input, of_chance, changed_after_its_use,
                                 the_first_call_alone, a_count])
def test_what_a_module_must_not_keep(how):
    with pytest.raises(convgrad.Unimplemented, match="'kept', which its forward changes"):
        import_(Keeping(how), shape=(2, 3, 2, 2))


class Counting(nn.Module):
    calls = 0
    counts = (0,)

    def __init__(self, function, state=None):
        super().__init__()
        self.function, self.state = function, state

    @staticmethod
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def forward(self, x):
        return self.doubled(x) * float(self.function(self))


def count_in_class(self):
    type(self).calls += 1
    return self.calls


@pytest.mark.parametrize("function, state", [
    (lambda m: m.state.random() > 0.5, random.Random(1)),
    (lambda m: m.state["of chance"].random(), {"of chance": np.random.default_rng(1)}),
    (lambda m: m.state.rand(), np.random.RandomState(1)),
    (lambda m: next(m.state), itertools.count()), (lambda m: next(m.state), iter([1, 2, 3])),
    (lambda m: m.state.append(1) or len(m.state), collections.deque()),
    (lambda m: m.state.__iadd__(1)[0], np.zeros(2)), (count_in_class, 1)])
def test_state_that_a_forward_must_not_change(function, state):
    name = "calls" if function is count_in_class else "state"
    with pytest.raises(convgrad.Unimplemented, match=f"'{name}', which its forward changes"):
        import_(Counting(function, state))


def test_state_that_a_forward_reads(make_remote):
    model = Counting(lambda m: m.state["a"].sum() + m.state["b"][0] + m.counts[0], {
        "a": np.arange(3), "b": collections.deque([7]), "c": random.Random(1)})
    net, x = make_remote(model), torch.ones(2, 3)
    assert torch.equal(net(x), model(x))


@pytest.mark.parametrize("asks, state", [
    (lambda m: m.state.isEnabledFor(5) or 3, logging.getLogger("not asked before")),
    (lambda m: len(str(m.state)) - 1, pathlib.Path("/a/b")),
    (lambda m: 3, {"annotation": dict[str, int]})])
def test_objects_that_remember_what_was_asked(make_remote, asks, state):
    net = make_remote(Counting(asks, state))
    assert torch.equal(net(torch.ones(2, 3)), torch.full((2, 3), 6.0))


class Output(collections.OrderedDict):
    """Has its items as attributes, too."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        vars(self)[key] = value


def test_what_an_ordered_dict_is_returned_as(make_remote):
    net = make_remote(Model(lambda self, y, x: Output(a=y, b=[x * 2])))
    x = torch.randn(2, 3, 4, 6)
    found = net(x)
    assert type(found) is Output and found.a is found["a"] and list(found) == ["a", "b"]
    assert torch.equal(found.b[0], x * 2) and found.a is not net(x).a


def all_keys_masked(self, y, x):
    return F.scaled_dot_product_attention(y, y, y, torch.zeros(4, 4, dtype=torch.bool), 0.5)


@pytest.mark.parametrize("function, words", [
    (all_keys_masked, "leaves a query no key"),
    (lambda self, y, x: y + y[:, :, :0].sum((1, 2, 3), keepdim=True),
     r"a tensor without elements, \(2, 4, 0, 6\)"),
    (lambda self, y, x: (y, y[:, :0]), "without elements, .* among what it returns"),
    (lambda self, y, x: y.detach().view(torch.int32).float(), "aten.view, expected an op"),
    (lambda self, y, x: torch.divide(y, 2, rounding_mode="floor"), "aten.divide, expected"),
    (lambda self, y, x: F.fold(y[0].flatten(1), (4, 6), 1), "three axes")])
def test_what_is_refused(function, words):
    with pytest.raises(convgrad.Unimplemented, match=words):
        import_(Model(function), shape=(2, 3, 4, 6))


def test_windows_are_views_and_indices():
    steps = steps_of(import_(Model(windows_of_an_axis), shape=(2, 3, 4, 6)))
    assert [step[1] for step in steps].count("index_select") == 2
