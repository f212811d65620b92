"""Tests the import of models by torch.export: corner cases of batch_norm against PyTorch, one
program for all batch sizes, and one list of all unsupported parts."""

import copy

import pytest
import torch
import torch.nn.functional as F
from small_networks import images, integers
from test_remote_import import IMAGES, Module, import_, steps_of
from test_remote_optim import assert_states
from torch import nn

import convgrad
from convgrad.torch import optim


def normed(norm, conv=None):
    torch.manual_seed(2)
    first = conv or nn.Conv2d(3, 4, 3, padding=1)
    return nn.Sequential(first, norm, nn.ReLU(), nn.Conv2d(4, 2, 1))


class Twice(nn.Module):
    """Uses one norm in two steps."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.one, self.other = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.other(F.relu(self.norm(self.one(x)))))


class OwnForward(nn.BatchNorm2d):
    """Counts batches itself and then calls the function, as timm's norms do."""

    def forward(self, x):
        if self.training:
            self.num_batches_tracked.add_(1)
        return F.relu(F.batch_norm(x, self.running_mean, self.running_var, self.weight,
                                   self.bias, self.training, self.momentum, self.eps))


class Derived(nn.BatchNorm2d):
    def forward(self, x):
        return super().forward(x) * x


def frozen():
    model = normed(nn.BatchNorm2d(4))
    model[1].running_mean.fill_(0.25)
    model[1].eval()
    return model


CORNERS = {
    "plain": lambda: normed(nn.BatchNorm2d(4)),
    "momentum=None": lambda: normed(nn.BatchNorm2d(4, momentum=None)),
    "momentum=0.5": lambda: normed(nn.BatchNorm2d(4, momentum=0.5)),
    "affine=False": lambda: normed(nn.BatchNorm2d(4, affine=False)),
    "no statistics": lambda: normed(nn.BatchNorm2d(4, track_running_stats=False)),
    "frozen in train()": frozen,
    "twice": Twice,
    "forward of its own": lambda: normed(OwnForward(4)),
    "derived": lambda: normed(Derived(4)),
}


def train_both(net, model, x, own_steps=3):
    ours, theirs = optim.SGD(net.parameters(), lr=0.1), torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(own_steps):
        for one, optimizer in ((net, ours), (model, theirs)):
            optimizer.zero_grad()
            one(x).square().mean().backward()
            optimizer.step()


@pytest.mark.parametrize("corner", CORNERS)
def test_corners_of_batch_norm(make_remote, corner):
    model, x = CORNERS[corner](), images(4, 3, 6, 6)
    net = make_remote(model)
    train_both(net, model, x)
    assert_states(net.state_dict(), model.state_dict(), 1e-4, 1e-5)
    if corner == "frozen in train()":
        assert torch.equal(net.state_dict()["1.running_mean"], torch.full((4,), 0.25))
    torch.testing.assert_close(net.eval()(x), model.eval()(x), rtol=1e-4, atol=1e-5)


def test_a_batch_of_one_image_of_one_pixel(make_remote):
    """Both refuse to train on it, but evaluate it."""
    model, x = normed(nn.BatchNorm2d(4), nn.Conv2d(3, 4, 1)), images(2, 3, 1, 1)
    net = make_remote(model)
    train_both(net, model, x)
    before = net.state_dict()
    with pytest.raises(ValueError, match="more than 1 value"):
        model(x[:1])
    with pytest.raises(convgrad.InvalidArgument,
                       match=r"model\.1 \(BatchNorm2d\): found Expected more than 1 value per"):
        net(x[:1])
    assert_states(net.state_dict(), before, 0, 0)
    torch.testing.assert_close(net.eval()(x[:1]), model.eval()(x[:1]), rtol=1e-4, atol=1e-5)


def test_one_program_for_every_batch(make_remote):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Flatten(),
                          nn.Linear(4 * 36, 2)).eval()
    net = make_remote(model)
    with torch.no_grad():
        net(images(5, 3, 6, 6))
        number = net.session.number
        for batch in (1, 2, 3, 5, 7, 64):
            x = images(batch, 3, 6, 6)
            torch.testing.assert_close(net(x), model(x), rtol=1e-4, atol=1e-5)
    assert net.session.number == number  # no new program, because loading one is a change


