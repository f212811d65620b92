"""Tests memory shared with a server: its tensors aren't sent, and the results are the same."""

import asyncio
import gc
import os
import signal
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from cutting_proxy import CuttingProxy
from server_process import ServerProcess
from shared_steps import wait_until

import convgrad
import convgrad.aio
from convgrad import operations

WINDOW = dict(padding=1)


def operands(rng, dtype=np.float32):
    return [rng.integers(-3, 4, shape).astype(dtype)
            for shape in ((2, 3, 6, 5), (2, 4, 6, 5), (3, 4, 3, 3))]


def moved(region, *arrays):
    copies = [region.empty(array.shape, array.dtype) for array in arrays]
    for copy, array in zip(copies, arrays):
        copy[...] = array
    return copies


def gradients_in(region, x, w):
    return {"grad_input": region.empty(x.shape, x.dtype), "grad_weight": region.empty(w.shape),
            "grad_bias": region.empty(3)}


def sent_bytes(client, *arrays, **keywords):
    return len(client.placed(operations.conv_backward(*arrays, **keywords)).message)


@pytest.mark.parametrize("layout", ["NCX", "NXC"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_nothing_of_it_is_sent(near, rng, dtype, layout):
    arrays = operands(rng, convgrad.layouts.DTYPES[dtype])
    if layout == "NXC":
        arrays[:2] = (np.ascontiguousarray(np.moveaxis(a, 1, -1)) for a in arrays[:2])
    settings = WINDOW | dict(layout=layout)
    expected = near.conv_backward(*arrays, **settings)
    with near.region(2**20) as region:
        inside, out = moved(region, *arrays), gradients_in(region, *arrays[1:])
        found = near.conv_backward(*inside, out=out, **settings)
        for name, array in out.items():
            assert getattr(found, name) is array
            np.testing.assert_array_equal(array, getattr(expected, name))
        assert sent_bytes(near, *inside, out=out, **settings) < 600


def test_a_channels_last_view_isnt_sent_either(near, rng):
    dy, x, w = operands(rng)
    expected = near.conv_backward(dy, x, w, **WINDOW)
    with near.region(2**20) as region:
        inside = [np.moveaxis(a, -1, 1) for a in moved(
            region, np.moveaxis(dy, 1, -1), np.moveaxis(x, 1, -1))]
        found = near.conv_backward(*inside, w, **WINDOW)
        assert sent_bytes(near, *inside, w, **WINDOW) < w.nbytes + 600
    np.testing.assert_array_equal(found.grad_input, expected.grad_input)
    np.testing.assert_array_equal(found.grad_weight, expected.grad_weight)


def test_other_arrays_are_sent(near, rng):
    dy, x, w = operands(rng)
    expected = near.conv_backward(dy, x, w, **WINDOW)
    with near.region(2**20) as region, near.region(2**20) as second:
        inside, = moved(region, x)
        out = {"grad_input": np.empty_like(x), "grad_weight": second.empty(w.shape)}
        found = near.conv_backward(dy, inside, w, out=out, **WINDOW)
        for name in ("grad_input", "grad_weight", "grad_bias"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        streamed = near.conv_backward(dy, inside, w, out=out, slice_items=1, **WINDOW)
        assert streamed.grad_weight is out["grad_weight"]
        np.testing.assert_array_equal(streamed.grad_weight, expected.grad_weight)


def test_futures_sessions_and_asyncio(near, sharing, rng):
    dy, x, w = operands(rng)
    expected = near.conv_backward(dy, x, w, **WINDOW)
    with near.region(2**20) as region, near.session() as session:
        inside, out = moved(region, dy, x), gradients_in(region, x, w)
        session.put("w", w, layout="OIX")
        session.conv_backward(*inside, "w", out=out, **WINDOW)
        np.testing.assert_array_equal(out["grad_input"], expected.grad_input)
        later = session.submit(session.conv_backward, *inside, "w", **WINDOW)
        for array in inside:
            array[...] = 0  # they are the caller's again at once
        np.testing.assert_array_equal(later.result().grad_weight, expected.grad_weight)

    async def run():
        async with convgrad.aio.Client(sharing.address) as client:
            with await client.region(2**20) as region:
                inside = moved(region, dy, x, w)
                outs = [gradients_in(region, x, w) for _ in range(3)]
                await asyncio.gather(*(client.conv_backward(*inside, out=out, **WINDOW)
                                       for out in outs))
                for out in outs:
                    np.testing.assert_array_equal(out["grad_weight"], expected.grad_weight)

    asyncio.run(run())


def test_bytes_that_the_server_has_lost_are_sent(near, monkeypatch, rng):
    x = rng.random((4, 8), np.float32)
    with near.region(2**16) as region, near.session() as session:
        monkeypatch.setattr(session._uploads, "known", lambda found, _: frozenset(found))
        inside, other = moved(region, x + 1, x + 2)
        session.put("sent", x, dedupe=True)
        session.put("there", inside, dedupe=True)
        session.submit(session.put, "later", other, dedupe=True).result()
        for i, name in enumerate(("sent", "there", "later")):
            np.testing.assert_array_equal(session.get(name), x + i)


def test_sessions_keep_what_lies_there(sharing, rng):
    with convgrad.Client(sharing.address) as client, client.region(2**20) as region, \
            client.session() as session:
        x, w = operands(rng)[1:]
        inside, = moved(region, x)
        sizes = []
        send = client._start
        client._start = lambda slot, call, seconds: (
            sizes.append(len(call.message)), send(slot, call, seconds))[1]
        session.put({"x": inside, "w": w}, layouts={"w": "OIX"})
        session.put("again", inside, dedupe=True)
        session.put("last", moved(region, np.moveaxis(x, 1, -1))[0], layout="NXC")
        y = region.empty((2, 3, 6, 5))
        found = session.conv_forward(inside, "w", out={"output": y}, keep={}, **WINDOW)
        session.conv_backward(y, inside, "w", keep={"grad_input": "dx"}, **WINDOW)
        assert w.nbytes < sizes.pop(0) < w.nbytes + 300 and max(sizes) < 600
        inside[...] = 0
        for name in ("x", "again", "last"):
            np.testing.assert_array_equal(session.get(name, layout="NCX"), x)
        assert found.output is y
        np.testing.assert_array_equal(y, client.conv_forward(x, w, **WINDOW).output)
        np.testing.assert_array_equal(
            session.get("dx"), client.conv_backward(y, x, w, **WINDOW).grad_input)
        later = session.submit(session.put, "x", inside)
        inside[...] = 1
        later.result()
        assert not session.get("x").any()  # submitted ones are copied at once
    with convgrad.Client(sharing.address) as client, client.session() as session:
        with client.region(2**20) as region:
            inside, = moved(region, x)
        with pytest.raises(convgrad.NotFound, match="tensors.x: found an array of") as caught:
            session.put("x", inside)
        error = caught.value
        assert error.field == "tensors.x" and error.found in error.message
        assert error.message.endswith(f", expected {error.expected}")
        session.put("x", x)


def test_memory_is_free_with_its_last_array(near):
    with near.region(1000) as region:
        first, second = region.empty(100), region.empty((5, 10), "bf16")
        assert second.dtype == ml_dtypes.bfloat16 and not first.ctypes.data % 64
        with pytest.raises(convgrad.ResourceExhausted, match="region: found 512 bytes wanted, "
                           "expected at most 384 of 1000"):
            region.empty(512, np.uint8)
        at, view = first.ctypes.data, first[10:20]
        del first
        gc.collect()
        assert region.empty(64, np.uint8).ctypes.data != at
        del view
        whole = region.empty(448, np.uint8)
        assert whole.ctypes.data == at
        del whole, second
        assert region.empty(960, np.uint8).nbytes == 960
        assert region.empty((0, 3)).size == 0
        with pytest.raises(convgrad.InvalidArgument, match="dtype: found float64"):
            region.empty(3, np.float64)


def test_torch_shares_it(near):
    torch = pytest.importorskip("torch")
    with near.region(1024) as region:
        tensor = torch.from_numpy(region.empty(256))
        tensor.fill_(3)
        with pytest.raises(convgrad.ResourceExhausted):
            region.empty(1)
        y = near.linear_forward(tensor.view(1, 256).numpy(), np.ones((1, 256), np.float32))
        assert y.output == 768
        del tensor
        assert region.empty(256).nbytes == 1024


def test_an_offloaded_layer_leaves_tensors_there(near, monkeypatch):
    torch = pytest.importorskip("torch")
    model = torch.nn.Conv2d(3, 4, 3, padding=1)
    for parameter in model.parameters():  # integers: sums are exact
        parameter.data = torch.randint(-3, 4, parameter.shape).float()
    x = torch.randint(-3, 4, (2, 3, 16, 16)).float()
    expected = model(x).square().sum()
    wanted, = torch.autograd.grad(expected, model.weight)
    sent, begin = [], near._begin
    monkeypatch.setattr(near, "_begin", lambda method, message, *rest: (
        sent.append(len(message)), begin(method, message, *rest))[1])
    with near.region(2**20) as region:
        weight = torch.from_numpy(region.empty(model.weight.shape))
        model.weight = torch.nn.Parameter(weight.copy_(model.weight.detach()))
        x = torch.from_numpy(region.empty(x.shape)).copy_(x)
        sent.clear()
        convgrad.torch.offload(model, near)
        found, = torch.autograd.grad(model(x).square().sum(), model.weight)
        assert torch.equal(found, wanted)
        forward, backward = sent
        assert forward < 600 and backward < 4 * 2 * 4 * 16 * 16 + 600  # grad_output is sent


def test_what_it_held_ends_with_it(near, tmp_path, rng):
    dy, x, w = operands(rng)
    match = "found an array of a region that was closed, or whose server has ended"
    with near.region(2**20) as region:
        inside = moved(region, x)[0]
    with pytest.raises(convgrad.NotFound, match=f"operation.operands.input: {match}"):
        near.conv_forward(inside, w, **WINDOW)
    with pytest.raises(convgrad.NotFound, match=f"out.grad_input: {match}"):
        near.conv_backward(dy, x, w, out={"grad_input": inside}, **WINDOW)
    server = ServerProcess(f"--regions_listen=unix:{tmp_path}/regions")
    with convgrad.Client(server.address, timeout=60) as client:
        region = client.region(2**20)
        inside, = moved(region, x)
        server.kill()
        server.restart()
        with pytest.raises(convgrad.NotFound, match=match):
            client.conv_forward(inside, w, **WINDOW)
        assert not region.is_open
        client.conv_forward(x, w, **WINDOW)
        with client.region(2**20) as other:
            client.conv_forward(*moved(other, x, w), **WINDOW)
    server.kill()


@pytest.mark.parametrize("shape, kind", [
    (-100, convgrad.InvalidArgument), ((-1, 4), convgrad.InvalidArgument), (1.5, TypeError),
    ((1.5,), TypeError), ("ab", TypeError)])
def test_shapes_that_no_array_has(near, shape, kind):
    with near.region(1024) as region:
        with pytest.raises(kind):
            region.empty(shape)
        arrays = [region.empty(size) for size in (np.int64(64), (np.int64(64), 3))]
        assert all(region.range_of(array) is not None for array in arrays)
        with pytest.raises(convgrad.ResourceExhausted):
            region.empty(1)


def test_what_a_call_may_still_write_is_nobody_elses(tmp_path):
    server = ServerProcess(f"--regions_listen=unix:{tmp_path}/regions")
    with convgrad.Client(server.address) as client, client.region(1024) as region:
        x = np.ones((1, 128), np.float32)
        server.stand_still()
        y = region.empty((1, 128))
        with pytest.raises(convgrad.DeadlineExceeded):
            client.linear_forward(x, np.eye(128, dtype=np.float32), out={"output": y},
                                  timeout=0.3)
        at = y.ctypes.data
        del y
        gc.collect()  # of the exception's frames
        assert region.empty(128).ctypes.data != at
        with pytest.raises(convgrad.ResourceExhausted):
            region.empty(129)
        server.process.send_signal(signal.SIGCONT)
    server.kill()


def test_what_a_cancelled_call_may_still_write_is_nobody_elses(tmp_path):
    server = ServerProcess(f"--regions_listen=unix:{tmp_path}/regions")
    x = np.ones((1, 128), np.float32)
    with convgrad.Client(server.address) as client, client.region(1024) as region:
        call = operations.linear_forward(x, np.eye(128, dtype=np.float32),
                                         out={"output": region.empty((1, 128))})
        with server.standing_still(), pytest.raises(convgrad.Cancelled):
            client.run(replace(call, on_start=lambda rpc: rpc.cancel()))
        assert not region.is_whole
    server.kill()


def test_what_a_lost_call_may_still_write_isnt_returned(tmp_path):
    """The server goes on, and may write to `out` after a repeated call has returned."""
    server = ServerProcess(f"--regions_listen=unix:{tmp_path}/regions")
    proxy = CuttingProxy(server.address, silence=1)
    with convgrad.Client(proxy.address, timeout=60) as client, client.region(2**17) as region:
        x, w = moved(region, np.ones((1, 128), np.float32), np.eye(128, dtype=np.float32))
        with server.standing_still():
            call, cut = client.submit(client.linear_forward, x, w), proxy.silent
            wait_until(lambda: proxy.silent > cut)
        assert (call.result(60).output == x).all()
        with server.standing_still(), pytest.raises(
                convgrad.Unavailable, match="; the server may still write") as caught:
            client.linear_forward(x, w, out={"output": region.empty((1, 128))})
        assert caught.value.attempts == 1 and not region.is_whole
        assert (client.linear_forward(x, w).output == x).all()
    proxy.close()
    server.kill()


def test_what_was_never_sent_is_free_again(near, sharing):
    x = np.ones((1, 1), np.float32)

    async def run():
        async with convgrad.aio.Client(sharing.address) as client:
            with await client.region(1024) as region:
                with pytest.raises(convgrad.DeadlineExceeded):
                    await client.linear_forward(*moved(region, x, x), timeout=0)
                assert region.is_whole

    asyncio.run(run())
    with near.region(1024) as region:
        with pytest.raises(convgrad.DeadlineExceeded):
            near.linear_forward(*moved(region, x, x), timeout=0)
        assert region.is_whole


def test_what_the_server_has_refused_is_free_again(near):
    with near.region(1024) as region, near.session() as session:
        for _ in range(3):
            x = region.empty(128)
            with pytest.raises(convgrad.InvalidArgument):
                session.put("no/good", x)
            del x
            gc.collect()  # of the exception's frames
        assert region.empty(256).size


def test_what_a_session_gave_up_is_nobody_elses(tmp_path):
    server = ServerProcess(f"--regions_listen=unix:{tmp_path}/regions")
    with convgrad.Client(server.address) as client, client.region(1024) as region, \
            client.session() as session:
        with server.standing_still(), pytest.raises(convgrad.DeadlineExceeded):
            session.put("x", region.empty(128), timeout=0.3)
        assert not region.is_whole
    server.kill()


def test_servers_that_share_none(client, near, sharing, tmp_path):
    with pytest.raises(convgrad.Unimplemented, match="region: found the server at .*, which "
                       "offers none, expected one with --regions_listen"):
        client.region(2**20)
    for nbytes in (0, -1, 2**64):
        with pytest.raises(convgrad.InvalidArgument, match="region.nbytes: found"):
            near.region(nbytes)
    with pytest.raises(convgrad.ResourceExhausted):
        near.region(2**50)
    with convgrad.Client([sharing.address, client.targets[0]]) as both:
        with pytest.raises(convgrad.InvalidArgument, match="region: found a client of 2"):
            both.region(2**20)
    server = ServerProcess(f"--regions_listen=unix:{tmp_path}/one")
    other = ServerProcess(f"--regions_listen=unix:{tmp_path}/two")
    os.replace(tmp_path / "two", tmp_path / "one")
    with convgrad.Client(server.address) as lost:
        with pytest.raises(convgrad.Unavailable, match="the side socket of another server"):
            lost.region(2**20)
        (tmp_path / "one").unlink()
        with pytest.raises(convgrad.Unavailable, match="expected the side socket of a server"):
            lost.region(2**20)
    server.kill()
    other.kill()
