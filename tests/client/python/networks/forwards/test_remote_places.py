"""Tests that an error of a run names its module, and its line of the forward."""

import inspect
import pathlib
import traceback

import pytest
import torch
from torch import nn

import convgrad
from convgrad.torch import optim


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(3, 4, 3)
        self.other = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 4, 3, stride=2))

    def forward(self, x):
        return torch.cat([self.one(x), self.other(x)], 1)


# The single line of Block.forward.
LINE = f"{__file__}:{inspect.getsourcelines(Block.forward)[1] + 1}"


@pytest.fixture
def net(make_remote):
    return make_remote(nn.Sequential(nn.ReLU(), Block(), nn.Flatten()))


def message_of(call, *args, **keywords):
    with pytest.raises(convgrad.InvalidArgument, match="shapes that it takes") as caught:
        call(*args, **keywords)
    return str(caught.value)


def test_a_function_and_a_module(net):
    at_cat = message_of(net, torch.ones(2, 3, 8, 8))
    assert "model.1 (Block): found Sizes of tensors" in at_cat
    assert at_cat.endswith(f"; see {LINE}")
    at_conv = message_of(net, torch.ones(2, 5, 8, 8))
    assert "model.1.one (Conv2d): found Given groups=1" in at_conv
    assert at_conv.endswith(f"; see {LINE}")
    with torch.no_grad():
        assert message_of(net, torch.ones(2, 3, 8, 8)) == at_cat


class Checking(nn.Module):
    def __init__(self, check):
        super().__init__()
        self.check, self.conv = check, nn.Conv2d(3, 4, 3)

    def forward(self, x):
        self.check(x.shape[2] == 8, f"height {x.shape[2]}")
        return self.conv(x)


def asserted(condition, message):
    assert condition, message


def compared(condition, message):
    if not condition:
        raise ValueError(message)


@pytest.mark.parametrize("check", [asserted, compared, torch._assert])
def test_a_check_of_a_forward(make_remote, check):
    net = make_remote(nn.Sequential(nn.ReLU(), Checking(check)))
    assert "model.1 (Checking): found height 9" in message_of(net, torch.ones(2, 3, 9, 8))
    assert net(torch.ones(2, 3, 8, 8)).shape == (2, 4, 6, 6)


def test_a_check_of_torchs_modules(make_remote):
    net = make_remote(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    assert "1 (BatchNorm2d): found expected 4D input" in message_of(net, torch.ones(3, 8, 8))


def test_a_module_of_torchs_containers(make_remote):
    net = make_remote(nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 2)))
    assert "model.1 (Linear): found " in message_of(net, torch.ones(2, 4))
    net = make_remote(nn.Linear(4, 4))
    assert "the model (Linear): found " in message_of(net, torch.ones(2, 5))


def test_steps_of_training(net):
    sgd = optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.ones(2, 3, 8, 8), torch.tensor([0, 1])
    for call in (net.forward_backward,
                 lambda *args: net.submit_train_step(*args, optimizer=sgd).result()):
        assert message_of(call, x, y).endswith(f"; see {LINE}")
    # A valid shape works after these refusals.
    small = torch.ones(2, 3, 3, 3)
    assert net.train_step(small, y, optimizer=sgd) > 0


def test_the_loss_comes_from_no_module(make_remote):
    net = make_remote(nn.Flatten())
    with pytest.raises(convgrad.InvalidArgument, match=r"steps\[1\] \(loss") as caught:
        net.forward_backward(torch.ones(2, 3), torch.ones(3, dtype=torch.int64))
    text = str(caught.value)
    assert "the step comes from" not in text


def summed(x):
    return x.cummax(1)[0]


class Summing(Block):
    def forward(self, x):
        return summed(self.one(x))


def test_a_call_that_programs_have_not(make_remote):
    net = make_remote(nn.Sequential(nn.ReLU(), Summing()))
    with pytest.raises(convgrad.Unimplemented, match="found aten.cummax") as caught:
        net(torch.ones(2, 3, 8, 8))
    line = inspect.getsourcelines(summed)[1] + 1
    assert "model.1 (Summing)" in str(caught.value)
    assert str(caught.value).endswith(f"; see {__file__}:{line}")


class Inferring(Block):
    def forward(self, x):
        with torch.inference_mode():
            return summed(self.one(x))


def test_a_traceback_has_the_lines_of_the_forward(make_remote):
    net = make_remote(nn.Sequential(nn.ReLU(), Inferring()))
    with pytest.raises(convgrad.Unimplemented, match="inference_mode") as caught:
        net(torch.ones(2, 3, 8, 8))
    frames = traceback.extract_tb(caught.value.__traceback__)
    line = inspect.getsourcelines(Inferring.forward)[1] + 2
    assert (__file__, line) in [(frame.filename, frame.lineno) for frame in frames]
    package = str(pathlib.Path(convgrad.__file__).parent)
    assert not any(frame.filename.startswith(package) for frame in frames[2:])
