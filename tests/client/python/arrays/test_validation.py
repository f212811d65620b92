"""Tests that wrong calls are refused: by the client if a message can't express them, otherwise
by the server."""

import random

import numpy as np
import pytest

import convgrad
from convgrad import operations

X, W, DY = (np.zeros(shape, np.float32) for shape in (
    (2, 4, 6, 6), (8, 4, 3, 3), (2, 8, 4, 4)))
ENTRIES = [-1, 0, 1, 2, 2, 3, 2**31, 2**62]
PADDINGS = ["same", "same_lower", "valid", 0, 1, (1, 2), [(1, 0), (0, 2)]]


def array(rng, dims):
    """Returns an array of about this size, perhaps in another layout."""
    dims = [dim + (rng.random() < 0.04) for dim in dims[:len(dims) - (rng.random() < 0.02)]]
    return np.ones(dims, rng.choice([np.float32] * 20 + [np.float16]))


def random_call(rng):
    """Returns a method's name, operands and keywords, which often form a valid call."""
    rank, groups = rng.randrange(4), rng.choice([1, 1, 2])
    method = rng.choice(["conv", "conv_transpose"] if rank else ["linear"])
    window = {} if method == "linear" else {"groups": groups}
    groups = window.get("groups", 1)
    if rank:
        window["padding"] = rng.choice(PADDINGS)
        for name in ("stride", "dilation"):
            window[name] = rng.choice([1, 2, rng.choice(ENTRIES), rng.choices(ENTRIES, k=2)])
    if method == "conv_transpose":
        window |= {name: rng.choice([None, None, *ENTRIES])
                   for name in ("output_padding", "output_size")}
    window["layouts"] = {name: rng.choice(["NXC", "OXI", "NDC1HWC0", "FRACTAL_Z_3D"])
                         for name in ("output", "grad_weight", "grad_input")
                         if rng.random() < 0.2}
    window["backend"] = "reference"
    window["c0"] = rng.choice([0, 0, 0, 8, 16, 4])
    x, w = (array(rng, [2, 4] + [5] * rank), array(rng, [4, 4 // groups] + [2] * rank))
    return method, x, w, window


def outcome(method, *operands, **keywords):
    """Returns the result, or the reason and field of the refusal."""
    try:
        return method(*operands, **keywords)
    except (convgrad.InvalidArgument, convgrad.Unimplemented,
            convgrad.ResourceExhausted) as error:
        assert error.reason and error.field, error
        return error.reason, error.field


def test_whatever_is_wrong_is_refused_and_the_rest_has_the_servers_shapes(client):
    """A result with an unexpected shape would be an Internal error."""
    rng = random.Random(20)
    right, refused = 0, set()
    for _ in range(1500):
        name, x, w, window = random_call(rng)
        found = outcome(getattr(client, f"{name}_forward"), x, w, **window)
        if len(found) == 2 and isinstance(found[1], str):
            refused.add(found)
            continue
        if window.pop("layouts").get("output"):
            continue
        right += 1
        size, c0 = window.pop("output_size", None), window.pop("c0")
        gradients = outcome(
            getattr(client, f"{name}_backward"), found.output, x, w, c0=c0,
            gradients=["grad_input", "grad_weight", "grad_bias", "grad_residual"], **window)
        if size is None and window.get("output_padding") is None:
            assert [gradients[i].shape for i in (0, 1, 3)] == [
                x.shape, w.shape, found.output.shape]
    assert right > 100 and len(refused) > 25, (right, refused)


@pytest.mark.parametrize("keywords, message", [
    (dict(weight=W.astype(np.float16)),
     "operation.operands.weight.dtype: found f16, expected f32, the dtype of input"),
    (dict(grad_output=DY[:, :, 1:]),
     "operation.operands.grad_output.dims: found [2,8,3,4], expected [2,8,4,4]"),
    (dict(stride=0), "operation.problem.stride[0]: found 0, expected at least 1"),
    (dict(stride=(1, 2, 3)),
     "operation.problem.stride: found 3 entries, expected none, 1 or 2"),
    (dict(dilation=3), "a dilated kernel not larger than the padded input, 6"),
    (dict(groups=3),
     "operation.problem.input_dims[1]: found 4, expected a multiple of groups = 3"),
    (dict(gradients=[]), "operation.results: found an empty list"),
    (dict(gradients=["grad_weight"], input=None, input_shape=X.shape),
     "operation.operands.input: found nothing"),
    (dict(input=None), "operation.problem.input_dims: found 0 entries"),
    (dict(activation="relu"), "operation.operands.output: found nothing"),
    (dict(layouts={"grad_weight": "NXC"}),
     "results[2].layout: found NXC, expected a weight layout"),
    (dict(scales={"grad_bias": np.inf}), "results[0].scale: found inf"),
    (dict(bias_shape=(7,)), "bias_dims: found [7], expected [], [1], [8]"),
])
def test_refusals_by_the_server(client, keywords, message):
    arguments = dict(grad_output=DY, input=X, weight=W) | keywords
    with pytest.raises(convgrad.InvalidArgument) as caught:
        client.conv_backward(**arguments)
    assert message in caught.value.message
    assert isinstance(caught.value, ValueError) and caught.value.field in caught.value.message


@pytest.mark.parametrize("keywords, message", [
    (dict(input=X.astype(np.float64)),
     "operation.operands.input.dtype: found float64, expected float32, bfloat16 or float16"),
    (dict(stride=2**70),
     f"operation.problem.stride: found {2**70}, expected an integer of 64 bits"),
    (dict(stride=True), "operation.problem.stride: found True, expected an integer"),
    (dict(padding="full"), "operation.problem.padding: found full, expected valid, same"),
    (dict(gradients=["input"]), "operation.results[0].which: found input, expected output"),
    (dict(activation="gelu"), "operation.problem.activation: found gelu"),
    (dict(layout="NHCW"), "found NHCW, expected NCX, NXC, NDC1HWC0"),
    (dict(layout="\udcff"), "found \udcff, expected NCX"),
    (dict(dtypes={"grad_weight": np.int8}), "results[2].dtype: found int8"),
    (dict(dtypes={"weight": np.float32}), "dtypes: found weight"),
    (dict(backend="mkl"), "options.backend: found mkl, expected auto, onednn"),
    (dict(priority="urgent"),
     "convgrad-priority: found 'urgent', expected batch or interactive"),
    (dict(traceparent="00-1\n"), "traceparent: found '00-1\\n', expected W3C's trace context"),
    (dict(traceparent="\u00fc"), "traceparent: found '\\xfc', expected"),
    (dict(traceparent=b"00-1"), "traceparent: found b'00-1', expected"),
    (dict(timeout=float("nan")), "timeout: found nan, expected seconds"),
    (dict(timeout="soon"), "timeout: found 'soon', expected seconds"),
])
def test_what_no_message_can_say(keywords, message):
    # No server listens there, so a call that was sent would be Unavailable.
    client = convgrad.Client("127.0.0.1:1", timeout=1)
    arguments = dict(grad_output=DY, input=X, weight=W) | keywords
    with pytest.raises(convgrad.InvalidArgument) as caught:
        client.conv_backward(**arguments)
    assert message in caught.value.message


@pytest.mark.parametrize("weight, message", [
    (W[:, :3], "operation.operands.weight.dims: found [8,3,3,3], expected [8,4,3,3]"),
    (W.astype(np.float16), "weight.dtype: found f16, expected f32, the dtype of input")])
def test_what_doesnt_fit_is_refused_without_its_bytes(client, weight, message):
    call = operations.conv_forward(np.empty((2, 4, 1000, 1000), np.float32), weight)
    assert len(call.message) < 1000
    with pytest.raises(convgrad.InvalidArgument) as caught:
        client.run(call)
    assert message in caught.value.message


@pytest.mark.parametrize("method, operands, missing", [
    ("conv_backward", (None, None, None), "grad_output"),
    ("conv_transpose_backward", (None, X, W), "grad_output"),
    ("linear_backward", (None, X, W), "grad_output"),
    ("conv_forward", (None, W), "input"), ("conv_forward", (X, None), "weight"),
    ("conv_transpose_forward", (None, W), "input"), ("linear_forward", (None, W), "input"),
])
def test_operands_that_are_none_are_named(method, operands, missing):
    client = convgrad.Client("127.0.0.1:1", timeout=1)
    with pytest.raises(convgrad.InvalidArgument) as caught:
        getattr(client, method)(*operands)
    assert caught.value.reason == "MISSING"
    assert caught.value.message.startswith(f"operation.operands.{missing}: found nothing, ")


def test_one_gradients_name_stands_for_itself(client):
    found = client.conv_backward(DY, X, W, gradients="grad_weight")
    assert found.grad_weight.shape == W.shape
    assert found.grad_input is None and found.grad_bias is None
    with pytest.raises(convgrad.InvalidArgument, match="which: found grad_w, expected"):
        client.conv_backward(DY, X, W, gradients="grad_w")


def test_unknown_keywords_are_type_errors(client):
    with pytest.raises(TypeError, match="strides"):
        client.conv_backward(DY, X, W, strides=2)


def test_big_endian_is_another_dtype(client):
    with pytest.raises(convgrad.InvalidArgument, match="found >f4"):
        client.conv_forward(X.astype(">f4"), W)
