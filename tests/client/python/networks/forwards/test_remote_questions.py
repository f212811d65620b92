"""Tests what a forward may ask and what differs between calls: batches, dtypes, arguments,
modes and settings of modules. Each call does what PyTorch does, or is refused."""

import dataclasses
import logging
import types

import pytest
import torch
import torch.nn.functional as F
from small_networks import images
from test_remote_import import IMAGES, Module, import_
from test_remote_writes import Model
from torch import is_grad_enabled, is_inference_mode_enabled, nn
from torch.utils.checkpoint import checkpoint

import convgrad

X = images(3, 2, 4, 4)


def squeezed(self, x):
    return self.fc(F.adaptive_avg_pool2d(x, 1).squeeze())


def of_one_sample(self, x):
    y = torch.relu(x) if x.shape[0] == 1 else torch.sigmoid(x)
    return self.fc(y.mean((2, 3)))


def of_several_samples(self, x):
    y = self.fc(x.mean((2, 3)))
    return y - y.mean(0) if y.size(0) == 1 else y


@pytest.mark.parametrize("forward", [squeezed, of_one_sample, of_several_samples])
def test_a_batch_of_one_does_what_torch_does(make_remote, forward):
    model = Module(forward, fc=nn.Linear(3, 2))
    net = make_remote(model)
    for batch in (4, 1, 3, 1):
        found = []
        for one in (net, model):
            x = images(batch, 3, 4, 4).requires_grad_()
            y = one(x)
            y.square().sum().backward()
            found.append((y.detach(), x.grad))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.gradients()["fc.weight"], model.fc.weight.grad)


@pytest.mark.parametrize("condition", [
    lambda x: x.shape[0] % 2, lambda x: x.shape[0] == 32, lambda x: x.shape[0] != 32,
    lambda x: x.numel() > 10**6, lambda x: 3 * x.shape[0] <= 20000, lambda x: x.shape[0] < 3,
    lambda x: x.shape[0] == 5, lambda x: len(x) > 1000, lambda x: x.shape[0] in (48, 96)])
def test_conditions_on_a_batch(make_remote, condition):
    model = Module(lambda self, x: x.relu() if condition(x) else x.sigmoid())
    net = make_remote(model)
    for n in (1, 2, 5, 32, 48):
        x = images(n, 2)
        torch.testing.assert_close(net(x), model(x))


class Two(nn.Module):
    def forward(self, x, y):
        return torch.relu(x) if x.shape[0] < y.shape[0] else torch.sigmoid(x)


def test_conditions_on_two_batches(make_remote):
    model, x = Two(), images(3, 2)
    net = make_remote(model)
    assert torch.equal(net(x, x), model(x, x))
    for other in (images(2, 2), images(4, 2)):
        torch.testing.assert_close(net(x, other), model(x, other))


class Rebuilding(nn.Module):
    """Keeps what it made of an input until the batch is another one."""

    kept = None

    def forward(self, x):
        if self.kept is None or self.kept.shape[0] != x.shape[0]:
            self.kept = torch.sigmoid(x)
        return x + self.kept


def test_what_is_kept_for_a_batch():
    with pytest.raises(convgrad.Unimplemented, match="'kept', which its forward changes"):
        import_(Rebuilding())


def hooked(self, x):
    y = self.conv(x)
    y.register_hook(lambda gradient: 2 * gradient)
    return y


def asked_and_caught(self, x):
    try:
        is_training = torch.is_grad_enabled()
    except Exception:
        is_training = False
    return self.conv(x) if is_training else x * 2


def frozen(self, x):
    self.conv.weight.requires_grad = False
    return self.conv(x)


def unless(question):
    return lambda self, x: self.conv(x) if question(x) else x * 2


def in_a_checkpoint(self, x):
    return checkpoint(unless(lambda y: y.requires_grad), self, x, use_reentrant=True)


@pytest.mark.parametrize("forward, words", [
    (unless(lambda x: torch.is_autocast_enabled("mps")), r"is_autocast_enabled\(\)"),
    (unless(lambda x: x.is_contiguous()), "'is_contiguous' of a tensor"),
    (unless(lambda x: x.is_contiguous(memory_format=torch.channels_last)), "'is_contiguous'"),
    (unless(lambda x: x.stride(1) == 1), "'stride'"), (unless(lambda x: x.grad), "'grad'"),
    (unless(lambda x: x.is_leaf), "'is_leaf'"), (unless(lambda x: x.grad_fn), "'grad_fn'"),
    (hooked, "'register_hook'"), (frozen, "'requires_grad'"),
    (in_a_checkpoint, "'requires_grad'")])
def test_questions_that_are_refused(forward, words):
    with pytest.raises(convgrad.Unimplemented, match=words + ".* in a forward, expected "):
        import_(nn.Sequential(nn.ReLU(), Module(forward, conv=nn.Conv2d(3, 3, 1))), ("input",))
    assert isinstance(torch.is_grad_enabled, types.BuiltinFunctionType)
    assert is_grad_enabled is torch.is_grad_enabled


