"""Tests layers whose tensors are copied through shared memory."""

import copy

import pytest
from cutting_proxy import CuttingProxy
from server_process import ServerProcess
from shared_steps import wait_until

import convgrad

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

offload = pytest.importorskip("convgrad.torch").offload
staging = pytest.importorskip("convgrad.torch.layers.staging")
to_array = pytest.importorskip("convgrad.torch.tensors").to_array

# Each call of its layers has more than a MiB.
SHAPE = (8, 16, 64, 64)


@pytest.fixture
def sent(near, monkeypatch):
    """Lists the bytes and the method of each of the client's messages."""
    sizes = []
    send = near._pool.method

    def method(slot, name):
        sender = send(slot, name)

        def counting(send_it):
            def call(message, **keywords):
                sizes.append((name, len(message)))
                return send_it(message, **keywords)
            return call

        call = counting(sender)
        call.future = counting(sender.future)
        return call

    monkeypatch.setattr(near._pool, "method", method)
    return sizes


def model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                         nn.ConvTranspose2d(16, 8, 2, stride=2))


def step(model, x):
    """Returns the output and all gradients."""
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    y = model(x)
    wanted = [x, *model.parameters()]
    return [y.detach(), *torch.autograd.grad(y.float().square().sum(), wanted)]


def assert_same(found, expected):
    """Asserts equal bits and equal orders in memory."""
    torch.testing.assert_close(found, expected, rtol=0, atol=0, check_stride=True)


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_is_sent_and_no_bit_changes(client, near, sent, dtype, form):
    far = model()
    near_by = copy.deepcopy(far)
    offload(far, client)
    offload(near_by, near)
    x = torch.randn(SHAPE).to(memory_format=form)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        assert_same(step(near_by, x), step(far, x))
    computed = [size for name, size in sent if name in ("ConvForward", "ConvBackward")]
    assert len(computed) == 4 + 1  # one call checks whether memory is shared
    assert max(computed) < 1000


def test_results_outlive_the_memory(near):
    local = model()
    offloaded = copy.deepcopy(local)
    offload(offloaded, near)
    x = torch.randn(SHAPE)
    first = step(offloaded, x)
    assert not any(near.shares(to_array(tensor)) for tensor in first)
    torch.testing.assert_close(first, step(local, x), rtol=1e-3, atol=1e-3)


def test_small_calls_are_sent(near, sent):
    layer = nn.Conv2d(3, 4, 3)
    offload(layer, near)
    layer(torch.randn(2, 3, 8, 8))
    assert [name for name, _ in sent] == ["ConvForward"] and sent[0][1] > 2 * 3 * 8 * 8 * 4


def test_memory_of_the_callers_own_is_used_as_it_is(near, monkeypatch):
    copied = []
    copy_in = staging._copied
    monkeypatch.setattr(staging, "_copied", lambda array, region: (
        copied.append(array.shape), copy_in(array, region))[1])
    layer = nn.Conv2d(16, 16, 3, padding=1)
    offload(layer, near)
    with near.region(2**23) as region, torch.no_grad():
        x = torch.from_numpy(region.empty(SHAPE)).normal_()
        expected = layer(x.clone())
        assert copied == [SHAPE, tuple(layer.weight.shape), tuple(layer.bias.shape)]
        assert torch.equal(layer(x), expected)
        assert copied[3:] == copied[1:3]


@pytest.mark.parametrize("moment", ["_copied", "to_array"])
def test_a_call_whose_region_ends_is_sent(near, monkeypatch, moment):
    """The region ends before the call is sent, or while its results are copied."""
    layer = nn.Conv2d(16, 16, 3, padding=1)
    offload(layer, near)
    with torch.no_grad():
        expected = layer(x := torch.randn(SHAPE))
        region, = (region for region in near._regions if region.is_open)
        copied = getattr(staging, moment)

        def end(*arguments):
            found = copied(*arguments)
            region.close()
            found[...] = 0  # as it may be from now on
            return found

        monkeypatch.setattr(staging, moment, end)
        assert torch.equal(layer(x), expected)


def test_a_call_that_was_refused_leaves_the_memory(near, monkeypatch):
    layer = nn.Conv2d(16, 16, 3, padding=1)
    offload(layer, near)
    with torch.no_grad():
        expected = layer(x := torch.randn(SHAPE))
        region, = near._regions

        def refuse(*operands, **keywords):
            raise convgrad.ResourceExhausted("the server is full")

        with monkeypatch.context() as full, pytest.raises(convgrad.ResourceExhausted):
            full.setattr(near, "conv_forward", refuse)
            layer(x)
        assert region.is_open and torch.equal(layer(x), expected)


def test_a_call_that_is_too_large_for_it_is_sent(near, sent):
    layer = nn.Conv2d(64, 64, 1, bias=False)
    offload(layer, near)
    x = torch.randn(20, 64, 128, 128)  # 80 MiB in, 80 MiB out: there are 256 for all clients
    with torch.no_grad():
        first, second = layer(x), layer(x)
    assert torch.equal(first, second)
    assert [name for name, _ in sent].count("GetCapabilities") == 1
    torch.testing.assert_close(first, F.conv2d(x, layer.weight), rtol=1e-4, atol=1e-4)


def test_a_server_that_ends_takes_only_the_memory_with_it(tmp_path):
    server = ServerProcess(f"--regions_listen=unix:{tmp_path}/regions")
    with convgrad.Client(server.address, timeout=60) as client:
        local = model()
        offloaded = copy.deepcopy(local)
        offload(offloaded, client)
        x = torch.randn(SHAPE, requires_grad=True)
        y = offloaded(x)
        server.kill()
        server.restart()
        found, = torch.autograd.grad(y.square().sum(), x)
        expected, = torch.autograd.grad(local(x).square().sum(), x)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    server.kill()


def test_a_call_whose_connection_is_lost_is_sent(tmp_path):
    server = ServerProcess(f"--regions_listen=unix:{tmp_path}/regions")
    proxy = CuttingProxy(server.address, silence=1)
    with convgrad.Client(proxy.address, timeout=60) as client:
        local = nn.Conv2d(16, 16, 3, padding=1)
        layer = copy.deepcopy(local)
        offload(layer, client)
        x = torch.randn(SHAPE)
        expected = local(x)
        torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)
        with server.standing_still():
            found, cut = client.submit(layer, x), proxy.silent
            wait_until(lambda: proxy.silent > cut)
        torch.testing.assert_close(found.result(60), expected, rtol=1e-4, atol=1e-4)
    proxy.close()
    server.kill()


def test_what_a_call_may_still_write_isnt_used_again(tmp_path):
    server = ServerProcess(f"--regions_listen=unix:{tmp_path}/regions")
    with convgrad.Client(server.address, timeout=1) as client:
        layer = nn.Conv2d(16, 16, 3, padding=1)
        local = copy.deepcopy(layer)
        offload(layer, client)
        x = torch.randn(SHAPE)
        with torch.no_grad():
            layer(x)
            first, = client._regions
            with server.standing_still(), pytest.raises(convgrad.DeadlineExceeded):
                layer(x)
            assert not first.is_open
            torch.testing.assert_close(layer(x), local(x), rtol=1e-4, atol=1e-4)
            second, = (region for region in client._regions if region.is_open)
    assert not second.is_open  # it ends with the client
    server.kill()
