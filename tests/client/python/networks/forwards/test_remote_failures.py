"""Tests errors of forwards that raise, or that can't be followed: they say what is wrong, in
which module and line."""

import contextlib
import copy
import inspect
import logging
import pickle
import warnings

import pytest
import torch
from small_networks import images
from test_explain import Forward
from torch import nn

import convgrad
from convgrad.torch import explain

FORWARD = "model.0 (Forward)"


@pytest.mark.parametrize("function, field, said", [
    (lambda self, x: self.cnov(x), FORWARD,
     "AttributeError: 'Forward' object has no attribute 'cnov'"),
    (lambda self, x: self.conv(x).relue(), FORWARD,
     "AttributeError: 'Tensor' object has no attribute 'relue'"),
    (lambda self, x: self.conv(y), FORWARD, "NameError: name 'y' is not defined"),  # noqa: F821
    (lambda self, x: self.conv(x, 3), "model.0.conv (Conv2d)",
     "TypeError: Conv2d.forward() takes 2 positional arguments but 3 were given"),
    (lambda self, x: self.conv(x).sum(4), FORWARD, "IndexError: Dimension out of range"),
    (lambda self, x: torch.jit.script_if_tracing(lambda y: y.sum(4))(x), FORWARD,
     "IndexError: Dimension out of range"),
    (lambda self, x: {}["key"], FORWARD, "KeyError: 'key'"),
    (lambda self, x: next(iter(())), FORWARD, "StopIteration: ")])
def test_a_mistake_in_a_forward(function, field, said):
    """The error is PyTorch's own, or Python's, with its type and line."""
    with pytest.raises(convgrad.InvalidArgument) as caught:
        explain(nn.Sequential(Forward(function)), images())
    error = caught.value
    assert error.field == field and error.found.startswith(said)
    assert type(error.__cause__).__name__ == said.partition(":")[0]
    line = inspect.getsourcelines(function)[1]
    assert any(f"; see {__file__}:{line + i}" in str(error) for i in range(2))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_an_image_of_integers(dtype):
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    with pytest.raises(convgrad.InvalidArgument) as caught:
        explain(model, images().to(dtype))
    error = caught.value
    assert error.reason == "DTYPE_MISMATCH" and error.field == "model.0 (Conv2d)"
    assert "Input type" in error.found and "x.float()" in error.expected


@pytest.mark.parametrize("function, error", [
    (lambda self, x: self.conv(x) if x.sum() > 0 else x, None),
    (lambda self, x: [x, x][int(x.sum())], None),
    (lambda self, x: self.conv(x) * float(x.detach().numpy().sum()), None),
    (lambda self, x: x.byte().mean(), convgrad.InvalidArgument),
    (lambda self, x: self.conv(x[:, :2]), convgrad.InvalidArgument)])
def test_nothing_else_is_printed(capfd, function, error):
    """torch.export prints graphs and tracebacks of its own."""
    model = nn.Sequential(Forward(function))
    if error is None:
        assert not explain(model, images()).is_taken
    else:
        with pytest.raises(error):
            explain(model, images())
    assert capfd.readouterr() == ("", "")


def test_what_a_forward_logs_is_shown(caplog):
    def forward(self, x):
        logging.getLogger("torch.mine").warning("a warning of the forward")
        warnings.warn("another one", stacklevel=2)
        return self.cnov(x)

    with pytest.raises(convgrad.InvalidArgument), pytest.warns(UserWarning, match="another"):
        explain(Forward(forward), images())
    assert "a warning of the forward" in caplog.text


def caught(read):
    """Returns a forward that does something else where PyTorch can't read values."""
    def forward(self, x):
        try:
            read(x)
        except RuntimeError:
            return x
        return self.conv(x)

    return forward


def checked(x):
    assert x.size(1) == 4
    return x


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("forward, found, expected", [
    *((forward, "a tensor's values, which aren't known", "operators of torch alone")
      for forward in (
          lambda self, x: torch.from_numpy(self.conv(x).detach().numpy() * 2),
          lambda self, x: x * float(f"{x.mean():.3f}"), lambda self, x: x + x.data_ptr(),
          lambda self, x: x + x.untyped_storage().data_ptr(),
          lambda self, x: copy.deepcopy(x), lambda self, x: copy.copy(x),
          lambda self, x: pickle.loads(pickle.dumps(x)), lambda self, x: torch.from_dlpack(x),
          lambda self, x: torch.tensor([x.sum(), 2.0]), caught(lambda x: x.numpy()))),
    (lambda self, x: x if x.sum() > 0 else -x, "a number or a condition that follows",
     "a forward whose control flow doesn't depend on data"),
    (lambda self, x: x * x.mean().item(), "mul with a number that depends", "a number that is"),
    (lambda self, x: torch.jit.script(checked)(x), "TorchScript, which", "its function in"),
    (lambda self, x: torch.jit.trace(torch.relu, (x,))(x), "TorchScript, which", "its fun"),
    (lambda self, x: torch.autograd.grad(self.conv(x).sum(), x), "gradients computed in", ""),
    (lambda self, x: self.conv(x).sum().backward(), "gradients computed in a forward", ""),
    (lambda self, x: setattr(x, "data", 2 * x), "an assignment to 'data'", "x.copy_(y)"),
    (lambda self, x: x.cpu().to("meta") + x, "Expected all", "a forward that torch.exp")])
def test_a_forward_that_cannot_be_followed(forward, found, expected):
    (refusal,) = explain(nn.Sequential(Forward(forward)), images()).refusals
    assert refusal.found.startswith(found) and refusal.expected.startswith(expected)
    assert refusal.module == "0 (Forward)" and refusal.line


@pytest.mark.parametrize("error, reason", [
    (ValueError("of other types"), "SHAPE_MISMATCH"), (RuntimeError("types"), "MALFORMED")])
def test_an_error_after_one_that_the_forward_has_caught(error, reason):
    def forward(self, x):
        with contextlib.suppress(RuntimeError):
            self.conv(x[:, :1])
        raise error

    with pytest.raises(convgrad.InvalidArgument) as raised:
        explain(Forward(forward), images())
    assert raised.value.reason == reason


@pytest.mark.parametrize("function, reason", [
    (lambda self, x: torch.where(x, x, 1.0), "DTYPE_MISMATCH"),
    (lambda self, x: x.long().add_(0.5), "DTYPE_MISMATCH"),
    (lambda self, x: x.to("a device"), "SHAPE_MISMATCH")])
def test_an_argument_that_an_operator_refuses(function, reason):
    with pytest.raises(convgrad.InvalidArgument) as raised:
        explain(Forward(function), images())
    assert raised.value.reason == reason
