"""What the client refuses, it refuses in the server's words; what it lets pass, the
server takes. Both get the same messages, the server's past the client's checks."""

import random

import numpy as np
import pytest

import convgrad
from convgrad import validation
from convgrad.requests import Call
from convgrad.v1 import operation_pb2, service_pb2, tensor_pb2
from convgrad.wire import join_message

BIG = [2**31, 2**32 + 1, 2**62, 2**63 - 1]
SMALL = [-1, 0, 1, 2, 3, 4, 5, 7]


def outcome_here(operation, forward, payloads):
    try:
        validation.validate(operation, forward, [len(p) for p in payloads])
    except convgrad.InvalidArgument as error:
        return error.message, error.reason, error.field, error.found, error.expected
    return None


def outcome_there(client, operation, forward, payloads):
    kind = service_pb2.ConvForwardRequest if forward else service_pb2.ConvBackwardRequest
    options = service_pb2.Options(backend=service_pb2.BACKEND_CHOICE_REFERENCE)
    message = join_message(kind(operation=operation, options=options).SerializeToString(),
                           [memoryview(p) for p in payloads])
    try:
        client.run(Call("ConvForward" if forward else "ConvBackward", message, lambda _: None))
    except convgrad.InvalidArgument as error:
        return error.message, error.reason, error.field, error.found, error.expected
    except (convgrad.ResourceExhausted, convgrad.Unimplemented):
        return None  # beyond a limit: the server's to know
    return None


def add_tensor(operation, payloads, name, dims, dtype=1, layout=1):
    tensor = getattr(operation.operands, name)
    tensor.dtype, tensor.layout = dtype, layout
    tensor.dims.extend(dims)
    tensor.inline.payload_index = len(payloads)
    size = int(np.prod(dims, dtype=float)) * (4 if dtype == 1 else 2)
    payloads.append(bytes(size if 0 <= size < 100_000 else 8))


