"""offload(keep=True): the same values, less sent, nothing left behind."""

import concurrent.futures
import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from cutting_proxy import CuttingProxy
from server_process import ServerProcess
from test_sessions import sessions_of, wait_until
from torch import nn
from torch.utils.checkpoint import checkpoint

import convgrad
from convgrad.torch import offload


@pytest.fixture
def counting():
    server = ServerProcess("--metrics_listen=127.0.0.1:0")
    yield server
    server.kill()


@pytest.fixture
def remote(counting):
    """A client of a server that nobody else uses."""
    with convgrad.Client(counting.address, timeout=60) as client:
        yield client


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


class Block(nn.Module):
    """A ResNet's: one input goes into two convolutions."""

    def __init__(self, channels, out, stride):
        super().__init__()
        self.one = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(out) for _ in range(2))
        self.down = (nn.Conv2d(channels, out, 1, stride, bias=False)
                     if stride > 1 or channels != out else None)

    def forward(self, x):
        y = F.relu(self.norms[0](self.one(x)))
        y = self.norms[1](self.two(y))
        return F.relu(y + (self.down(x) if self.down else x))


def resnet18():
    blocks = [Block(c, o, s) for o, c0, s0 in ((64, 64, 1), (128, 64, 2), (256, 128, 2),
                                               (512, 256, 2))
              for c, s in ((c0, s0), (o, 1))]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(512, 10))


def small():
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), Block(4, 8, 2),
                         nn.Flatten(), nn.Linear(8 * 16, 3))


def train(model, batches, optimizer=None):
    """Returns losses, and the gradients and weights of the last step."""
    losses = []
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for x, wanted in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.grad for p in model.parameters()], list(model.parameters())


def batches(count, shape=(2, 2, 8, 8), classes=3):
    return [(torch.randn(shape), torch.randint(classes, shape[:1])) for _ in range(count)]


def assert_same(found, expected):
    """To the bit."""
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def pair(client, model=None, **options):
    """Returns two copies of a model, the second of which keeps."""
    plain = model or small()
    keeping = copy.deepcopy(plain)
    offload(plain, client, **options)
    offload(keeping, client, keep=True, **options)
    return plain, keeping


def kept_tensors(client):
    return sum(session.tensors for session in sessions_of(client))


@pytest.mark.parametrize("options", [{}, {"linear": True}, {"forward": "local"}])
def test_training_gives_the_same_bits(client, options):
    plain, keeping = pair(client, **options)
    steps = batches(4)
    assert_same(train(keeping, steps), train(plain, steps))


def test_training_agrees_with_torch(client):
    local = small()
    keeping = copy.deepcopy(local)
    offload(keeping, client, keep=True)
    steps = batches(3)
    # The losses are f32 numbers, as Python's floats: assert_close would take them for
    # float64, whose tolerance is below a unit in f32's last place.
    torch.testing.assert_close(train(keeping, steps)[:2], train(local, steps)[:2],
                               rtol=1.3e-6, atol=1e-5)


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_channels_last_and_autocast(client, form):
    plain, keeping = pair(client, small().to(memory_format=form))
    steps = [(x.to(memory_format=form), wanted) for x, wanted in batches(2)]
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(train(keeping, steps), train(plain, steps))


def upload(server, model, steps):
    before = server.received_bytes()
    train(model, steps)
    return server.received_bytes() - before


def convolutions(model, shape):
    """Returns bytes of input, weight and output of each convolution, and the inputs' ids."""
    seen = []
    handles = [module.register_forward_hook(lambda module, args, out: seen.append(
        (args[0], 4 * args[0].numel(), 4 * module.weight.numel(), 4 * out.numel())))
        for module in model.modules() if isinstance(module, nn.Conv2d)]
    model(torch.zeros(shape))
    for handle in handles:
        handle.remove()
    return seen


def test_a_step_of_resnet18_sends_inputs_and_weights_once(counting, remote):
    shape = (2, 3, 64, 64)
    plain = resnet18()
    sizes = convolutions(plain, shape)
    keeping = copy.deepcopy(plain)
    offload(plain, remote)
    offload(keeping, remote, keep=True)
    steps = batches(2, shape, 10)
    found, without = upload(counting, keeping, steps), upload(counting, plain, steps)
    once = sum(x + w + y for _, x, w, y in sizes)
    # The first input needs no gradient, so that its backward needs no weight.
    assert without == 2 * (once + sum(x + w for _, x, w, _ in sizes) - sizes[0][2])
    distinct = {id(x): size for x, size, _, _ in sizes}
    assert found == 2 * (once - sum(x for _, x, _, _ in sizes) + sum(distinct.values()))
    wait_until(lambda: kept_tensors(remote) == len(sizes))  # the weights


