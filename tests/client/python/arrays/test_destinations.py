"""Tests results that are received into the caller's arrays (out=)."""

import asyncio

import ml_dtypes
import numpy as np
import pytest

import convgrad
import convgrad.aio

WINDOW = dict(padding=1)


def operands(rng, dtype=np.float32):
    x, w = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((2, 4, 6, 5), (3, 4, 3, 3)))
    return rng.integers(-3, 4, (2, 3, 6, 5)).astype(dtype), x, w


def gradients_for(x, w):
    return {"grad_input": np.full_like(x, 7), "grad_weight": np.full(w.shape, 7, np.float32),
            "grad_bias": np.full(3, 7, np.float32)}


@pytest.mark.parametrize("more", [{}, {"slice_items": 1}])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_results_come_into_the_arrays_that_are_named(client, rng, dtype, more):
    dy, x, w = operands(rng, dtype)
    expected, out = client.conv_backward(dy, x, w, **WINDOW), gradients_for(x, w)
    found = client.conv_backward(dy, x, w, out=out, **WINDOW, **more)
    for name, array in out.items():
        assert getattr(found, name) is array
        np.testing.assert_array_equal(array, getattr(expected, name))
    some = {"grad_input": out["grad_input"]}
    out["grad_input"][...] = 7
    found = client.conv_backward(dy, x, w, out=some, **WINDOW, **more)
    assert found.grad_input is some["grad_input"] and found.grad_weight.base is not w
    np.testing.assert_array_equal(found.grad_input, expected.grad_input)
    np.testing.assert_array_equal(found.grad_weight, expected.grad_weight)


@pytest.mark.parametrize("layout", ["NHWC", "NDC1HWC0"])
def test_an_arrays_shape_is_that_of_its_layout(client, rng, layout):
    _, x, w = operands(rng)
    expected = client.conv_forward(x, w, layouts={"output": layout}, **WINDOW).output
    y = np.empty_like(expected)
    found = client.conv_forward(x, w, layouts={"output": layout}, out={"output": y}, **WINDOW)
    assert found.output is y
    np.testing.assert_array_equal(y, expected)


def test_futures_and_sessions_take_them(client, rng):
    dy, x, w = operands(rng)
    expected = client.conv_backward(dy, x, w, **WINDOW)
    outs = [gradients_for(x, w) for _ in range(4)]
    futures = [client.submit(client.conv_backward, dy, x, w, out=out, **WINDOW) for out in outs]
    with client.session() as session:
        session.put("w", w, layout="OIX")
        kept = {"grad_input": np.empty_like(x)}
        session.conv_backward(dy, x, "w", out=kept, add={"grad_weight": "gw"},
                              gradients=("grad_input", "grad_weight"), **WINDOW)
        with pytest.raises(convgrad.InvalidArgument, match="out.grad_weight: found a result "
                           "that the session keeps"):
            session.conv_backward(dy, x, "w", out=gradients_for(x, w),
                                  add={"grad_weight": "gw"}, **WINDOW)
    for found, out in zip([future.result() for future in futures], outs):
        assert found.grad_input is out["grad_input"]
    for out in (*outs, kept):
        np.testing.assert_array_equal(out["grad_input"], expected.grad_input)


def test_asyncio_takes_them(server, rng):
    dy, x, w = operands(rng)

    async def run():
        async with convgrad.aio.Client(server.address) as client:
            outs = [gradients_for(x, w) for _ in range(3)]
            found = await asyncio.gather(*(
                client.conv_backward(dy, x, w, out=out, **WINDOW) for out in outs))
            assert all(one.grad_bias is out["grad_bias"] for one, out in zip(found, outs))
            np.testing.assert_array_equal(outs[2]["grad_bias"], dy.sum((0, 2, 3)))

    asyncio.run(run())


EXPECTED = (r", expected a writable, C-contiguous numpy.ndarray of float32 and "
            r"shape \(2, 3, 6, 5\)")
Y = np.zeros((2, 3, 6, 5), np.float32)


@pytest.mark.parametrize("array, found", [
    ([1, 2], "builtins.list"),
    (Y.astype(np.float16), r"one of float16 and shape \(2, 3, 6, 5\)"),
    (Y[:1], r"one of float32 and shape \(1, 3, 6, 5\)"),
    (Y.transpose(1, 0, 2, 3).copy().transpose(1, 0, 2, 3), r"strides \(120, 240, 20, 4\)"),
    (np.broadcast_to(np.float32(0), Y.shape), r"strides \(0, 0, 0, 0\)"),
    (np.frombuffer(Y.tobytes(), np.float32).reshape(Y.shape), "a read-only one"),
    (np.ma.array(Y, mask=True), r"numpy.ma(.core)?.MaskedArray"),
])
def test_an_array_that_wont_do(client, rng, array, found):
    _, x, w = operands(rng)
    with pytest.raises(convgrad.InvalidArgument, match=f"out.output: found {found}{EXPECTED}"):
        client.conv_forward(x, w, out={"output": array}, **WINDOW)


def test_names_that_wont_do(client, rng):
    _, x, w = operands(rng)
    with pytest.raises(convgrad.InvalidArgument, match="out: found y, expected a "):
        client.conv_forward(x, w, out={"y": Y}, **WINDOW)
    with pytest.raises(convgrad.InvalidArgument, match="out.grad_bias: found a result"):
        client.conv_forward(x, w, out={"grad_bias": Y}, **WINDOW)


def test_no_memory_is_used_twice(client, rng):
    dy, x, w = operands(rng)
    expected = "expected memory of no operand and of no other result"
    with pytest.raises(convgrad.InvalidArgument,
                       match=f"out.grad_input: found memory of operand input, {expected}"):
        client.conv_backward(dy, x, w, out={"grad_input": x}, **WINDOW)
    memory = np.empty(w.size + 2, np.float32)
    out = {"grad_weight": memory[:w.size].reshape(w.shape), "grad_bias": memory[-3:]}
    with pytest.raises(convgrad.InvalidArgument,
                       match=f"out.grad_bias: found memory of result grad_weight, {expected}"):
        client.conv_backward(dy, x, w, out=out, **WINDOW)
