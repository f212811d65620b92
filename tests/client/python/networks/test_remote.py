"""Compares networks on the server with the same networks in torch: values, gradients, states.
"""

import copy

import pytest
import torch
from small_networks import NETWORKS, OfIntegers, images, integers, make
from torch import nn

import convgrad
from convgrad.torch import remote
from convgrad.torch.networks import run
from convgrad.torch.networks.run import inputs_of


def run_locally(model, x, dtype):
    """Returns outputs, input gradient and gradients of the parameters."""
    model = copy.deepcopy(model).to(dtype)
    x = x.to(dtype).requires_grad_()
    y = model(x)
    (y * weights_of(y)).sum().backward()
    return y.detach(), x.grad, {n: p.grad for n, p in model.named_parameters()}, model


def weights_of(y):
    """Returns weights of a loss none of whose gradients is zero in theory."""
    return torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)


def assert_near(name, found, in_torch, exact):
    """Asserts that the error is at most 4 times torch's float32 error, or a few roundings."""
    error = (found.double() - exact).abs().max()
    allowed = 4 * (in_torch.double() - exact).abs().max() + 1e-6 * exact.abs().max()
    assert error <= allowed, f"{name}: {error} of {exact.abs().max()}, allowed {allowed}"


@pytest.mark.parametrize("kind", NETWORKS)
def test_gradients_agree_with_torch(make_remote, kind):
    model, x = make(kind), images()
    exact, in_torch = (run_locally(model, x, dtype) for dtype in (torch.float64, torch.float32))
    net = make_remote(model)
    x.requires_grad_()
    y = net(x)
    assert y.dtype == torch.float32 and y.requires_grad
    (y * weights_of(y)).sum().backward()
    assert_near("output", y, in_torch[0], exact[0])
    assert_near("input", x.grad, in_torch[1], exact[1])
    gradients = net.gradients()
    assert list(gradients) == [name for name, _ in model.named_parameters()]
    for name, gradient in gradients.items():
        # Skips biases before a batch_norm, whose gradients are zero except for rounding.
        if exact[2][name].abs().max() > 1e-9:
            assert_near(name, gradient, in_torch[2][name], exact[2][name])
    state = net.state_dict()
    for name, buffer in exact[3].named_buffers():
        assert_near(name, state[name], dict(in_torch[3].named_buffers())[name], buffer)
    assert_near("evaluation", net.eval()(x), in_torch[3].eval()(x),
                exact[3].eval()(x.double()))


def test_integers_are_exact(make_remote):
    model, x = OfIntegers(), integers(3, 2, 6, 6, most=2)
    net = make_remote(model)
    y_net, y = net(x.requires_grad_()), model(x)
    torch.testing.assert_close(y_net, y, rtol=0, atol=0)
    given = integers(*y.shape)
    gradients = torch.autograd.grad(y, [x, *model.parameters()], given)
    (gx,) = torch.autograd.grad(y_net, x, given, retain_graph=True)
    torch.testing.assert_close(gx, gradients[0], rtol=0, atol=0)
    assert net.gradients() == {}
    y_net.backward(given)
    for found, expected in zip(net.gradients().values(), gradients[1:]):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_modes_of_modules(make_remote):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1),
                          nn.BatchNorm2d(4, momentum=None), nn.Dropout(0.5))
    net, x = make_remote(model), images(4, 3, 6, 6)
    for one in (model, net.model):
        one[1].eval()
        one[4].eval()
    for step in range(3):
        with torch.no_grad():
            torch.testing.assert_close(net(x + step), model(x + step), rtol=1e-4, atol=1e-5)
    state, expected = net.state_dict(), model.state_dict()
    assert state["3.num_batches_tracked"] == 3 and state["1.num_batches_tracked"] == 0
    assert state["3.num_batches_tracked"].shape == () and list(state) == list(expected)
    for name, tensor in expected.items():
        assert state[name].dtype == tensor.dtype
        torch.testing.assert_close(state[name], tensor, rtol=1e-5, atol=1e-6)
    assert net.training and not net.eval().training and not net.model[3].training
    before = net.state_dict()
    with torch.no_grad():
        torch.testing.assert_close(net(x), model.eval()(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.state_dict(), before, rtol=0, atol=0)


def test_dropout_drops(make_remote):
    net = make_remote(nn.Sequential(nn.ReLU(), nn.Dropout(0.25)))
    x = torch.ones(4, 1000)
    first, second = net(x), net(x)
    torch.testing.assert_close(first.unique(), torch.tensor([0, 1 / 0.75]))
    assert 0.7 < (first > 0).float().mean() < 0.8 and not torch.equal(first, second)
    assert torch.equal(net.eval()(x), x)


def test_states_go_both_ways(make_remote):
    model = make("ResNet")
    net = make_remote(model)
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(),
                                                 model.state_dict().values()))
    other = make("ResNet", seed=9)
    result = net.load_state_dict(other.state_dict())
    assert not result.missing_keys and not result.unexpected_keys
    state = net.state_dict()
    assert list(state) == list(other.state_dict())
    other.load_state_dict(state)
    for name, tensor in other.state_dict().items():
        assert torch.equal(state[name], tensor) and state[name].dtype == tensor.dtype
    torch.testing.assert_close(net.eval()(images()), other.eval()(images()), rtol=1e-4,
                               atol=1e-5)
    with pytest.raises(RuntimeError, match="Missing key.*conv1.weight"):
        net.load_state_dict({})
    with pytest.raises(RuntimeError, match="size mismatch for fc.bias"):
        net.load_state_dict(state | {"fc.bias": torch.zeros(7)})
    result = net.load_state_dict({"fc.bias": torch.ones(5, dtype=torch.float64), "x": state[
        "fc.bias"]}, strict=False)
    assert result.unexpected_keys == ["x"] and "conv1.weight" in result.missing_keys
    assert torch.equal(net.state_dict()["fc.bias"], torch.ones(5))