def test_another_image_size_is_another_variant(make_remote):
    def forward(self, x):
        return F.interpolate(self.conv(F.avg_pool2d(x, 2)), size=x.shape[2:])

    model = Module(forward, conv=nn.Conv2d(3, 2, 1))
    net = make_remote(model)
    for size in ((8, 8), (6, 10), (8, 8)):
        x = images(2, 3, *size)
        torch.testing.assert_close(net(x), model(x), rtol=1e-4, atol=1e-5)


def test_inputs_of_other_batches_than_the_first(make_remote):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Conv2d(3, 2, 1)

        def forward(self, x, scale, more=None):
            y = self.one(x) * scale
            return y if more is None else (y, torch.relu(more))

    model = Two()
    net = make_remote(model)
    x, more = images(3, 3, 4, 4), images(5, 2)
    for scale in (images(1, 2, 1, 1), images(3, 2, 1, 1), images(3, 1, 1, 1)):
        torch.testing.assert_close(net(x, scale), model(x, scale), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(net(x, scale, more), model(x, scale, more=more),
                                   rtol=1e-4, atol=1e-5)
    x = x[:1]
    torch.testing.assert_close(net(x, scale[:1]), model(x, scale[:1]), rtol=1e-4, atol=1e-5)


class Branches(nn.Module):
    def forward(self, x):
        return torch.relu(x) if x.shape[0] > 4 else torch.sigmoid(x)


class Pairs(nn.Module):
    def forward(self, x):
        return torch.relu(x).view(-1, 2, *x.shape[1:]).flatten(1)


@pytest.mark.parametrize("model", [Branches(), Pairs()])
def test_what_fixes_the_batch(make_remote, model):
    model = nn.Sequential(nn.ReLU(), model, nn.ReLU())
    net = make_remote(model)
    for n in (2, 6, 4):
        x = images(n, 3, 4, 4)
        torch.testing.assert_close(net(x), model(x))


class Atan(nn.Module):
    def forward(self, x):
        return torch.atan(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.act = nn.Conv2d(3, 3, 1), Atan()

    def forward(self, x):
        return torch.erf(self.act(self.conv(x))).cummax(1)[0]


def test_all_that_is_refused_is_one_list():
    with pytest.raises(convgrad.Unimplemented) as caught:
        import_(nn.Sequential(Block(), Block(), nn.FractionalMaxPool2d(1, 3), Block()),
                ("input",))
    text = str(caught.value)
    for words in ("3 x aten.atan, first in 0.act (Atan)",
                  "3 x aten.erf, first in 0 (Block) at ",
                  "3 x aten.cummax, first in 0 (Block) at ",
                  "1 x aten.fractional_max_pool2d, first in 2 (FractionalMaxPool2d)"):
        assert words in text
    assert text.count(f"at {__file__}:") == 3 and text.count("\n") == 4
    with pytest.raises(convgrad.Unimplemented, match="cummax.*; 2 times in all"):
        import_(Module(lambda self, x: (x.cummax(2)[0], x.cummax(1)[0])))
    with pytest.raises(convgrad.Unimplemented) as caught:
        import_(nn.Sequential(Atan(), nn.ReLU(), Atan()), ("input",))
    assert "0 (Atan): found aten.atan, expected " in str(caught.value)
    assert str(caught.value).endswith("; 2 times in all")


class ByClosure(nn.Module):
    """Has statistics that aren't buffers."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        mean, var = torch.zeros(3), torch.ones(3)
        self.function = lambda x, training: F.batch_norm(x, mean, var, training=training)

    def forward(self, x):
        return self.function(self.conv(x), self.training)


@pytest.mark.parametrize("is_training", [True, False])
def test_statistics_that_a_closure_has(is_training):
    model = nn.Sequential(nn.ReLU(), ByClosure()).train(is_training)
    with pytest.raises(convgrad.Unimplemented,
                       match=r"1 \(ByClosure\): .*neither parameter nor buffer.*; see .*:\d+"):
        import_(model, ("input",))


class CountsTwice(OwnForward):
    def forward(self, x):
        self.num_batches_tracked.add_(1)
        return super().forward(x)


class Scales(nn.BatchNorm2d):
    def forward(self, x):
        self.running_mean.mul_(0.5)
        return super().forward(x)


class CountsFrozen(nn.BatchNorm2d):
    def forward(self, x):
        self.num_batches_tracked.add_(1)
        return torch.relu(x)


@pytest.mark.parametrize("kind", [CountsTwice, Scales, CountsFrozen])
def test_buffers_that_a_forward_changes(kind):
    with pytest.raises(convgrad.Unimplemented, match=r"1 \(\w+\): .*which its forward changes"):
        import_(nn.Sequential(nn.ReLU(), kind(3)), ("input",))


def test_an_object_of_tensors_is_refused():
    class Result:
        def __init__(self, x):
            self.x = x

    with pytest.raises(convgrad.Unimplemented, match="a Result among what it returns"):
        import_(Module(lambda self, x: Result(torch.relu(x))))


def test_statistics_of_what_no_output_depends_on():
    def forward(self, x):
        self.norm(x)
        return torch.relu(x)

    model = Module(forward, norm=nn.BatchNorm2d(3))
    with pytest.raises(convgrad.Unimplemented, match="norm: found running statistics of what"):
        import_(model)
    assert [step[1] for step in steps_of(import_(model.eval()))] == ["relu"]


class Rows(nn.Module):
    """torchvision's StochasticDepth by rows."""

    def forward(self, x):
        if not self.training:
            return x
        noise = torch.empty([x.shape[0], *[1] * (x.ndim - 1)], dtype=x.dtype, device=x.device)
        noise = noise.bernoulli_(0.75)
        noise.div_(0.75)
        return x * noise


class FlooredRows(nn.Module):
    """DropPath as in the repositories of Swin, ConvNeXt and EfficientNet-PyTorch."""

    def forward(self, x):
        if not self.training:
            return x
        noise = 0.75 + torch.rand((x.shape[0], *[1] * (x.ndim - 1)), dtype=x.dtype)
        return x.div(0.75) * noise.floor_()


@pytest.mark.parametrize("rows", [Rows, FlooredRows])
def test_stochastic_depth(make_remote, rows):
    model = nn.Sequential(nn.ReLU(), rows())
    step = next(step for step in import_(model, ("input",)).program.message.steps
                if step.operator == "dropout")
    assert {a.name: a.number or a.flag for a in step.attributes} == {
        "p": 0.25, "training": True, "by_row": True}
    net, x = make_remote(model), torch.ones(64, 3, 2, 2)
    torch.manual_seed(0)
    rows = net(x).flatten(1)
    assert torch.equal(rows, rows[:, :1].expand_as(rows))
    assert 0 < rows.count_nonzero() < rows.numel()
    torch.testing.assert_close(rows[rows > 0].unique(), torch.tensor([4 / 3]))
    assert torch.equal(net.eval()(x), x)


def twice(x, drawn):
    return x * (drawn + 0.5).floor() + x.relu() * (drawn + 0.25).floor()


@pytest.mark.parametrize("function, words", [
    (lambda self, x: x * (torch.rand(x.shape[0], 1, 1, 1) + x).floor(), "floor"),
    (lambda self, x: twice(x, torch.rand(x.shape[0], 1, 1, 1)), "that two results use"),
    (lambda self, x: x.floor(), "floor")])
def test_random_numbers_that_cannot_be_followed(function, words):
    with pytest.raises(convgrad.Unimplemented, match=words):
        import_(Module(function))


def test_a_mean_over_the_image(make_remote):
    model = Module(lambda self, x: self.fc(torch.relu(x).mean([-1, 2])) + self.fc(
        x.mean((2, 3), keepdim=True).flatten(1)), fc=nn.Linear(3, 2))
    net, x = make_remote(model), integers(2, 3, 4, 4)
    torch.testing.assert_close(net(x), model(x), rtol=1e-5, atol=1e-5)


def test_a_model_is_as_it_was():
    model = normed(nn.BatchNorm2d(4, momentum=None))
    before = copy.deepcopy(model.state_dict())
    attributes = [dict(vars(module)) for module in model.modules()]
    import_(model, ("input",))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert attributes == [vars(module) for module in model.modules()]


def test_hooks_and_modes_around_a_call(make_remote):
    """Modes around the first call of a network don't belong to its forward."""
    model, x = normed(nn.BatchNorm2d(4)), IMAGES + 1
    net = make_remote(model)
    with torch.device("meta"), torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        found = net(x)
    assert found.device.type == "cpu"
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t)
    with hooks, torch.no_grad():
        net.eval()(x)


def test_autocast_of_the_same_dtype_in_a_forward(make_remote):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.relu(self.conv(x))

    model = Module(forward, conv=nn.Conv2d(3, 3, 1))
    net = make_remote(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net(IMAGES).shape == IMAGES.shape


def test_a_pytorch_that_is_too_old(make_remote, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(convgrad.Unimplemented,
                       match=r"remote: found PyTorch 2\.5\.1\+cpu, expected PyTorch 2\.6"):
        make_remote(nn.Linear(2, 2))