def with_no_grad(self, x):
    with torch.no_grad():
        y = self.conv(x) if is_grad_enabled() else torch.sigmoid(x)
    return self.conv(y) * 2 if y.requires_grad else self.conv(y)


def checkpointed(self, x):
    y = checkpoint(self.conv, x, use_reentrant=True) if x.requires_grad else x * 3
    return checkpoint(lambda y: torch.sigmoid(self.conv(y)), y, use_reentrant=True)


def at_a_prompt(self, x):
    forward = eval("lambda self, x: self.conv(x) if torch.is_grad_enabled() else x * 2",
                   {"torch": torch})
    return forward(self, x)


@pytest.mark.parametrize("forward", [
    at_a_prompt, unless(lambda x: torch.is_grad_enabled()), unless(lambda x: is_grad_enabled()),
    unless(lambda x: is_inference_mode_enabled()), asked_and_caught, with_no_grad, checkpointed,
    unless(lambda x: torch.is_autocast_enabled("cpu")), unless(lambda x: x.requires_grad),
    unless(lambda x: torch.sigmoid(x).requires_grad),
    lambda self, x: self.conv(x) if self.conv(x).requires_grad else x * 2,
    lambda self, x: self.conv(x) if self.conv(x).grad is None else x * 2,
    lambda self, x: self.conv(x) if self.conv.weight.stride(0) == 3 else x * 2])
def test_questions_about_the_call(make_remote, forward):
    """Each call gets the answer that PyTorch would give, or is refused: under no_grad, a tensor
    may be the input itself, which requires a gradient."""
    model = Module(forward, conv=nn.Conv2d(3, 3, 1))
    net, x = make_remote(model), images(2, 3, 4, 4)
    quiet, mixed = (torch.no_grad, torch.inference_mode), lambda: torch.autocast(
        "cpu", dtype=torch.bfloat16)
    for mode in (torch.enable_grad, *quiet, mixed, torch.enable_grad):
        for trains in (False, True):
            found = []
            for one in (model, net):
                leaf = x.clone().requires_grad_(trains)
                try:
                    with mode():
                        y = one(leaf).float()
                except convgrad.Unimplemented:
                    assert mode in quiet and trains
                    break
                if y.requires_grad:
                    y.square().sum().backward()
                found.append((y.detach(), y.requires_grad, leaf.grad))
            if len(found) == 2:
                torch.testing.assert_close(*found, rtol=2e-2, atol=2e-2)
    for name, gradient in net.gradients().items():
        torch.testing.assert_close(gradient, dict(model.named_parameters())[name].grad,
                                   rtol=2e-2, atol=2e-2)


def test_questions_in_a_step_on_the_server(make_remote):
    """Its forward has gradients, whatever the mode around it."""
    net = make_remote(Module(lambda self, x: self.conv(x).flatten(1) if is_grad_enabled() else
                             x.flatten(1), conv=nn.Conv2d(3, 3, 1)))
    with torch.no_grad():
        net.forward_backward(images(2, 3, 4, 4), torch.tensor([1, 2]))
    assert len(net.gradients()) == 2


def test_questions_that_have_one_answer(make_remote):
    def forward(self, x):
        if torch.compiler.is_compiling() or torch.compiler.is_exporting() or (
                torch._dynamo.is_compiling() or torch.jit.is_tracing() or
                torch.fx._symbolic_trace.is_fx_tracing()):
            return x * 2
        return self.conv(x) if self.conv.weight.requires_grad else torch.relu(x)

    model, x = Module(forward, conv=nn.Conv2d(3, 3, 1)), images(2, 3, 4, 4)
    net = make_remote(model)
    for _ in range(2):
        torch.testing.assert_close(net(x), model(x), rtol=1e-4, atol=1e-5)
        for one in (net.model, model):
            one.conv.requires_grad_(False)


@pytest.mark.parametrize("function", [
    lambda self, y, x: y.softmax(0), lambda self, y, x: y.flatten(1).t() @ y.flatten(1),
    lambda self, y, x: F.group_norm(y.transpose(0, 1), 1),
    lambda self, y, x: F.scaled_dot_product_attention(*[y.permute(1, 2, 0, 3)] * 3),
    lambda self, y, x: torch.einsum("nchw,ndhw->cdhw", y, y)])
def test_sums_over_the_batch(make_remote, function):
    torch.manual_seed(3)
    model = Model(function)
    net = make_remote(model)
    for batch in (3, 1, 4):
        x = torch.randn(batch, 3, 4, 6)
        torch.testing.assert_close(net(x), model(x), rtol=1e-4, atol=1e-5)


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


def test_arguments_that_change_with_each_call_are_named_once(make_remote, caplog):
    net = make_remote(OfConstants())
    with caplog.at_level(logging.WARNING):
        for i in range(13):
            net(X, name=str(i))
    assert len(caplog.messages) == 1 and "10 times for other arguments" in caplog.text


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
    for function, words in ((lambda self, x: x * 2, r"torch\.uint8 among what it "),
                            (lambda self, x: x + x, r"torch\.uint8 among what it "),
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
            x = x + (9 * i if isinstance(one, bool) else i * 0.5 if str(one)[0] == "-" else one)
        return self.drop(self.acts[0](-x))


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
