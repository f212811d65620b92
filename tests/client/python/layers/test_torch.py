"""Compares convgrad.torch with torch's own autograd, bit for bit on small integers, for which
float32 and float64 are exact."""

import copy
import gc
import itertools

import pytest
import torch
import torch.fx
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import convgrad
import convgrad.torch
from convgrad.torch.layers.functional import apply
from convgrad.torch.layers.layer import make_layer

RANKS = (1, 2, 3)
SIZES = (7, 6, 5)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def integers(*shape, dtype=torch.float32):
    return torch.randint(-3, 4, shape).to(dtype)


def fill(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(integers(*parameter.shape))
    return module


def run(module, x, *args):
    """Returns output and gradients of input and parameters, in float64."""
    x = x.clone().requires_grad_()
    module.zero_grad(set_to_none=True)
    y = module(x, *args)
    torch.manual_seed(5)
    y.backward(integers(*y.shape, dtype=y.dtype))
    gradients = [x.grad, *(p.grad for p in module.parameters())]
    return [t.detach().to(torch.float64) for t in (y, *gradients)]


def assert_as_torch(module, client, x, *args):
    expected = run(copy.deepcopy(module).double(), x.double(), *args)
    for forward in ("remote", "local"):
        remote = copy.deepcopy(module)
        assert convgrad.torch.offload(remote, client, forward=forward).taken == ("",)
        for found, wanted in zip(run(remote, x, *args), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("rank, groups, mode", itertools.product(
    RANKS, (1, 2, 4), ("zeros", "reflect", "replicate", "circular")))
def test_convolutions(client, rank, groups, mode):
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    module = fill(kind(4, 8, (3, 2, 3)[:rank], stride=(2, 1, 1)[:rank],
                       padding=(1, 0, 1)[:rank], groups=groups, padding_mode=mode,
                       bias=groups != 2))
    assert_as_torch(module, client, integers(2, 4, *SIZES[:rank]))


@pytest.mark.parametrize("rank, padding", itertools.product(RANKS, ("same", "valid")))
def test_named_padding(client, rank, padding):
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    module = fill(kind(3, 5, (2, 3, 4)[:rank], padding=padding, dilation=(2, 1, 1)[:rank]))
    assert_as_torch(module, client, integers(2, 3, *SIZES[:rank]))


@pytest.mark.parametrize("rank, groups, extra", itertools.product(RANKS, (1, 2), (0, 1)))
def test_transposed_convolutions(client, rank, groups, extra):
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 1]
    module = fill(kind(4, 6, 3, stride=2, padding=1, output_padding=extra, groups=groups,
                       dilation=(1, 2, 1)[:rank]))
    assert_as_torch(module, client, integers(2, 4, *(4, 3, 3)[:rank]))


def test_transposed_with_an_output_size(client):
    module = fill(nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1))
    assert_as_torch(module, client, integers(2, 4, 5, 4), [10, 7])
    assert_as_torch(module, client, integers(4, 5, 4), [6, 10, 7])


@pytest.mark.parametrize("size", [[10], [1, 2, 6, 10, 7], [6, 10, 7], [11, 7]])
def test_an_output_size_is_refused_as_by_torch(client, size):
    module = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1)
    x = integers(2, 4, 5, 4)
    with pytest.raises(ValueError, match=r"output.size"):
        module(x, size)
    convgrad.torch.offload(module, client)
    with pytest.raises(ValueError, match=r"output.size"):
        module(x, size)