def valid_request(rng, forward):
    """Returns the operation of a small convolution, and its payloads."""
    rank, groups = rng.randrange(4), rng.choice([1, 1, 2])
    transposed, payloads = rng.random() < 0.3, []
    operation = operation_pb2.ConvOperation()
    problem = operation.problem
    problem.input_dims.extend([2, 4] + [5] * rank)
    problem.out_channels, problem.groups, problem.transposed = 4, groups, transposed
    problem.kernel.extend([2] * rank)
    out = 6 if transposed else 4
    dtype = rng.choice([1, 2, 3])
    add_tensor(operation, payloads, "input", [2, 4] + [5] * rank, dtype)
    add_tensor(operation, payloads, "weight", [4, 4 // groups] + [2] * rank, dtype, 3)
    if forward:
        operation.results.add(which=tensor_pb2.RESULT_OUTPUT)
        if rng.random() < 0.5:
            add_tensor(operation, payloads, "bias", [4], dtype)
    else:
        add_tensor(operation, payloads, "grad_output", [2, 4] + [out] * rank, dtype)
        for which in rng.sample([2, 3, 4, 5], rng.randrange(1, 5)):
            operation.results.add(which=which)
    return operation, payloads


def set_entry(rng, values):
    """Changes one entry of a list field, or its length."""
    roll = rng.random()
    if values and roll < 0.7:
        values[rng.randrange(len(values))] = rng.choice(SMALL + SMALL + BIG)
    elif values and roll < 0.8:
        values.pop()
    else:
        values.append(rng.choice(SMALL))


def mutate(rng, operation, payloads):
    problem = operation.problem
    lists = [problem.input_dims, problem.kernel, problem.stride, problem.dilation,
             problem.pad_begin, problem.pad_end, problem.output_padding,
             problem.output_dims]
    present = [getattr(operation.operands, name) for name in validation.OPERANDS
               if operation.operands.HasField(name)]
    roll = rng.randrange(13)
    if roll < 5:
        set_entry(rng, rng.choice(lists))
    elif roll == 5:
        problem.padding = rng.randrange(5)
    elif roll == 6:
        problem.out_channels = rng.choice(SMALL + BIG)
    elif roll == 7:
        problem.groups = rng.choice(SMALL)
    elif roll == 8:
        problem.activation = 2
    elif roll == 9:
        tensor = rng.choice(present)
        rng.choice([lambda: set_entry(rng, tensor.dims),
                    lambda: setattr(tensor, "dtype", rng.choice([1, 2, 3])),
                    lambda: setattr(tensor, "layout", rng.randrange(1, 8)),
                    lambda: setattr(tensor, "c0", rng.choice([0, 4, 8, 16]))])()
    elif roll == 10:
        name = rng.choice(["bias", "residual", "output"])
        if not operation.operands.HasField(name):
            add_tensor(operation, payloads, name, rng.choice([[], [1], [4], [2, 4], [3]]))
    elif roll == 11 and operation.results:
        result = rng.choice(operation.results)
        rng.choice([lambda: setattr(result, "dtype", rng.choice([1, 2, 3])),
                    lambda: setattr(result, "layout", rng.randrange(1, 8)),
                    lambda: setattr(result, "c0", rng.choice([4, 8, 16])),
                    lambda: setattr(result, "scale", rng.choice([2.0, np.inf, np.nan])),
                    lambda: result.bias_dims.dim.append(rng.choice([1, 3, 4])),
                    lambda: setattr(result, "which", rng.randrange(1, 6))])()
    elif roll == 12 and operation.results:
        operation.results.pop()


def test_the_servers_words_and_its_verdict(client):
    rng = random.Random(20)
    refused = set()
    for _ in range(3000):
        forward = rng.random() < 0.4
        operation, payloads = valid_request(rng, forward)
        for _ in range(rng.randrange(4)):
            mutate(rng, operation, payloads)
        here = outcome_here(operation, forward, payloads)
        assert here == outcome_there(client, operation, forward, payloads), operation
        if here:
            refused.add(here[1:3])
    # The generator reaches every kind of complaint, not the first one only.
    assert {reason for reason, _ in refused} == {
        "SHAPE_MISMATCH", "OUT_OF_RANGE", "OVERFLOW", "MISSING", "DUPLICATE",
        "INVALID_ENUM", "DTYPE_MISMATCH", "LAYOUT_MISMATCH", "BYTE_COUNT_MISMATCH"}
    assert len(refused) > 60


X, W, DY = (np.zeros(shape, np.float32) for shape in (
    (2, 4, 6, 6), (8, 4, 3, 3), (2, 8, 4, 4)))


@pytest.mark.parametrize("keywords, message", [
    (dict(input=X.astype(np.float64)),
     "operation.operands.input.dtype: found float64, expected float32, bfloat16 or float16"),
    (dict(weight=W.astype(np.float16)),
     "operation.operands.weight.dtype: found f16, expected f32, the dtype of input"),
    (dict(grad_output=DY[:, :, 1:]),
     "operation.operands.grad_output.dims: found [2,8,3,4], expected [2,8,4,4]"),
    (dict(stride=0), "operation.problem.stride[0]: found 0, expected at least 1"),
    (dict(stride=2**70),
     f"operation.problem.stride: found {2**70}, expected an integer of 64 bits"),
    (dict(stride=True), "operation.problem.stride: found True, expected an integer"),
    (dict(stride=(1, 2, 3)),
     "operation.problem.stride: found 3 entries, expected none, 1 or 2"),
    (dict(padding="full"), "operation.problem.padding: found full, expected valid, same"),
    (dict(dilation=3), "a dilated kernel not larger than the padded input, 6"),
    (dict(groups=3),
     "operation.problem.input_dims[1]: found 4, expected a multiple of groups = 3"),
    (dict(gradients=[]), "operation.results: found an empty list"),
    (dict(gradients=["input"]), "operation.results[0].which: found input, expected output"),
    (dict(gradients=["grad_weight"], input=None, input_shape=X.shape),
     "operation.operands.input: found nothing"),
    (dict(input=None), "operation.problem.input_dims: found 0 entries"),
    (dict(activation="relu"), "operation.operands.output: found nothing"),
    (dict(activation="gelu"), "operation.problem.activation: found gelu"),
    (dict(layout="NHCW"), "found NHCW, expected NCX, NXC, NDC1HWC0"),
    (dict(layouts={"grad_weight": "NXC"}),
     "results[2].layout: found NXC, expected a weight layout"),
    (dict(dtypes={"grad_weight": np.int8}), "results[2].dtype: found int8"),
    (dict(dtypes={"weight": np.float32}), "dtypes: found weight"),
    (dict(scales={"grad_bias": np.inf}), "results[0].scale: found inf"),
    (dict(bias_shape=(7,)), "bias_dims: found [7], expected [], [1], [8]"),
    (dict(backend="mkl"), "options.backend: found mkl, expected auto, onednn"),
    (dict(priority="urgent"),
     "convgrad-priority: found 'urgent', expected batch or interactive"),
])
def test_refusals_before_anything_is_sent(keywords, message):
    # Nobody listens there: a call that got so far would be Unavailable.
    client = convgrad.Client("127.0.0.1:1", timeout=1)
    arguments = dict(grad_output=DY, input=X, weight=W) | keywords
    with pytest.raises(convgrad.InvalidArgument) as caught:
        client.conv_backward(**arguments)
    assert message in caught.value.message
    assert isinstance(caught.value, ValueError) and caught.value.field in caught.value.message


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
