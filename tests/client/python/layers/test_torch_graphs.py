"""Tests tools that trace a model: torch.compile, torch.export, torch.func and tensors without
data."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import convgrad
import convgrad.torch
from convgrad.torch.layers.layer import make_layer

if not hasattr(torch.library, "custom_op"):
    pytest.skip("needs PyTorch 2.4's custom operators", allow_module_level=True)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def small_model():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding="same", groups=2, padding_mode="reflect"), nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Flatten(), nn.Linear(256, 5))


@pytest.fixture
def models(client):
    """Returns one model twice: offloaded, and torch's own."""
    local = small_model()
    remote = copy.deepcopy(local)
    assert len(convgrad.torch.offload(remote, client, linear=True).taken) == 4
    return remote, local


X = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1))


class Block(nn.Module):
    """A block of a ResNet."""

    def __init__(self, before, channels, stride):
        super().__init__()
        self.first = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)])
        self.shortcut = nn.Sequential() if before == channels else nn.Sequential(
            nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + self.shortcut(x))


def resnet18():
    blocks, before = [], 64
    for channels in (64, 128, 256, 512):
        for stride in (1 if channels == 64 else 2, 1):
            blocks.append(Block(before, channels, stride))
            before = channels
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(512, 10))


def losses(model, step_model, memory_format=torch.contiguous_format):
    """Returns the losses of some training steps of `model`, called as `step_model`."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    numbers = torch.Generator().manual_seed(4)
    found = []
    for _ in range(3):
        x = torch.randn(4, 3, 32, 32, generator=numbers).to(memory_format=memory_format)
        optimizer.zero_grad()
        loss = F.cross_entropy(step_model(x), torch.arange(4))
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_compiled_resnet18_has_the_losses_of_eager(client, memory_format):
    eager = resnet18().to(memory_format=memory_format)
    assert len(convgrad.torch.offload(eager, client).taken) == 20
    compiled = copy.deepcopy(eager)
    step = torch.compile(compiled, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(losses(compiled, step, memory_format),
                               losses(eager, eager, memory_format), rtol=1e-4, atol=0)


def test_compiled_to_machine_code(models):
    remote, local = models
    step = torch.compile(remote, fullgraph=True)
    for run in (step, local):
        run(X.to(memory_format=torch.channels_last)).square().sum().backward()
    for found, wanted in zip(remote.parameters(), local.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-4, atol=1e-4)


def test_compiled_under_autocast(models):
    remote, _ = models
    step = torch.compile(remote, fullgraph=True, backend="aot_eager")
    gradients = []
    for run in (step, remote):
        remote.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = run(X)
        assert y.dtype == torch.bfloat16
        y.float().square().sum().backward()
        gradients.append([p.grad for p in remote.parameters()])
    assert {gradient.dtype for gradient in gradients[0]} == {torch.float32}
    torch.testing.assert_close(*gradients, rtol=0.05, atol=0.05)


def test_compiled_models_take_another_client_and_another_batch(models, server):
    remote, local = models
    step = torch.compile(remote, fullgraph=True, backend="aot_eager")
    step(X)
    with convgrad.Client(server.address) as other:
        convgrad.torch.offload(remote, other, linear=True)
        torch.testing.assert_close(step(X), local(X))
        torch.testing.assert_close(step(X.repeat(3, 1, 1, 1)), local(X.repeat(3, 1, 1, 1)))
    with pytest.raises(convgrad.Cancelled):
        step(X)


def test_compiled_functions(client):
    x, w = torch.randn(1, 2, 5, 5), torch.randn(2, 2, 3, 3)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def function(x, w):
        return convgrad.torch.conv2d(x, w, padding="same", client=client)

    torch.testing.assert_close(function(x, w), F.conv2d(x, w, padding="same"))


def test_export(models):
    remote, local = models
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(remote, (X,), dynamic_shapes=({0: batch},))
    for x in (X, X.repeat(3, 1, 1, 1)):
        torch.testing.assert_close(program.module()(x), local(x))


def test_tensors_without_data(client):
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        layer = convgrad.torch.Conv3d(2, 4, 3, stride=2, padding=1, client=client)
        x = torch.empty(2, 2, 5, 7, 9).to(memory_format=torch.channels_last_3d)
        y = layer(x)
        assert y.shape == (2, 4, 3, 4, 5)
        assert y.is_contiguous(memory_format=torch.channels_last_3d)
    layer = convgrad.torch.ConvTranspose1d(2, 4, 3, stride=2, client=client, device="meta")
    y = layer(torch.empty(1, 2, 4, device="meta"))
    assert y.shape == (1, 4, 9) and y.device.type == "meta"


CASES = [
    (1, (2, 4, 7), (4, 2, 3), dict(groups=2, stride=2, padding=1)),
    (2, (2, 3, 5, 4), (4, 3, 2, 3), dict(dilation=(2, 1), padding=(0, 1))),
    (3, (1, 2, 3, 4, 3), (2, 2, 2, 2, 2), dict(stride=(1, 2, 1))),
    (2, (2, 4, 3, 3), (4, 2, 3, 3), dict(transposed=True, groups=2, stride=2, padding=1,
                                         output_padding=1)),
    (0, (3, 4), (2, 4), {}),
]


@pytest.mark.parametrize("rank, x, w, window", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_operators_are_as_pytorch_wants_them(client, rank, x, w, window, dtype):
    layer = make_layer(client, "remote", rank, **window)
    operators = torch.ops.convgrad
    x, w = (torch.randint(-3, 4, shape).float().requires_grad_() for shape in (x, w))
    b = torch.zeros(layer.out_channels(w.shape), requires_grad=True)
    for form in (torch.contiguous_format, torch.channels_last)[:1 + (rank == 2)]:
        operands = (x.detach().to(memory_format=form).requires_grad_(), w)
        torch.library.opcheck(operators.convolution.default, (*operands, b, dtype, *layer))
        dy = torch.ones(layer.output_shape(x.shape, w.shape), dtype=dtype, requires_grad=True)
        for wanted in ((True, True, True), (False, True, False), (True, False, False)):
            torch.library.opcheck(operators.convolution_backward.default,
                                  (dy, *operands, dtype, *wanted, *layer))


def sums(conv, window):
    return lambda x, w, b: conv(x, w, b, **window).pow(3).sum()


FUNCTIONS = [
    ("conv2d", (2, 3, 4, 4), (4, 3, 3, 3), dict(padding=1, stride=2)),
    ("conv1d", (1, 4, 5), (2, 2, 3), dict(groups=2)),
    ("conv_transpose2d", (1, 2, 3, 3), (2, 4, 2, 2), dict(stride=2)),
    ("linear", (2, 3), (4, 3), {}),
]


def operands_of(name, x, w, window, copies=None):
    """Returns operands of small integers, on which float32 is exact."""
    channels = w[1] * window.get("groups", 1) if "transpose" in name else w[0]
    more = () if copies is None else (copies,)
    return tuple(torch.randint(-2, 3, (*more, *shape)).float() for shape in (x, w, (channels,)))


@pytest.mark.parametrize("name, x, w, window", FUNCTIONS)
@pytest.mark.parametrize("mapped", [
    (0, None, None), (None, 0, None), (0, 0, 0), (None, None, 0), (1, 2, 0)])
def test_vmap(client, name, x, w, window, mapped):
    """Tests outputs and gradients, mapped over any of the operands."""
    operands = [tensor if dim is not None else tensor[0]
                for tensor, dim in zip(operands_of(name, x, w, window, 3), mapped)]
    operands = [t.movedim(0, dim) if dim else t for t, dim in zip(operands, mapped)]
    found = []
    for conv in (lambda *a, **k: getattr(convgrad.torch, name)(*a, client=client, **k),
                 getattr(F, name)):
        for function in (lambda *a, c=conv: c(*a, **window),
                         torch.func.grad(sums(conv, window), argnums=(0, 1, 2))):
            found.append(torch.func.vmap(function, in_dims=mapped)(*operands))
    torch.testing.assert_close(found[:2], found[2:], rtol=0, atol=0)


@pytest.mark.parametrize("name, x, w, window", FUNCTIONS)
def test_func_transforms(client, name, x, w, window):
    operands = operands_of(name, x, w, window)
    found = []
    for conv in (lambda *a, **k: getattr(convgrad.torch, name)(*a, client=client, **k),
                 getattr(F, name)):
        function = sums(conv, window)
        found.append((
            torch.func.grad(function, argnums=(0, 1, 2))(*operands),
            torch.func.jvp(function, operands, operands)[1],
            torch.func.jacrev(function, argnums=1)(*operands),
            torch.func.hessian(function, argnums=(0, 1, 2))(*operands)))
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_gradients_of_single_samples(models):
    found = []
    for model in models:
        def loss(parameters, x, model=model):
            return torch.func.functional_call(model, parameters, (x[None],)).square().sum()

        found.append(torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(
            dict(model.named_parameters()), X))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