def test_a_partial_load_fetches_what_it_reads(make_remote, monkeypatch):
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    net, fetched = make_remote(model), []
    monkeypatch.setattr(net, "fetch", lambda names: fetched.extend(names) or type(net).fetch(
        net, names))
    state = {"0.bias": torch.ones(3), "1.weight": torch.zeros(3)}
    for one in (net, model):  # whose BatchNorm writes its count again
        assert len(one.load_state_dict(state, strict=False).missing_keys) == 4
    assert set(fetched) == {"1.bias", "1.running_mean", "1.running_var",
                            "1.num_batches_tracked"}
    for name, tensor in model.state_dict().items():
        assert torch.equal(net.state_dict()[name], tensor)


def test_the_model_that_was_given_stays_as_it_is(make_remote):
    model = make("ResNet")
    before = copy.deepcopy(model.state_dict())
    net = make_remote(model)
    net(images()).sum().backward()
    convgrad.torch.optim.SGD(net.parameters(), lr=1.0).step()
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), before.values()))
    assert all(p.grad is None for p in model.parameters())


def test_autocast_computes_in_bf16(make_remote):
    model, x = make("ResNet"), images()
    in_f32 = make_remote(model)(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = make_remote(model)(x)
    assert y.dtype == torch.float32 and torch.equal(y, y.bfloat16().float())
    assert torch.equal(y, make_remote(model, dtype=torch.bfloat16)(x))
    torch.testing.assert_close(y, in_f32, rtol=0.1, atol=0.1)
    y.sum().backward()


class ReadsImagesTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        return self.conv(x) + x


@pytest.mark.parametrize("model, dtype", [(make("ResNet"), "bfloat16"),
                                          (ReadsImagesTwice(), "float32")])
def test_images_of_convolutions_in_bf16_are_rounded_and_sent(make_remote, monkeypatch, model,
                                                             dtype):
    net, x, sent = make_remote(model, dtype=torch.bfloat16), images(), []

    def noting(*args):
        sent.append(inputs_of(*args))
        return sent[-1]

    monkeypatch.setattr(run, "inputs_of", noting)
    with torch.no_grad():
        y = net(x)
        whole = net(x.clone().requires_grad_())  # its gradient has its dtype
    assert [str(x.dtype) for inputs in sent for x in inputs.values()] == [dtype, "float32"]
    assert torch.equal(y, whole)


def test_inputs_of_other_layouts_and_dtypes(make_remote):
    model, x = OfIntegers(), integers(3, 2, 6, 6, most=2)
    net = make_remote(model)
    expected = model(x)
    for same in (x.to(memory_format=torch.channels_last), x.bfloat16(), x.half(),
                 x.transpose(0, 1).contiguous().transpose(0, 1)):
        same.requires_grad_()
        y = net(same)
        torch.testing.assert_close(y, expected, rtol=0, atol=0)
        (y * 2).sum().backward()
        assert same.grad.dtype == same.dtype and same.grad.shape == x.shape
    with pytest.raises(convgrad.InvalidArgument, match="inputs.x.dtype: found float64"):
        net(x.double())


def test_several_networks_and_sessions(client):
    with client.session() as session:
        net = remote(OfIntegers(), session)
        with pytest.raises(convgrad.AlreadyExists, match="fc.bias.*put=False"):
            remote(OfIntegers(), session)
        again = remote(OfIntegers(), session, put=False)
        x = integers(3, 2, 6, 6)
        assert torch.equal(again(x), net(x))
        net.close()
        assert "fc.bias" in session.tensors()