def test_nothing_stays_without_its_graph(remote):
    model, x = small(), torch.randn(2, 2, 8, 8)
    offload(model, remote, keep=True)
    with torch.no_grad():
        model(x)
    assert kept_tensors(remote) == 4  # the weights
    loss = model(x).sum()
    assert kept_tensors(remote) == 4 + 3  # two layers share an input
    loss.backward(retain_graph=True)
    first = [p.grad.clone() for p in model.parameters()]
    loss.backward()
    assert_same([p.grad for p in model.parameters()], [2 * g for g in first])
    wait_until(lambda: kept_tensors(remote) == 4)
    loss = model(x).sum()
    with pytest.raises(ZeroDivisionError):
        loss.register_hook(lambda _: 1 / 0)
        loss.backward()
    del loss
    wait_until(lambda: kept_tensors(remote) == 4)
    del model
    wait_until(lambda: not sessions_of(remote))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing(client, use_reentrant):
    class Checkpointed(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            x = x.clone().requires_grad_()
            x = checkpoint(self.inner[:2], x, use_reentrant=use_reentrant)
            x = checkpoint(self.inner[2], x, use_reentrant=use_reentrant)
            return self.inner[3:](x)

    plain, keeping = pair(client, Checkpointed(small()))
    steps = batches(3)
    assert_same(train(keeping, steps), train(plain, steps))


def test_a_layer_used_twice(client):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(2, 2, 3, padding=1)

        def forward(self, x):
            return self.layer(self.layer(x).relu()).flatten(1)[:, :3]

    plain, keeping = pair(client, Twice())
    steps = batches(3)
    assert_same(train(keeping, steps), train(plain, steps))


def test_weights_and_inputs_that_change_unseen(client):
    plain, keeping = pair(client)
    buffer = torch.randn(2, 2, 8, 8)
    memory = buffer.numpy()
    graphs = []
    for model in (plain, keeping):
        graphs.append(model(buffer))
        with torch.no_grad():
            for p in model.parameters():
                p.data.mul_(1.5)  # torch doesn't count it
    memory *= 2  # nor this
    assert_same(keeping(buffer), plain(buffer))
    plain[0].weight.data = plain[0].weight.data.clone() + 1
    keeping[0].weight.data = keeping[0].weight.data.clone() + 1
    assert_same(keeping(buffer), plain(buffer))
    with torch.inference_mode():
        assert_same(keeping(buffer * 1), plain(buffer * 1))


def test_an_activation_that_is_changed_in_place(client):
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(2, 2, 3)

        def forward(self, x):
            x = x * self.layer.bias.exp().reshape(-1, 1, 1)
            return self.layer(x), self.layer(x.mul_(2))

    plain, keeping = pair(client, InPlace())
    x = torch.randn(2, 2, 5, 5)
    assert_same(keeping(x), plain(x))


def test_threads(client):
    plain, keeping = pair(client)
    plain.eval(), keeping.eval()
    inputs = [torch.randn(2, 2, 8, 8) for _ in range(16)]

    def gradients(model, x):
        return torch.autograd.grad(model(x).square().sum(), list(model.parameters()))

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda x: gradients(keeping, x), inputs))
    for one, x in zip(found, inputs):
        assert_same(one, gradients(plain, x))


def test_what_is_kept_is_bounded(remote):
    plain = small()
    keeping = copy.deepcopy(plain)
    offload(plain, remote)
    offload(keeping, remote, keep=8000)
    steps = batches(6)
    assert_same(train(keeping, steps), train(plain, steps))
    session, = sessions_of(remote)
    assert session.quota_bytes == 8000 and 0 < session.kept_bytes <= 8000
    assert session.epoch == 1  # no put was refused
    for wrong in (0, -1):
        with pytest.raises(convgrad.InvalidArgument, match="keep: found"):
            offload(keeping, remote, keep=wrong)


def test_a_server_that_has_lost_the_session():
    server = ServerProcess()
    with convgrad.Client(server.address) as client:
        plain, keeping = pair(client)
        steps = batches(4)
        assert_same(train(keeping, steps[:2]), train(plain, steps[:2]))
        losses = [model(steps[2][0]).sum() for model in (plain, keeping)]
        server.kill()
        server.restart()
        for model, loss in zip((plain, keeping), losses):
            model.zero_grad()
            loss.backward()
        assert_same([p.grad for p in keeping.parameters()],
                    [p.grad for p in plain.parameters()])
        assert_same(train(keeping, steps[3:]), train(plain, steps[3:]))
    server.kill()


def test_connections_that_are_cut_change_no_bit(server, client):
    proxy = CuttingProxy(server.address, cuts=20, mean_bytes=60_000)
    retry = convgrad.RetryPolicy(max_attempts=10_000, max_seconds=0.05)
    with convgrad.Client(proxy.address, retry=retry) as cut:
        plain = small()
        keeping = copy.deepcopy(plain)
        offload(plain, client)
        offload(keeping, cut, keep=True)
        steps = batches(60)
        assert_same(train(keeping, steps), train(plain, steps))
    assert proxy.cuts > 5
    proxy.close()


def test_copies(client):
    plain, keeping = pair(client)
    x = torch.randn(2, 2, 8, 8)
    for model in (copy.deepcopy(keeping), pickle.loads(pickle.dumps(keeping))):
        assert_same(model(x), plain(x))