@pytest.mark.parametrize("shape", [(5, 7), (7,), (2, 3, 7)])
def test_linear(client, shape):
    module = fill(nn.Linear(7, 3))
    remote = copy.deepcopy(module)
    assert convgrad.torch.offload(remote, client).taken == ()
    assert convgrad.torch.offload(remote, client, linear=True).taken == ("",)
    x = integers(*shape)
    for found, wanted in zip(run(remote, x), run(module, x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("make", [
    lambda x: x.to(memory_format=torch.channels_last), lambda x: x[::2, :, 1:, ::2],
    lambda x: x.transpose(2, 3), lambda x: x[:0], lambda x: x[0],
    lambda x: x[:, :1].expand(-1, 4, -1, -1)])
def test_strides_empty_batches_and_no_batch(client, make):
    x = make(integers(4, 4, 8, 8))
    assert_as_torch(fill(nn.Conv2d(4, 2, 3, padding=1)), client, x)


def test_channels_last_stays(client):
    module = convgrad.torch.Conv2d(4, 2, 3, client=client)
    x = integers(2, 4, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
    y = module(x)
    y.sum().backward()
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert x.grad.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", [lambda x: x.to(memory_format=torch.channels_last),
                                  lambda x: x, lambda x: x[0]])
def test_outputs_may_change_in_place(client, dtype, make):
    module = fill(nn.Sequential(nn.Conv2d(4, 2, 3), nn.ReLU(inplace=True))).to(dtype)
    x = make(integers(2, 4, 6, 6, dtype=dtype))
    expected = run(copy.deepcopy(module), x)
    convgrad.torch.offload(module, client)
    for found, wanted in zip(run(module, x), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits(client, dtype):
    module = fill(nn.Conv2d(2, 3, 2)).to(dtype)
    x = integers(2, 2, 4, 4, dtype=dtype)
    expected = run(copy.deepcopy(module).double(), x.double())
    convgrad.torch.offload(module, client)
    for found, wanted in zip(run(module, x), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert module.weight.grad.dtype == dtype


def test_autocast_keeps_float32_gradients(client):
    """bf16 has 8 bits, so 257 shows whether a gradient was rounded to bf16."""
    wide = nn.Conv1d(1, 257, 1)
    nn.init.ones_(wide.weight)
    convgrad.torch.offload(wide, client)
    x = torch.ones(1, 1, 1, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = wide(x)
    y.backward(torch.ones_like(y))
    assert x.grad.item() == 257
    model = nn.Sequential(nn.Conv1d(1, 1, 1), nn.Conv1d(1, 1, 1))
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    convgrad.torch.offload(model, client)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(torch.ones(1, 1, 257))
    assert y.dtype == torch.bfloat16
    y.backward(torch.ones_like(y))
    assert [p.grad.item() for p in model.parameters()] == [257, 257, 514, 257]
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}


def test_only_needed_gradients_are_asked_for(client):
    class Asked:
        def __getattr__(self, name):
            def call(*args, **kwargs):
                asked.append((name, kwargs.get("gradients")))
                return getattr(client, name)(*args, **kwargs)
            return call

    asked = []
    module = convgrad.torch.Conv2d(1, 1, 2, client=Asked())
    x = integers(1, 1, 4, 4)
    with torch.no_grad():
        module(x)
    module.eval()
    module(x).sum().backward()
    module.weight.requires_grad_(False)
    module(x).sum().backward()
    module.bias.requires_grad_(False)
    assert not module(x).requires_grad
    module(x.requires_grad_()).sum().backward()
    assert [gradients for name, gradients in asked if name == "conv_backward"] == [
        ["grad_weight", "grad_bias"], ["grad_bias"], ["grad_input"]]


def test_functions(client):
    x, w, b = integers(2, 4, 6, 6), integers(4, 2, 3, 3), integers(4)
    found = convgrad.torch.conv2d(x, w, b, 2, 1, 1, 2, client=client)
    torch.testing.assert_close(found, F.conv2d(x, w, b, 2, 1, 1, 2), rtol=0, atol=0)
    found = convgrad.torch.conv_transpose2d(x, w, b, 2, 1, 1, 2, client=client)[:, :4]
    torch.testing.assert_close(found, F.conv_transpose2d(x, w, b, 2, 1, 1, 2), rtol=0, atol=0)
    x, w = integers(3, 4), integers(2, 4)
    torch.testing.assert_close(convgrad.torch.linear(x, w, client=client), F.linear(x, w),
                               rtol=0, atol=0)


@pytest.mark.parametrize("make, message", [
    (lambda m, x: m(x.double()), "input.dtype: found float64, expected float32, bfloat16"),
    (lambda m, x: m.double()(x), "weight.dtype: found float64"),
    (lambda m, x: m(x.bfloat16()), "weight.dtype: found f32, expected bf16, the dtype of"),
    (lambda m, x: m(x[:, :1]), "operation.operands.weight.dims: found [3,2,2,2], expected"),
    (lambda m, x: m(x[0, 0]), "input_dims: found 2 entries, expected 4, or 3 without"),
    (lambda m, x: convgrad.torch.Conv2d(2, 3, 2)(x), "client: found nothing"),
    (lambda m, x: convgrad.torch.offload(m, None, forward="there"), "forward: found there"),
    (lambda m, x: convgrad.torch.conv2d(x, m.weight, stride=2, padding="same", client=None),
     "stride: found 2, expected 1 where padding is 'same'"),
])
def test_refusals(client, make, message):
    module = convgrad.torch.Conv2d(2, 3, 2, client=client)
    with pytest.raises(convgrad.InvalidArgument) as caught:
        make(module, integers(1, 2, 4, 4))
    assert message in caught.value.message


def checkpointed(use_reentrant):
    return lambda model, x: checkpoint(model, x, use_reentrant=use_reentrant).sum().backward()


def nested(model, x):
    """Runs a backward within a backward, as checkpoints do, with grad mode on."""
    with torch.enable_grad():
        checkpoint(lambda v: checkpoint(model, v, use_reentrant=True), x,
                   use_reentrant=True).sum().backward()


def hooked(model, x):
    """Gets gradients from their accumulators, as DistributedDataParallel does."""
    heard = []
    accumulators = [p.expand_as(p).grad_fn.next_functions[0][0] for p in model.parameters()]
    for accumulator in accumulators:
        accumulator.register_hook(lambda *_: heard.append(torch.is_grad_enabled()))
    model(x).sum().backward()
    assert heard == [False] * len(accumulators)


def retained(model, x):
    loss = model(x).sum()
    loss.backward(retain_graph=True)
    loss.backward()


def derived(model, x):
    parameters = [x, *model.parameters()]
    for tensor, grad in zip(parameters, torch.autograd.grad(model(x).sum(), parameters),
                            strict=True):
        tensor.grad = grad


@pytest.mark.parametrize("step", [
    checkpointed(True), checkpointed(False), nested, hooked, retained, derived,
    lambda model, x: model(model(x)).sum().backward()])
@pytest.mark.parametrize("forward", ["remote", "local"])
def test_first_derivatives_however_they_are_asked_for(client, step, forward):
    model = nn.Sequential(fill(nn.Conv2d(2, 2, 3, padding=1)),
                          fill(nn.ConvTranspose2d(2, 2, 3, padding=1)))
    twin = copy.deepcopy(model)
    convgrad.torch.offload(model, client, forward=forward)
    found, expected = [], []
    for module, out in ((model, found), (twin, expected)):
        torch.manual_seed(5)
        x = integers(1, 2, 4, 4).requires_grad_()
        step(module, x)
        out += [x.grad, *(p.grad for p in module.parameters())]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_constructors_and_state_are_torchs(client, tmp_path):
    torch.manual_seed(0)
    theirs = nn.Conv2d(2, 4, (3, 2), 2, padding="valid", groups=2, bias=False)
    torch.manual_seed(0)
    ours = convgrad.torch.Conv2d(2, 4, (3, 2), 2, padding="valid", groups=2, bias=False,
                                 client=client)
    assert repr(ours) == repr(theirs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=0, atol=0)
    torch.save(ours.state_dict(), tmp_path / "state")
    theirs.load_state_dict(torch.load(tmp_path / "state"))


def test_fx(client):
    local = fill(nn.Sequential(nn.Conv2d(2, 2, 3, padding="same", padding_mode="circular"),
                               nn.ReLU(), nn.ConvTranspose2d(2, 3, 2), nn.Linear(5, 2)))
    remote = copy.deepcopy(local)
    convgrad.torch.offload(remote, client, linear=True)
    traced = torch.fx.symbolic_trace(remote)
    x = integers(1, 2, 4, 4)
    for found, wanted in zip(run(traced, x), run(local, x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    calls = [node for node in traced.graph.nodes
             if node.target is convgrad.torch.layers.functional.apply]
    assert len(calls) == 3

    def function(x, w):
        return convgrad.torch.conv2d(x, w, None, 2, client=client)

    traced, w = torch.fx.symbolic_trace(function), integers(2, 2, 3, 3)
    torch.testing.assert_close(traced(x, w), F.conv2d(x, w, None, 2), rtol=0, atol=0)


def test_a_layer_that_outlives_its_client_says_so(server):
    client = convgrad.Client(server.address)
    layer = make_layer(client, "remote", 2)
    del client
    gc.collect()
    with pytest.raises(convgrad.InvalidArgument) as caught:
        apply(layer, integers(1, 1, 3, 3), integers(1, 1, 2, 2), None)
    assert caught.value.message == (
        f"client: found the handle '{layer.client}' of one that is gone or another "
        "process's, expected a convgrad.Client")


def test_a_graph_keeps_its_client(server):
    def forward():
        client = convgrad.Client(server.address)
        return convgrad.torch.conv2d(x, integers(1, 1, 2, 2), client=client)

    x = integers(1, 1, 3, 3).requires_grad_()
    y = forward()
    gc.collect()
    y.sum().backward()
    assert x.grad is not None
