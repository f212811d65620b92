"""Tests a remote network in torch's graph: which gradients backwards add, leave, keep and free,
and what is refused."""

import contextlib
import itertools

import pytest
import torch
import torch.nn.functional as F
from server_process import ServerProcess
from shared_steps import interrupted, sessions_of, wait_until
from small_networks import OfIntegers, images, integers, make
from test_remote_import import Module
from torch import nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import convgrad
from convgrad.networks import gradient_name
from convgrad.torch import remote


def assert_gradients(net, model):
    found = net.gradients()
    expected = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=0)


def test_gradients_add_up_until_they_are_dropped(make_remote):
    model, x = OfIntegers(), integers(3, 2, 6, 6, most=2)
    net = make_remote(model)
    for _ in range(2):
        for one in (model, net):
            one(x).sum().backward()
            (one(x) * 2).sum().backward()
        assert_gradients(net, model)
        net.zero_grad()
        model.zero_grad(set_to_none=True)
        assert net.gradients() == {}
    net.zero_grad()


def test_retain_graph_and_what_comes_without(make_remote):
    model, x = OfIntegers(), integers(3, 2, 6, 6, most=2)
    net = make_remote(model)
    for one in (model, net):
        loss = one(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()
    assert_gradients(net, model)


@pytest.mark.parametrize("watch", [torch.Tensor.retain_grad,
                                   lambda y: y.register_hook(lambda gradient: gradient)])
def test_an_output_of_which_another_one_is_computed(make_remote, watch):
    """Its gradient would lack what the other output's adds to it in PyTorch."""
    def forward(self, x):
        y = self.conv(x)
        return y, y.relu().mean((2, 3))

    model = Module(forward, conv=nn.Conv2d(2, 3, 1))
    net, x = make_remote(model), integers(3, 2, 6, 6, most=2)
    features, means = net(x)
    watch(means)
    (features.sum() + means.sum()).backward()
    features, _ = net(x)
    watch(features)
    features.sum().backward()
    features, means = net(x)
    watch(features)
    with pytest.raises(convgrad.Unimplemented, match="outputs.conv: found a hook"):
        (features.sum() + means.sum()).backward()


def test_gradients_of_inputs_alone(make_remote):
    model, x = OfIntegers(), integers(3, 2, 6, 6, most=2).requires_grad_()
    net = make_remote(model)
    for one in (model, net):
        torch.autograd.grad(one(x).sum(), x)
        one(x).sum().backward(inputs=[x])
        between = x * 2
        torch.autograd.grad(one(between).sum(), between)
    assert net.gradients() == {}
    torch.testing.assert_close(x.grad / 2, torch.autograd.grad(model(x).sum(), x)[0])
    net.requires_grad_(False)
    (found,) = torch.autograd.grad(net(x).sum(), x)
    torch.testing.assert_close(found, x.grad / 2, rtol=0, atol=0)


def test_gradients_of_other_layouts(make_remote):
    model, x = nn.Conv2d(2, 3, 1), integers(2, 2, 4, 4)
    model.weight.data, model.bias.data = integers(3, 2, 1, 1), integers(3)
    net = make_remote(model)
    given = integers(2, 3, 4, 4).to(memory_format=torch.channels_last)
    for one in (model, net):
        one(x).backward(given)
        one(x).backward(given[:1].expand(2, -1, -1, -1).double().float())
    assert_gradients(net, model)


def test_a_layer_before_and_a_loss_behind_are_torchs(make_remote):
    model = OfIntegers()
    net = make_remote(model)
    before = nn.Conv2d(1, 2, 1)
    before.weight.data.fill_(1)
    before.bias.data.fill_(1)
    x = integers(3, 1, 6, 6, most=1)
    gradients = []
    for one in (model, net):
        before.zero_grad()
        one(before(x)).pow(2).sum().backward()
        gradients.append(before.weight.grad.clone())
    torch.testing.assert_close(*gradients, rtol=0, atol=0)
    assert_gradients(net, model)


def test_some_parameters_without_gradient(make_remote):
    model, x = OfIntegers(), integers(3, 2, 6, 6, most=2)
    net = make_remote(model)
    for parameter in net.parameters():
        if parameter.name.startswith("one"):
            parameter.requires_grad = False
    net.model.fc.bias.requires_grad_(False)
    model.one.requires_grad_(False)
    model.fc.bias.requires_grad_(False)
    for one in (model, net):
        one(x).sum().backward()
    assert_gradients(net, model)
    net.requires_grad_(False)
    assert not net(x).requires_grad


def test_tied_weights_and_reused_modules(make_remote):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.two(F.relu(self.one(self.one(x))))

    model = Tied()
    for parameter in model.parameters():
        parameter.data = integers(*parameter.shape)
    net, x = make_remote(model), integers(3, 4)
    for one in (model, net):
        one(x).sum().backward()
    assert_gradients(net, model)
    assert [name for name, _ in net.named_parameters()] == ["one.weight", "one.bias"]
    state = net.state_dict()
    assert list(state) == ["one.weight", "one.bias", "two.weight"]
    torch.testing.assert_close(state["two.weight"], model.one.weight.detach())


def test_several_outputs_of_which_one_is_used(make_remote):
    def forward(self, x):
        y = self.one(x)
        return {"first": y, "rest": [self.two(y), torch.relu(y)]}

    model = Module(forward, one=nn.Linear(3, 4), two=nn.Linear(4, 2))
    for parameter in model.parameters():
        parameter.data = integers(*parameter.shape)
    net, x = make_remote(model), integers(5, 3)
    found, expected = net(x), model(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert type(found) is dict and type(found["rest"]) is list
    for y in (found, expected):
        y["rest"][1].sum().backward()
    gradients = net.gradients()
    torch.testing.assert_close(gradients["one.weight"], model.one.weight.grad)
    assert not gradients.get("two.weight", torch.zeros(1)).any()


def kept_bytes(client):
    return sessions_of(client)[0].kept_bytes


def test_tapes_go_with_torchs_graph():
    server = ServerProcess()
    with convgrad.Client(server.address) as client, remote(make("Vgg"), client) as net:
        x = images().requires_grad_()
        with torch.no_grad():  # loads both programs, which count as kept bytes
            net(x)
            net.requires_grad_(False)
            net(x)
            net.requires_grad_(True)
        base = kept_bytes(client)
        y = net(x)
        net.wait()
        assert kept_bytes(client) > base
        del y  # without a backward
        wait_until(lambda: kept_bytes(client) == base)
        y = net(x)
        torch.autograd.grad(y.sum(), x, retain_graph=True)
        assert kept_bytes(client) > base
        torch.autograd.grad(y.sum(), x)
        wait_until(lambda: kept_bytes(client) == base)
        with torch.no_grad():
            net(x)
        net.requires_grad_(False)
        net(x.detach())
        assert kept_bytes(client) == base
    server.kill()


def test_a_backward_after_parameters_have_changed(make_remote):
    net = make_remote(OfIntegers())
    x = integers(3, 2, 6, 6).requires_grad_()
    loss = net(x).sum()
    loss.backward(retain_graph=True)
    convgrad.torch.optim.SGD(net.parameters(), lr=1.0).step()
    with pytest.raises(convgrad.FailedPrecondition, match="before the parameters change"):
        loss.backward()


def test_what_failed_unseen_is_raised_later(make_remote):
    net = make_remote(OfIntegers())
    x = integers(3, 2, 6, 6)
    loss = net(x).sum()
    net.session.drop("one.weight")
    loss.backward()  # doesn't wait
    with pytest.raises(convgrad.NotFound, match="one.weight"):
        net(x)
    net.load_state_dict(OfIntegers().state_dict())
    net.zero_grad()
    net(x).sum().backward()
    assert net.gradients()


@pytest.mark.parametrize("change, has_gradients", [
    (lambda net, loss: loss.backward(), False), (lambda net, _: net.zero_grad(), True),
    (lambda net, _: net.train_step(torch.ones(1, 2), torch.ones(1, 2), loss="mse",
                                   optimizer=net.optimizer), True),
    (lambda net, _: setattr(next(net.parameters()), "grad", torch.ones(2, 2)), False)],
    ids=["backward", "zero_grad", "train_step", "grad"])
def test_gradients_after_an_interrupt(make_remote, change, has_gradients):
    """Until the network is asked again, it doesn't know how far the interrupted call came."""
    net = make_remote(nn.Linear(2, 2))
    net.optimizer = convgrad.torch.optim.SGD(net.parameters(), lr=1e-3)
    change(net, net(torch.ones(1, 2)).sum())  # exports, which an interrupt may make abort
    net.zero_grad()
    for at in itertools.count():
        loss = net(torch.ones(1, 2)).sum()
        if has_gradients:
            loss.backward()
        with interrupted(at) as functions:
            change(net, loss)
        with contextlib.suppress(convgrad.EpochEnded):  # of what came behind the change
            net.wait()
        kept = net.session.tensors()
        assert net.kept_gradients.names() == {
            p.name for p in net.parameters() if gradient_name(p.name) in kept}, at
        net.zero_grad()
        assert net.gradients() == {}
        if functions() <= at:
            break
    assert at > 10


def test_what_is_refused(make_remote):
    net = make_remote(OfIntegers())
    x = integers(3, 2, 6, 6).requires_grad_()
    with pytest.raises(convgrad.Unimplemented, match="create_graph"):
        torch.autograd.grad(net(x).sum(), x, create_graph=True)
    handle = next(net.parameters())
    assert handle.shape == (3, 2, 3, 3) and handle.numel() == 54
    assert repr(handle) == "RemoteParameter('one.weight', [3, 2, 3, 3], requires_grad=True)"
    with pytest.raises(AttributeError, match=r"convgrad\.torch\.optim"):
        _ = handle.data
    with pytest.raises(TypeError, match=r"'one\.weight'.*use convgrad\.torch\.optim"):
        torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(TypeError, match="missing"):
        net()
    with pytest.raises(convgrad.Unimplemented, match="list"):
        net([x])
    with pytest.raises(convgrad.InvalidArgument, match="dtype: found torch.float16"):
        make_remote(OfIntegers(), dtype=torch.float16)


def test_data_parallel_is_refused(make_remote, tmp_path):
    net = make_remote(OfIntegers())
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with pytest.raises(convgrad.Unimplemented, match="DistributedDataParallel: found"):
            nn.parallel.DistributedDataParallel(net)
    finally:
        torch.distributed.destroy_process_group()


def test_what_would_follow_a_call(make_remote):
    """It would take the results of a call for constants, or lose a tangent."""
    net, x = make_remote(OfIntegers().eval()), integers(3, 2, 6, 6)
    parts = nn.Sequential(net)
    with torch.no_grad():
        net(x)
        for name, call in (
                ("torch.jit.script", lambda: torch.jit.script(net)),
                ("torch.jit.trace", lambda: torch.jit.trace(net, x)),
                ("torch.jit.trace", lambda: torch.jit.trace(parts, x)),
                ("torch.jit.trace", lambda: torch.jit.trace(lambda y: net(y), x)),
                ("make_fx", lambda: make_fx(lambda y: net(y))(x)),
                ("torch.func", lambda: torch.func.vmap(net)(x[None])),
                ("torch.func", lambda: torch.func.jvp(net, (x,), (x,)))):
            with pytest.raises(convgrad.Unimplemented, match=f" {name}: found a remote"):
                call()
        with forward_ad.dual_level():
            net(x)  # has no tangent
            with pytest.raises(convgrad.Unimplemented, match="forward_ad: found a remote"):
                net(forward_ad.make_dual(x, x))
    assert not hasattr(net, "_ddp_params_and_buffers_to_ignore")
