"""Tests layouts and strides, and which arrays are copied."""

import ml_dtypes
import numpy as np
import pytest

import convgrad
from convgrad import layouts


def integers(rng, shape, dtype=np.float32):
    return rng.integers(-3, 4, shape).astype(dtype)


@pytest.fixture
def tensors(rng):
    return (integers(rng, (2, 3, 6, 5)), integers(rng, (4, 3, 3, 3)),
            integers(rng, (2, 4, 4, 3)))


def test_channels_last_and_hwio(client, tensors):
    x, w, dy = tensors
    expected = client.conv_backward(dy, x, w)
    to_nhwc, to_hwio = (0, 2, 3, 1), (2, 3, 1, 0)
    found = client.conv_backward(
        dy.transpose(to_nhwc).copy(), x.transpose(to_nhwc).copy(),
        w.transpose(to_hwio).copy(), layout="NXC", weight_layout="XIO")
    np.testing.assert_array_equal(found.grad_input, expected.grad_input.transpose(to_nhwc))
    np.testing.assert_array_equal(found.grad_weight, expected.grad_weight.transpose(to_hwio))
    mixed = client.conv_backward(dy, x, w, layouts={"grad_input": "NXC", "grad_weight": "OXI"})
    np.testing.assert_array_equal(mixed.grad_input, found.grad_input)
    np.testing.assert_array_equal(mixed.grad_weight, expected.grad_weight.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("axes", ["W", "HW", "DHW"])
@pytest.mark.parametrize("activation", ["NCX", "NXC"])
@pytest.mark.parametrize("weight", ["OIX", "OXI", "XIO"])
def test_names_that_say_their_axes(client, rng, axes, activation, weight):
    dims = {"N": 2, "C": 3, "O": 4, "I": 3, "D": 3, "H": 4, "W": 5}

    def array(layout, **others):
        spelt = layout.replace("X", axes)
        return integers(rng, [(dims | others)[axis] for axis in spelt]), spelt

    (x, x_name), (w, w_name) = array(activation), array(weight, D=2, H=2, W=2)
    (dy, _) = array(activation, C=4, D=2, H=3, W=4)
    found = client.conv_backward(dy, x, w, layout=x_name, weight_layout=w_name)
    expected = client.conv_backward(dy, x, w, layout=activation, weight_layout=weight)
    named = client.conv_backward(dy, x, w, layouts=dict.fromkeys(
        ("grad_output", "input", "grad_input"), x_name) | dict.fromkeys(
        ("weight", "grad_weight"), w_name))
    for other in (found, named):
        for a, b in zip(other[:3], expected[:3]):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("view", [
    np.asfortranarray, lambda a: a[::-1].copy()[::-1],
    lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    lambda a: np.moveaxis(np.moveaxis(a, 1, -1).copy(), -1, 1)])
def test_any_strides(client, tensors, view):
    x, w, dy = tensors
    expected = client.conv_backward(dy, x, w)
    found = client.conv_backward(view(dy), view(x), view(w))
    for a, b in zip(found[:3], expected[:3]):
        np.testing.assert_array_equal(a, b)


def test_memory_in_another_layouts_order_is_not_copied():
    memory = np.zeros((2, 6, 5, 3), np.float32)
    packed, layout = layouts.pack(np.moveaxis(memory, -1, 1), "NCX")
    assert layout == "NXC" and np.shares_memory(packed, memory)
    weight = np.zeros((3, 3, 2, 4), np.float32)
    packed, layout = layouts.pack(weight.transpose(3, 2, 0, 1), "OIX")
    assert layout == "XIO" and np.shares_memory(packed, weight)
    packed, layout = layouts.pack(memory[:, ::2], "NXC")
    assert layout == "NXC" and not np.shares_memory(packed, memory)


@pytest.mark.parametrize("dtype, c0", [(np.float32, 8), (np.float32, 16),
                                       (ml_dtypes.bfloat16, 16)])
def test_blocked_activations(client, rng, dtype, c0):
    x, w = integers(rng, (2, 18, 4, 5), dtype), integers(rng, (5, 18, 3, 3), dtype)
    y = client.conv_forward(x, w, padding=1).output
    blocks = -(-18 // c0)
    padded = np.zeros((2, blocks * c0, 4, 5), dtype)
    padded[:, :18] = x
    packed = padded.reshape(2, 1, blocks, c0, 4, 5).transpose(0, 1, 2, 4, 5, 3)
    found = client.conv_forward(packed, w, padding=1, input_shape=x.shape, c0=c0,
                                layout="NDC1HWC0", layouts={"output": "NCX"}).output
    np.testing.assert_array_equal(found, y)


def test_fractal_weights(client, rng):
    # The contract's worked example: (4,2,16,16), element o=16, i=17, h=1 at 1793.
    w = np.zeros((17, 18, 2, 1), ml_dtypes.bfloat16)
    w[16, 17, 1, 0] = 3
    x = integers(rng, (1, 18, 3, 3), ml_dtypes.bfloat16)
    packed = np.zeros(4 * 2 * 16 * 16, ml_dtypes.bfloat16)
    packed[1793] = 3
    found = client.conv_forward(x, packed.reshape(4, 2, 16, 16), weight_shape=w.shape,
                                weight_layout="FRACTAL_Z_3D").output
    np.testing.assert_array_equal(found, client.conv_forward(x, w).output)
    with pytest.raises(convgrad.InvalidArgument, match=r"found an array of shape \[8,"):
        client.conv_forward(x, packed.reshape(8, 1, 16, 16), weight_shape=w.shape,
                            weight_layout="FRACTAL_Z_3D")


@pytest.mark.parametrize("groups, dims, shape", [
    (1, (17, 18, 2, 1), (4, 2, 16, 16)), (2, (4, 3, 1, 1, 1), None),
    (17, (17, 1, 3, 3), (18, 1, 16, 16))])
def test_fractal_shapes(groups, dims, shape):
    descriptor = layouts.Descriptor("bf16", "FRACTAL_Z_3D", dims, 16, groups)
    if shape:
        assert descriptor.shape() == shape
    assert descriptor.byte_size() == 2 * np.prod(descriptor.shape())
