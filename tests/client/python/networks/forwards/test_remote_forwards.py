"""Tests which Python and in-place code a forward may contain, and which is refused by name."""

import copy
import importlib
import inspect
import pickle
import random
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_networks import OfIntegers, integers, make
from test_remote_import import Module, import_, steps_of
from torch import nn

import convgrad
import convgrad.torch
from convgrad.torch import optim


def chain(self, x):
    h = self.conv(x)
    h.add_(x).relu_()
    return h


def longer(self, x):
    h = self.conv(x)
    g = F.relu(h.mul_(x), inplace=True)
    g.add_(x).sigmoid_()
    return h + g


def by_operator(self, x):
    h = g = self.conv(x)
    g += x
    g.relu_()
    h *= x
    return g


def of_contiguous(self, x):
    y = self.conv(x).contiguous()
    return y.relu_().add_(x)


@pytest.mark.parametrize("forward", [chain, longer, by_operator, of_contiguous])
def test_calls_in_place(make_remote, forward):
    model = Module(forward, conv=nn.Conv2d(3, 3, 1))
    net = make_remote(model)
    x = integers(2, 3, 4, 4)
    with torch.no_grad():
        torch.testing.assert_close(net(x), model(x), rtol=1e-5, atol=1e-5)
    if forward is not chain:
        return  # torch computes no gradients if a relu's result was changed in place
    for one in (net, model):
        one(x).square().sum().backward()
    torch.testing.assert_close(net.gradients()["conv.weight"], model.conv.weight.grad,
                               rtol=1e-4, atol=1e-3)


