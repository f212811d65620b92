"""Networks on the server beside the same ones in torch: values, gradients, and how torch's
graph is kept to."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from server_process import ServerProcess
from small_networks import NETWORKS, SHAPE, make
from test_remote_import import Module
from test_sessions import sessions_of, wait_until
from torch import nn

import convgrad
from convgrad.torch import remote


def images(*shape, seed=1):
    return torch.randn(shape or SHAPE, generator=torch.Generator().manual_seed(seed))


def integers(*shape, seed=1, most=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-most, most + 1, shape, generator=generator).float()


def run_locally(model, x, dtype):
    """Returns outputs, input gradient and gradients of the parameters."""
    model = copy.deepcopy(model).to(dtype)
    x = x.to(dtype).requires_grad_()
    y = model(x)
    (y * weights_of(y)).sum().backward()
    return y.detach(), x.grad, {n: p.grad for n, p in model.named_parameters()}, model


def weights_of(y):
    """Returns what makes a loss of which no gradient is zero in theory."""
    return torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)


def assert_near(name, found, in_torch, exact):
    """Asserts an error within 4 times that of torch's float32, or of a few roundings."""
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
        # A bias before a batch_norm has a gradient that is zero but for rounding.
        if exact[2][name].abs().max() > 1e-9:
            assert_near(name, gradient, in_torch[2][name], exact[2][name])
    state = net.state_dict()
    for name, buffer in exact[3].named_buffers():
        assert_near(name, state[name], dict(in_torch[3].named_buffers())[name], buffer)
    assert_near("evaluation", net.eval()(x), in_torch[3].eval()(x),
                exact[3].eval()(x.double()))


class OfIntegers(nn.Module):
    """Convolution, linear, add, mul, concat, max_pool and relu of small integers."""

    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(2, 3, 3, padding=1)
        self.other = nn.Conv2d(2, 3, 1)
        self.fc = nn.Linear(6 * 9, 4)
        for parameter in self.parameters():
            parameter.data = integers(*parameter.shape, seed=parameter.numel())

    def forward(self, x):
        one, other = F.relu(self.one(x)), self.other(x)
        both = torch.cat([one + other, one * other], 1)
        return self.fc(F.max_pool2d(both, 2).flatten(1))


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
    for y in (found, expected):
        y["rest"][1].sum().backward()
    gradients = net.gradients()
    torch.testing.assert_close(gradients["one.weight"], model.one.weight.grad)
    assert not gradients.get("two.weight", torch.zeros(1)).any()


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


def kept_bytes(client):
    return sessions_of(client)[0].kept_bytes


def test_tapes_go_with_torchs_graph():
    server = ServerProcess()
    with convgrad.Client(server.address) as client, remote(make("Vgg"), client) as net:
        x = images().requires_grad_()
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
    loss.backward()  # isn't waited for
    with pytest.raises(convgrad.NotFound, match="one.weight"):
        net(x)
    net.load_state_dict(OfIntegers().state_dict())
    net.zero_grad()
    net(x).sum().backward()
    assert net.gradients()


def test_what_is_refused(make_remote):
    net = make_remote(OfIntegers())
    x = integers(3, 2, 6, 6).requires_grad_()
    with pytest.raises(convgrad.Unimplemented, match="create_graph"):
        torch.autograd.grad(net(x).sum(), x, create_graph=True)
    handle = next(net.parameters())
    assert handle.shape == (3, 2, 3, 3) and handle.numel() == 54
    assert repr(handle) == "RemoteParameter('one.weight', [3, 2, 3, 3], requires_grad=True)"
    with pytest.raises(convgrad.Unimplemented, match=r"one\.weight\.grad.*net\.gradients\(\)"):
        _ = handle.grad
    with pytest.raises(AttributeError, match=r"convgrad\.torch\.optim"):
        _ = handle.data
    with pytest.raises(TypeError, match=r"'one\.weight'.*use convgrad\.torch\.optim"):
        torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(convgrad.Unimplemented, match="clip_grad_norm"):
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    with pytest.raises(TypeError, match="Module"):
        nn.Sequential(net)
    with pytest.raises(TypeError, match="missing"):
        net()
    with pytest.raises(convgrad.Unimplemented, match="list"):
        net([x])
    with pytest.raises(convgrad.InvalidArgument, match="dtype: found torch.float16"):
        make_remote(OfIntegers(), dtype=torch.float16)


def test_gradscaler_and_data_parallel_are_refused(make_remote, tmp_path):
    net = make_remote(OfIntegers())
    if hasattr(torch.amp, "GradScaler"):  # on the CPU, from PyTorch 2.3 on
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(net(integers(3, 2, 6, 6)).sum()).backward()
        with pytest.raises(AssertionError, match="RemoteParameter"):
            scaler.step(convgrad.torch.optim.SGD(net.parameters(), lr=0.1))
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with pytest.raises((AttributeError, convgrad.Unimplemented), match="on the server"):
            nn.parallel.DistributedDataParallel(net)
    finally:
        torch.distributed.destroy_process_group()


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


def test_a_programs_calls_without_torch(client):
    program = convgrad.Program()
    x = program.input("x")
    w = program.parameter("w", (2, 3))
    y = program.step("linear", x, w, None, name="y")
    target = program.input("target", is_index=True)
    program.output(program.step("cross_entropy", y, target, name="loss",
                                attributes={"reduction": "sum"}), y)
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    with client.session() as session:
        session.put({"w": np.ones((2, 3), np.float32), "labels": np.array([0, 1, 1, 1])})
        session.load_program("net", program)
        session.load_program("net", program)
        found = session.run("net", {"x": rows, "target": "labels"})
        assert list(found.values) == ["loss", "y"] and found.report.backend
        np.testing.assert_array_equal(found.values["y"], rows.sum(1)[:, None].repeat(2, 1))
        np.testing.assert_allclose(found.values["loss"], 4 * np.log(2), rtol=1e-6)
        trained = session.run("net", {"x": rows, "target": "labels"}, fetched=["loss"],
                              backward=convgrad.Backward(input_gradients=["x"]))
        assert list(trained.values) == ["loss", "x#gradient"]
        gradient = session.get("w#gradient")
        expected = np.array([-0.5, 0.5])[:, None] * (rows[1:].sum(0) - rows[0])
        np.testing.assert_allclose(gradient, -expected, rtol=1e-6)
        session.run("net", {"x": rows, "target": "labels"}, tape="tape")
        session.backward("tape", {"y": np.ones((4, 2), np.float32)}, retain=True)
        back = session.backward("tape", {"y": np.ones((4, 2), np.float32)},
                                input_gradients=["x"], leave_parameters=True)
        np.testing.assert_array_equal(back.values["x#gradient"], np.full((4, 3), 2))
        np.testing.assert_allclose(session.get("w#gradient"), gradient + rows.sum(0))
        with pytest.raises(convgrad.NotFound, match="tape"):
            session.backward("tape", {"y": np.ones((4, 2), np.float32)})
        session.put("w#gradient", np.ones((2, 3), np.float32))
        session.update(convgrad.Update("sgd", [convgrad.ParameterGroup(["w"], 0.5)]))
        np.testing.assert_array_equal(session.get("w"), np.full((2, 3), 0.5))
        np.testing.assert_array_equal(session.get("labels"), [0, 1, 1, 1])
        assert session.tensors().keys() == {"w", "labels"}
        session.drop_programs("net", tapes=["tape"])
        with pytest.raises(convgrad.NotFound, match="net"):
            session.run("net", {"x": rows, "target": "labels"})
