"""Tests explain(): it lists all refusals of a model, or the costs of its program."""

import pytest
import torch
from server_process import BINARY
from small_networks import NETWORKS, SHAPE, images, make
from torch import nn

import convgrad
from convgrad.torch import explain

TOOLS = BINARY.parents[1] / "client" / "cpp"


@pytest.fixture
def tool(monkeypatch):
    """Makes the tool `convgrad` available."""
    monkeypatch.setenv("PATH", str(TOOLS))


class Atan(nn.Module):
    def forward(self, x):
        return torch.atan(x)


class Forward(nn.Module):
    """Calls a function of the module and the input."""

    def __init__(self, function):
        super().__init__()
        self.conv, self.function = nn.Conv2d(3, 4, 3), function

    def forward(self, x):
        return self.function(self, x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.act = nn.Conv2d(3, 3, 1), Atan()

    def forward(self, x):
        return self.act(self.conv(x)).cummax(1)[0]


def test_all_that_is_refused(make_remote):
    model = nn.Sequential(Block(), Block(), nn.FractionalMaxPool2d(1, 3), Block())
    found = explain(model, images())
    assert not found.is_taken and found.program is None and found.flops == 0
    assert [(it.times, it.found, it.module, bool(it.line)) for it in found.refusals] == [
        (3, "aten.atan", "0.act (Atan)", True),
        (3, "aten.cummax", "0 (Block)", True),
        (1, "aten.fractional_max_pool2d", "2 (FractionalMaxPool2d)", False)]
    assert found.refusals[0].line.startswith(f"{__file__}:")
    title, _, *lines = str(found).splitlines()
    assert title == "Sequential: a server can't compute it"
    assert len(lines) == 3 and lines[0].split()[:5] == ["3", "aten.atan", "0.act",
                                                       "(Atan)", "an"]
    with pytest.raises(convgrad.Unimplemented) as caught:
        make_remote(model)(images())
    for it in found.refusals:
        assert f"{it.times} x {it.found}, first in {it.module}" in str(caught.value)


def test_refusals_before_the_forward_is_followed(make_remote):
    model = nn.Sequential(*(nn.Conv2d(3, 3, 1) for _ in range(3)))
    for conv in model:
        conv.register_forward_hook(print)
    (refusal,) = explain(model, images()).refusals
    assert refusal[:4] == (3, "a hook", "none inside a remote network", "0 (Conv2d)")
    with pytest.raises(convgrad.Unimplemented, match="a hook.*; 3 times in all"):
        make_remote(model)


def test_one_refusal_of_a_forward():
    class Decides(nn.Module):
        def forward(self, x):
            return torch.relu(x) if x.sum() > 0 else x

    (refusal,) = explain(nn.Sequential(nn.ReLU(), Decides()), images()).refusals
    assert refusal.times == 1 and refusal.module == "1 (Decides)"
    assert refusal.expected == "a forward whose control flow doesn't depend on data"


@pytest.mark.parametrize("kind", NETWORKS)
def test_sizes(tool, kind):
    from torch.utils.flop_counter import FlopCounterMode  # from PyTorch 2.1 on
    model, x = make(kind), images()
    found = explain(model, x)
    assert found.is_taken and found.inputs == {"x": SHAPE}
    assert found.parameters() == sum(p.numel() for p in model.parameters())
    assert found.parameters(fixed=True) == sum(b.numel() for b in model.buffers())
    assert sum(cost.steps for cost in found.costs) == len(found.program.message.steps)
    assert sum(cost.share for cost in found.costs) == pytest.approx(1)
    assert [cost.share for cost in found.costs] == sorted(
        (cost.share for cost in found.costs), reverse=True)
    with FlopCounterMode(display=False) as counter:
        model(x)
    products = ("conv", "conv_transpose", "linear")
    assert counter.get_total_flops() == sum(
        cost.flops for cost in found.costs if cost.operator in products)


def test_the_numbers_of_a_small_model(tool):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 5))
    found = explain(model, torch.ones(3, 1, 4, 4))
    assert {cost.operator: cost[1:4] for cost in found.costs} == {
        "conv": (1, 2 * 24 * 9, 4 * (48 + 18 + 2 + 24)), "relu": (1, 2 * 24, 4 * 48),
        "flatten": (1, 0, 0), "linear": (1, 2 * 15 * 8, 4 * (24 + 40 + 5 + 15))}
    assert found.value_bytes == 4 * (48 + 24 + 24 + 24 + 15)
    assert found.flops == 432 + 48 + 240
    lines = str(found).splitlines()
    assert lines[0] == ("Sequential: a server computes it, as a program of 4 steps with 65 "
                        "trainable and 0 fixed parameters")
    assert "for input of (3, 1, 4, 4)" in lines[1] and len(lines) == 8


def test_what_the_client_computes(tool):
    """It is an input of the program, of the example's batch."""
    class OfLengths(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x, lengths):
            kept = (torch.arange(5) < lengths[:, None]).float()[..., None]
            return self.fc(x) * kept + torch.rand(x.shape[0], 1, 4)

    found = explain(OfLengths(), torch.ones(3, 5, 4), torch.tensor([1, 5, 2]))
    operators = {cost.operator for cost in found.costs}
    assert found.is_taken and {"linear", "mul", "add"} <= operators
    assert found.inputs == {"x": (3, 5, 4), "lengths": (3,)}


def test_a_shape_that_follows_from_values(tool):
    model = Forward(lambda self, x: self.conv(x)[:, :, (x[0, 0, :6, 0] > -9).nonzero()[:, 0]])
    assert "index_select" in {cost.operator for cost in explain(model, images()).costs}


def test_without_the_tool(monkeypatch):
    monkeypatch.setenv("PATH", "")
    found = explain(make("Vgg"), images())
    assert found.is_taken and found.costs == () and found.parameters() > 0
    assert 'pip install --find-links build/wheels "convgrad[server]"' in str(found)


def test_modes_and_arguments(tool):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x, y=None, twice=False):
            x = self.drop(x)
            return x if y is None else x + y + y if twice else x + y

    def steps(model, *args, **kwargs):
        return {cost.operator: cost.steps for cost in explain(model, *args, **kwargs).costs}

    model, x = Two(), images()
    assert steps(model, x, y=x, twice=True) == {"add": 2, "dropout": 1}
    assert steps(model.eval(), x, x) == {"add": 1}
    with pytest.raises(TypeError):
        explain(model)


def test_examples_that_no_server_takes(tool):
    with pytest.raises(convgrad.InvalidArgument, match=r"classifier\.0 \(Linear\)"):
        explain(make("Vgg"), torch.ones(2, 3, 8, 8))
    with pytest.raises(convgrad.InvalidArgument, match="rank 2 to 5"):
        explain(nn.ReLU(), torch.ones(2, 1, 1, 1, 1, 3))
    with pytest.raises(convgrad.InvalidArgument, match="torch.nn.Module"):
        explain("a model", torch.ones(3))