def test_what_contiguous_may_share(make_remote):
    def change_copy(self, x):
        h = self.conv(x)
        y = h.contiguous()
        y.relu_()
        return h

    def change_original(self, x):
        h = self.conv(x)
        y = h.contiguous()
        h.relu_()
        return y

    for forward in (change_copy, change_original):
        with pytest.raises(convgrad.Unimplemented, match="changed in place since"):
            import_(Module(forward, conv=nn.Conv2d(3, 3, 1)))
    plain = Module(lambda self, x: self.conv(x).contiguous() + self.conv(x),
                   conv=nn.Conv2d(3, 3, 1))
    assert [step[1] for step in steps_of(import_(plain))] == ["conv", "conv", "add"]


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_that_are_tracked_no_more(make_remote, momentum):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=momentum))
    x = torch.randn(4, 3, 6, 6)
    model(x)
    model[1].track_running_stats = False
    net = make_remote(model)
    for _ in range(2):
        torch.testing.assert_close(net(x), model(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.eval()(x), model.eval()(x), rtol=1e-4, atol=1e-5)
    for name, tensor in model.state_dict().items():
        assert torch.equal(net.state_dict()[name], tensor), name


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class Doubled(Reverse):
    @staticmethod
    def forward(ctx, x):
        return x + x


doubled = Doubled.apply


class Counts(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.register_buffer("n", torch.zeros(()))
        self.calls, self.seen = 0, []
        self.change = change

    def forward(self, x):
        self.change(self)
        return torch.relu(x)


def in_inference_mode(self, x):
    with torch.inference_mode():
        y = torch.relu(x)
    return torch.sigmoid(y)


def in_bfloat16(self, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return self.conv(x)


class Inferring(nn.Module):
    @torch.inference_mode()
    def forward(self, x):
        return torch.relu(x)


def count_in_place(module):
    module.n += 1


def count_anew(module):
    module.n = module.n + 1


def count(module):
    module.calls += 1


@pytest.mark.parametrize("model, words", [
    (Module(lambda self, x: torch.relu(Reverse.apply(x))), "autograd.Function Reverse"),
    (Module(lambda self, x: torch.relu(Doubled.apply(x))), "autograd.Function Doubled"),
    (Module(lambda self, x: torch.relu(doubled(x))), "autograd.Function Doubled"),
    (Module(in_inference_mode), r"the model \(Module\): found torch\.inference_mode\(\)"),
    (Module(lambda self, x: torch.sigmoid(self.f(x)), f=Inferring()),
     r"f \(Inferring\): .*inference_mode"),
    (Module(in_bfloat16, conv=nn.Conv2d(3, 3, 1)), "autocast inside a forward"),
    (nn.Sequential(Counts(count_in_place)), r"0 \(Counts\): found 'n', which its forward"),
    (nn.Sequential(Counts(count_anew)), r"0 \(Counts\): found 'n'"),
    (nn.Sequential(Counts(count)), r"0 \(Counts\): found 'calls'"),
    (nn.Sequential(Counts(lambda m: m.seen.append(1))), r"0 \(Counts\): found 'seen'"),
    (nn.Sequential(Counts(lambda m: setattr(m, "last", 1))), r"0 \(Counts\): found 'last'"),
    (nn.Sequential(Counts(lambda m: random.random() < 0.5)), "random numbers"),
    (nn.Sequential(Counts(lambda m: np.random.rand())), "random numbers")])
def test_what_a_program_would_not_do(model, words):
    with pytest.raises(convgrad.Unimplemented, match=words):
        import_(copy.deepcopy(model), ("input",) if type(model) is nn.Sequential else ("x",))


def test_what_stays_outside_of_the_forward(make_remote):
    """Gradient modes, autocast and Functions around a network work as in torch."""
    model, x = OfIntegers(), integers(3, 2, 6, 6, most=2)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            net = make_remote(model)
            torch.testing.assert_close(net(x), model(x), rtol=0, atol=0)
        x.requires_grad_()
        y, expected = Reverse.apply(net(x)), Reverse.apply(model(x))
        torch.testing.assert_close(y, expected, rtol=0, atol=0)
        (gx,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(gx, torch.autograd.grad(expected.sum(), x)[0])
        x = x.detach()
    state = random.getstate()
    import_(nn.Sequential(nn.ReLU(), nn.Dropout(0.5)), ("input",))
    assert random.getstate() == state
    own = torch.autograd.Function.__dict__.get("apply")
    import_(Module(lambda self, x: torch.relu(x)))
    assert torch.autograd.Function.__dict__.get("apply") is own


def test_modules_of_other_threads_while_a_forward_is_followed():
    """During the export, torch.fx makes all modules call its tracer."""
    other, x, results = OfIntegers(), integers(3, 2, 6, 6, most=2), []

    def forward(self, x):
        thread = threading.Thread(target=lambda: results.append(other(given)))
        thread.start()
        thread.join()
        return torch.relu(x)

    given, expected = x, other(x)
    import_(Module(forward))
    torch.testing.assert_close(results, [expected], rtol=0, atol=0)


def test_modules_of_other_threads_before_a_forward_begins(monkeypatch):
    """torch.export's tracer is active before the forward. For a module that is used twice, it
    would replace the submodules of other threads' modules."""
    plain, other, results = inspect.signature, make("Vgg"), []

    def look():
        results.append(other.features is other._modules["features"])

    def signature(*args, **kwargs):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return plain(*args, **kwargs)

    monkeypatch.setattr(inspect, "signature", signature)
    relu = nn.ReLU()
    import_(nn.Sequential(relu, relu), ("input",))
    assert len(results) > 1 and all(results)


def test_copies_and_pickles(make_remote):
    net = make_remote(OfIntegers())
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    for copies in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(convgrad.Unimplemented, match=r"network: .*net\.state_dict\(\)"):
            copies(net)
    for one in (optimizer, next(net.parameters())):
        with pytest.raises(convgrad.Unimplemented, match=r"network: .*net\.state_dict\(\)"):
            copy.deepcopy(one)


def test_compiling(make_remote):
    net = make_remote(make("Vgg"))
    for compiled in (torch.compile(net), torch.compile(lambda x: net(x) * 2)):
        with pytest.raises(convgrad.Unimplemented, match=r"torch\.compile: found a remote"):
            compiled(torch.zeros(4, 3, 16, 16))


def test_exporting(make_remote):
    net = make_remote(make("Vgg"))
    for call in (lambda self, x: net(x), lambda self, x: net(x=x)):
        with pytest.raises(convgrad.Unimplemented, match=r"torch\.compile: found a remote"):
            torch.export.export(Module(call), (torch.zeros(4, 3, 16, 16),), strict=False)


def test_another_thread_may_export_its_own_network(make_remote):
    """PyTorch tells all threads that something is compiled."""
    def deep():
        return make_remote(nn.Sequential(*(nn.Conv2d(3, 3, 1) for _ in range(60))))

    net, other, x, found = deep(), deep(), torch.ones(1, 3, 2, 2), []
    expected = net(x)
    thread = threading.Thread(target=lambda: found.append(other(x)))
    thread.start()
    while thread.is_alive():
        assert torch.equal(net(x), expected)
    thread.join()
    assert found[0].shape == x.shape


def test_closing_twice(make_remote):
    net = make_remote(nn.Linear(2, 2))
    with net:
        net.close()
    net.close()
    net = make_remote(nn.Linear(2, 2))
    with pytest.raises(ZeroDivisionError), net:
        raise ZeroDivisionError
    net.close()


def test_an_address_is_no_server():
    with pytest.raises(convgrad.InvalidArgument, match=r"'host:7070'.*convgrad\.Client"):
        convgrad.torch.remote(nn.Linear(2, 2), "host:7070")


def test_a_module_that_a_forward_imports(make_remote, tmp_path, monkeypatch):
    """It has torch's functions after the export, and they answer its questions in later ones.
    """
    (tmp_path / "imported_late.py").write_text("from torch import is_grad_enabled\n")
    monkeypatch.syspath_prepend(tmp_path)

    def forward(self, x):
        import imported_late
        return x.relu() if imported_late.is_grad_enabled() else x.sigmoid()

    model, x = Module(forward), torch.randn(2, 3)
    net = make_remote(model)
    for is_enabled in (True, False):
        with torch.set_grad_enabled(is_enabled):
            torch.testing.assert_close(net(x), model(x))
            assert importlib.import_module("imported_late").is_grad_enabled() == is_enabled


def test_a_question_that_a_forward_keeps(make_remote):
    kept = []
    model = Module(lambda self, x: kept.append(torch.is_grad_enabled) or x.relu())
    make_remote(model)(torch.randn(2, 3))
    with torch.no_grad():
        assert not any(question() for question in kept)


class Wrapping(nn.Module):
    """Takes any arguments, as PeftModel and DataParallel do."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 2, 1)

    def forward(self, x, /, *more, scale=1.0, **others):
        y = self.conv(x) * scale + others.get("shift", 0.0)
        for one in more:
            y = y * one
        return y


def test_arguments_without_names_of_their_own(make_remote):
    model = Wrapping()
    net, x, y = make_remote(copy.deepcopy(model)), *torch.randn(2, 2, 3, 4, 4)
    for args, keywords in (((x,), {}), ((x, 2.0, y[:, :2]), {}),
                           ((x, y[:, :1]), dict(scale=3.0)), ((y,), dict(shift=x[:, :2])),
                           ((y, 0.5), dict(shift=1.0, other=None))):
        found = []
        for one in (net, model):
            result = one(*args, **keywords)
            result.square().sum().backward()
            found.append(result.detach())
        torch.testing.assert_close(*found)
    for name, gradient in net.gradients().items():
        torch.testing.assert_close(gradient, model.get_parameter(name).grad)
    with pytest.raises(convgrad.Unimplemented, match="two arguments called x"):
        net(x, x=y)
    with pytest.raises(convgrad.Unimplemented, match=r"an argument called 'more\.0'"):
        net(x, **{"more.0": y})
