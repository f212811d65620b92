"""Tests that streams give the results of messages: exact on integers, for all slices."""

import asyncio
import os
import signal

import ml_dtypes
import numpy as np
import pytest
from server_process import ServerProcess

import convgrad
import convgrad.aio
from convgrad import operations
from convgrad.errors import Internal
from convgrad.streams import Stream
from convgrad.v1 import service_pb2, tensor_pb2
from convgrad.wire import join_message


def integers(rng, shape, dtype=np.float32):
    return rng.integers(-3, 4, shape).astype(dtype)


def assert_equal(found, expected):
    for a, b in zip(found[:-1], expected[:-1], strict=True):
        if b is None:
            assert a is None
        else:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("slice_items", [0, 1, 3, 7, 100])
def test_slices(client, rng, dtype, slice_items):
    x, w = integers(rng, (7, 4, 6, 5), dtype), integers(rng, (6, 2, 3, 3), dtype)
    bias = integers(rng, (7, 1, 1, 3), dtype)
    window = dict(groups=2, padding=(1, 0))
    streamed = window | dict(slice_items=slice_items)
    expected = client.conv_forward(x, w, bias, **window)
    assert_equal(client.conv_forward(x, w, bias, **streamed), expected)
    dy = integers(rng, expected.output.shape, dtype)
    wanted = dict(gradients=("grad_input", "grad_weight", "grad_bias", "grad_residual"))
    for bias_shape in (None, bias.shape):
        wanted["bias_shape"] = bias_shape
        assert_equal(client.conv_backward(dy, x, w, **streamed, **wanted),
                     client.conv_backward(dy, x, w, **window, **wanted))


def test_frames_and_an_empty_batch(client, rng):
    """An item has 9 MB, so it takes several frames."""
    x, w = integers(rng, (3, 4, 768, 768)), integers(rng, (1, 4, 1, 1))
    assert_equal(client.conv_forward(x, w, slice_items=2), client.conv_forward(x, w))
    assert client.conv_forward(x[:0], w, slice_items=0).output.shape == (0, 1, 768, 768)


def test_what_a_servers_message_cant_hold_is_streamed(rng):
    server = ServerProcess("--max_message_bytes=100000")
    x, w = integers(rng, (8, 8, 40, 40)), integers(rng, (8, 8, 3, 3))
    with convgrad.Client(server.address) as client:
        y = client.conv_forward(x, w, padding=1).output
        found = client.conv_backward(y, x, w, padding=1)
        assert found.grad_input.shape == x.shape
        with pytest.raises(convgrad.ResourceExhausted):
            client.conv_backward(y, x, w, padding=1, self_check=True)

    async def main():
        async with convgrad.aio.Client(server.address) as client:
            return await client.conv_forward(x, w, padding=1)

    np.testing.assert_array_equal(asyncio.run(main()).output, y)
    server.kill()


def test_what_no_message_can_hold_is_streamed():
    # Never touched, so it takes no memory.
    x = np.empty((2, 1024, 550, 1000), ml_dtypes.bfloat16)
    w = np.zeros((1, 1024, 1, 1), ml_dtypes.bfloat16)
    assert operations.conv_forward(x, w).message is None
    assert operations.conv_forward(x[:1], w).message is not None


def peak_bytes():
    with open("/proc/self/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line[:5] == "VmHWM")


@pytest.mark.skipif(not os.environ.get("CONVGRAD_FULL"), reason="only in tests/run full")
def test_what_no_message_can_hold_comes_back_right():
    """Sends and receives 2.2 GiB, in little more memory than these tensors."""
    server = ServerProcess("--memory_budget_bytes=1073741824")
    x = np.empty((36, 16, 1024, 1024), np.float32)
    for item in range(len(x)):
        x[item] = item + np.arange(16, dtype=np.float32)[:, None, None]
    assert x.nbytes > 1 << 31
    x[:, 3, ::2, 5] = -7
    w = np.zeros((16, 16, 1, 1), np.float32)
    for channel in range(16):
        w[channel, 15 - channel] = channel + 1
    before = peak_bytes()
    with convgrad.Client(server.address) as client:
        y = client.conv_forward(x, w).output
    server.kill()
    assert peak_bytes() - before - y.nbytes < 512 << 20
    for channel in range(16):
        for item in range(len(x)):
            np.testing.assert_array_equal(
                y[item, channel], (channel + 1) * x[item, 15 - channel])


def test_refusals(client, rng):
    x, w = integers(rng, (2, 4, 6, 5)), integers(rng, (6, 4, 3, 3))
    with pytest.raises(convgrad.InvalidArgument, match="slice_items: found -1"):
        client.conv_forward(x, w, slice_items=-1)
    with pytest.raises(convgrad.Unimplemented):
        client.conv_backward(integers(rng, (2, 6, 4, 3)), x, w, slice_items=1,
                             self_check=True)
    with pytest.raises(convgrad.Unavailable):
        convgrad.Client("127.0.0.1:1", timeout=0.5).conv_forward(x, w, slice_items=1)


def test_a_wrong_stream_is_refused_before_its_tensors_are_sent(client, monkeypatch):
    sent = []
    frames = Stream._frames
    monkeypatch.setattr(Stream, "_frames", lambda *arguments: (
        sent.append(len(frame)) or frame for frame in frames(*arguments)))
    x, w = np.empty((64, 4, 1024, 1024), np.float32), np.zeros((4, 3, 3, 3), np.float32)
    with pytest.raises(convgrad.InvalidArgument, match="operation.operands.weight.dims"):
        client.conv_forward(x, w, slice_items=1)
    assert sum(sent) < x.nbytes / 8, sum(sent)


def test_a_server_killed_and_restarted_during_a_stream(rng):
    server = ServerProcess()
    x, w = integers(rng, (64, 4, 64, 64)), integers(rng, (4, 4, 3, 3))
    with convgrad.Client(server.address) as client:
        expected = client.conv_forward(x, w)
        server.process.send_signal(signal.SIGSTOP)
        call = client.submit(client.conv_forward, x, w, slice_items=1)
        server.kill()
        server.restart()
        assert_equal(call.result(300), expected)
    server.kill()


def response(payloads=(), **part):
    return join_message(service_pb2.ConvStreamResponse(**part).SerializeToString(),
                        [memoryview(bytes(size)) for size in payloads])


FRAME = service_pb2.ResultFrame(which=tensor_pb2.RESULT_OUTPUT)
WRONG_FRAME = service_pb2.ResultFrame(which=tensor_pb2.RESULT_GRAD_BIAS)
LATE_FRAME = service_pb2.ResultFrame(which=tensor_pb2.RESULT_OUTPUT, byte_offset=4)


@pytest.mark.parametrize("responses, field", [
    ([], "message"), ([b"\xff"], "message"), ([response()], "part"),
    ([response([64], frame=WRONG_FRAME)], "frame.which"),
    ([response([], frame=FRAME)], "frame.which"),
    ([response([60], frame=LATE_FRAME)], "frame.byte_offset"),
    ([response([65], frame=FRAME)], "frame.byte_offset"),
    ([response(end=service_pb2.StreamEnd())], "results"),
    ([response(end=service_pb2.StreamEnd())] * 2, "message"),
])
def test_answers_that_are_none(responses, field):
    call = operations.conv_forward(np.ones((1, 1, 6, 6), "f4"), np.ones((1, 1, 3, 3), "f4"))
    reply = call.stream.reply()
    with pytest.raises(Internal) as caught:
        for message in responses:
            reply.take(message)
        reply.finish()
    assert caught.value.field == f"reply.{field}"
