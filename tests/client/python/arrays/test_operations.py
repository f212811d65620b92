"""Compares every operation with plain sums in float64; exact on integers."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import convgrad

DTYPES = [np.float32, ml_dtypes.bfloat16, np.float16]


def integers(rng, shape, dtype=np.float32):
    return rng.integers(-3, 4, shape).astype(dtype)


def convolve(x, w, stride, pad, dilation, groups):
    """Returns the convolution, by one loop over kernel positions. Settings are per axis."""
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pad])
    kernel = w.shape[2:]
    out = [(size - d * (k - 1) - 1) // s + 1
           for size, k, s, d in zip(x.shape[2:], kernel, stride, dilation)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    icg, ocg = w.shape[1], w.shape[0] // groups
    for q, at in itertools.product(range(groups), np.ndindex(*kernel)):
        window = tuple(slice(a * d, a * d + (o - 1) * s + 1, s)
                       for a, o, s, d in zip(at, out, stride, dilation))
        taps = w[(slice(q * ocg, (q + 1) * ocg), slice(None), *at)].astype(np.float64)
        part = x[(slice(None), slice(q * icg, (q + 1) * icg), *window)]
        y[:, q * ocg:(q + 1) * ocg] += np.moveaxis(np.tensordot(part, taps, (1, 1)), -1, 1)
    return y


def gradients_by_linearity(forward, x, w, dy):
    """Returns the gradients of <dy, forward(x, w)>, one unit vector at a time."""
    grads = []
    for array, call in ((x, lambda unit: forward(unit, w)),
                        (w, lambda unit: forward(x, unit))):
        gradient = np.zeros(array.shape)
        for at in np.ndindex(*array.shape):
            unit = np.zeros(array.shape)
            unit[at] = 1
            gradient[at] = (call(unit) * dy).sum()
        grads.append(gradient)
    return grads


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank, groups", [(1, 1), (2, 1), (2, 2), (2, 4), (3, 2)])
def test_forward_and_gradients_are_exact(client, rng, dtype, rank, groups):
    x = integers(rng, (2, 4, 5, 4, 3)[:2 + rank], dtype)
    w = integers(rng, (4, 4 // groups, 2, 3, 2)[:2 + rank], dtype)
    stride, dilation = (2, 1, 1)[:rank], (1, 1, 2)[:rank]
    pad = ((1, 0), (1, 1), (0, 2))[:rank]

    def forward(x, w):
        return convolve(x, w, stride, pad, dilation, groups)

    window = dict(stride=stride, padding=pad, dilation=dilation, groups=groups)
    bias = integers(rng, 4, dtype)
    expected = forward(x, w)
    y = client.conv_forward(x, w, bias, **window).output
    assert y.dtype == dtype
    shaped = bias.astype(np.float64).reshape(-1, *(1,) * rank)
    np.testing.assert_array_equal(y.astype(np.float64), expected + shaped)

    dy = integers(rng, expected.shape, dtype)
    found = client.conv_backward(dy, x, w, **window)
    dx, dw = gradients_by_linearity(forward, x, w, dy.astype(np.float64))
    assert found.grad_input.dtype == dtype
    assert found.grad_weight.dtype == found.grad_bias.dtype == np.float32
    np.testing.assert_array_equal(found.grad_input.astype(np.float64), dx)
    np.testing.assert_array_equal(found.grad_weight, dw)
    np.testing.assert_array_equal(
        found.grad_bias, dy.astype(np.float64).sum(axis=(0, *range(2, 2 + rank))))
    assert found.grad_residual is None


def test_transposed_is_the_mirror(client, rng):
    x, w = integers(rng, (2, 6, 4, 5)), integers(rng, (6, 2, 3, 3))
    window = dict(stride=2, padding=1, groups=2)
    y = client.conv_transpose_forward(x, w, output_padding=1, **window).output
    assert y.shape == (2, 4, 8, 10)
    mirror = client.conv_backward(x, weight=w, input_shape=y.shape,
                                  gradients={"grad_input"}, **window)
    np.testing.assert_array_equal(y, mirror.grad_input)
    sized = client.conv_transpose_forward(x, w, output_size=(8, 10), **window).output
    np.testing.assert_array_equal(y, sized)

    dy = integers(rng, y.shape)
    found = client.conv_transpose_backward(dy, x, w, **window)
    np.testing.assert_array_equal(
        found.grad_input, client.conv_forward(dy, w, **window).output)
    np.testing.assert_array_equal(
        found.grad_weight, client.conv_backward(x, dy, w, **window).grad_weight)
    np.testing.assert_array_equal(found.grad_bias, dy.sum(axis=(0, 2, 3)))


def test_linear(client, rng):
    x, w, b = integers(rng, (5, 7)), integers(rng, (3, 7)), integers(rng, 3)
    np.testing.assert_array_equal(client.linear_forward(x, w, b).output, x @ w.T + b)
    dy = integers(rng, (5, 3))
    found = client.linear_backward(dy, x, w)
    np.testing.assert_array_equal(found.grad_input, dy @ w)
    np.testing.assert_array_equal(found.grad_weight, dy.T @ x)
    np.testing.assert_array_equal(found.grad_bias, dy.sum(0))


def test_fused_relu_residual_and_broadcast_bias(client, rng):
    x, w = integers(rng, (2, 3, 6, 6)), integers(rng, (4, 3, 3, 3))
    bias, residual = integers(rng, (1, 4, 1, 4)), integers(rng, (2, 4, 4, 4))
    plain = client.conv_forward(x, w).output
    y = client.conv_forward(x, w, bias, residual=residual, activation="relu").output
    np.testing.assert_array_equal(y, np.maximum(plain + bias + residual, 0))
    dy = integers(rng, y.shape)
    found = client.conv_backward(
        dy, x, w, output=y, activation="relu", bias_shape=bias.shape,
        gradients={"grad_bias", "grad_residual", "grad_weight"}, scales={"grad_bias": 0.5})
    masked = np.where(y > 0, dy, 0)
    assert found.grad_input is None
    np.testing.assert_array_equal(found.grad_residual, masked)
    np.testing.assert_array_equal(
        found.grad_bias, masked.sum(axis=(0, 2), keepdims=True) * 0.5)
    np.testing.assert_array_equal(
        found.grad_weight, client.conv_backward(masked, x, w).grad_weight)


@pytest.mark.parametrize("padding, begin, end", [
    ("valid", 0, 0), ("same", 0, 1), ("same_lower", 1, 0), (1, 1, 1), ([(1, 0)] * 2, 1, 0)])
def test_padding_by_name_number_or_pairs(client, rng, padding, begin, end):
    x, w = integers(rng, (1, 2, 6, 6)), integers(rng, (3, 2, 3, 3))
    y = client.conv_forward(x, w, stride=2, padding=padding).output
    np.testing.assert_array_equal(
        y, convolve(x, w, (2, 2), ((begin, end),) * 2, (1, 1), 1))


def test_only_what_is_asked_for(client, rng):
    x, w, dy = integers(rng, (1, 2, 5, 5)), integers(rng, (3, 2, 3, 3)), integers(
        rng, (1, 3, 3, 3))
    everything = client.conv_backward(dy, x, w)
    only = client.conv_backward(dy, x, weight_shape=w.shape, gradients=["grad_weight"])
    assert only.grad_input is None and only.grad_bias is None
    np.testing.assert_array_equal(only.grad_weight, everything.grad_weight)
    only = client.conv_backward(dy, weight=w, input_shape=x.shape, gradients={"grad_input"})
    np.testing.assert_array_equal(only.grad_input, everything.grad_input)


def test_results_are_writable_and_aligned(client, rng):
    found = client.conv_backward(np.ones((1, 1, 3, 3), "f4"), np.ones((1, 1, 5, 5), "f4"),
                                 np.ones((1, 1, 3, 3), "f4"), dtypes={"grad_weight": "f32"})
    for array in found[:3]:
        assert array.flags.aligned and array.flags.writeable and array.flags.owndata
        array *= 2


def test_empty_batch(client):
    x, w = np.zeros((0, 3, 8, 8), "f4"), np.ones((5, 3, 3, 3), "f4")
    y = client.conv_forward(x, w).output
    assert y.shape == (0, 5, 6, 6)
    found = client.conv_backward(y, x, w)
    assert found.grad_input.shape == x.shape
    assert not found.grad_weight.any() and not found.grad_bias.any()


def test_the_report_and_what_it_may_hold(client, rng):
    x, w = integers(rng, (1, 2, 5, 5)), integers(rng, (3, 2, 3, 3))
    dy = np.full((1, 3, 3, 3), np.inf, np.float32)
    report = client.conv_backward(dy, x, w, backend="reference", self_check=False,
                                  count_nonfinite=True).report
    assert report.backend == "reference"
    assert report.problem == "conv2d_n1_c2_o3_i5x5_k3x3_b3"
    assert {s.which: s.nonfinite_count for s in report.statistics}[4] == 3
    checked = client.conv_backward(np.ones_like(dy), x, w, self_check=True).report
    assert checked.self_check.passed and checked.self_check.grad_bias_error <= 1
    checked = client.conv_forward(x, w, self_check=True).report.self_check
    assert checked.passed and checked.output_error <= 1
    assert not checked.HasField("grad_bias_error")


def test_capabilities(client):
    names = [backend.name for backend in client.capabilities().backends]
    assert "onednn" in names and "reference" in names


def test_prepared_calls_can_be_sent_again(client, rng):
    from convgrad import operations
    x, w = integers(rng, (1, 2, 5, 5)), integers(rng, (3, 2, 3, 3))
    call = operations.conv_forward(x, w)
    np.testing.assert_array_equal(client.run(call).output, client.run(call).output)
    assert isinstance(client.run(call), convgrad.Forward)


def test_numpys_numbers_are_numbers(client):
    x, w = np.ones((1, 2, 5, 5), np.float32), np.ones((3, 2, 3, 3), np.float32)
    found = client.conv_forward(x, w, padding=np.int64(1), stride=np.int32(2))
    assert found.output.shape == (1, 3, 3, 3)


def test_numbers_from_iterators_and_arrays(client, rng):
    x, w = integers(rng, (1, 2, 6, 7)), integers(rng, (3, 2, 2, 3))
    expected = client.conv_forward(x, w, padding=(1, 2), stride=(2, 1)).output
    for padding, stride in ((iter((1, 2)), iter((2, 1))),
                            (np.array([1, 2]), np.array([2, 1])),
                            (map(tuple, np.array([[1, 1], [2, 2]])), (2, 1))):
        found = client.conv_forward(x, w, padding=padding, stride=stride).output
        np.testing.assert_array_equal(found, expected)
    found = client.conv_forward(x, w, padding=np.array(1)).output
    np.testing.assert_array_equal(found, client.conv_forward(x, w, padding=1).output)
