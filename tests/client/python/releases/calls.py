"""Makes the basic calls of a client, with the release that is imported.

    calls.py ADDRESS FILE.npz   writes their results to the file

Uses only features of the oldest wheel beside it.
"""

import pathlib
import sys

import ml_dtypes
import numpy as np
import torch
from torch import nn

import convgrad


def integers(*shape):
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(np.float32)


X, W, B = integers(2, 3, 8, 8), integers(4, 3, 3, 3), integers(4)
G = integers(2, 4, 8, 8)


def bits(array):
    return np.asarray(array).view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array


def single_calls(client):
    for dtype in (np.float32, ml_dtypes.bfloat16):
        x, w, b, g = (array.astype(dtype) for array in (X, W, B, G))
        name = np.dtype(dtype).name
        yield f"{name} forward", client.conv_forward(
            x, w, b, padding=1, activation="relu").output
        for slices in ({}, {"slice_items": 1}):
            back = client.conv_backward(g, x, w, padding=1, bias_shape=(4,), **slices)
            yield f"{name} backward {slices} input", back.grad_input
            yield f"{name} backward {slices} weight", back.grad_weight
        yield f"{name} transposed", client.conv_transpose_forward(g, w, stride=2).output
    y = client.conv_forward(np.moveaxis(X, 1, -1).copy(), W, padding=1, layout="NHWC").output
    yield "channels last", y
    yield "linear", client.linear_forward(integers(2, 5), integers(3, 5)).output
    assert client.capabilities().limits.max_message_bytes > 0


def session_calls(client):
    with client.session("calls", lease=60) as session:
        session.put("w", W, layout="OIX")
        session.put({"x": X, "labels": np.arange(4)}, dedupe=True)
        session.conv_forward("x", "w", padding=1, keep={"output": "y"})
        for _ in range(2):
            session.conv_backward(G, "x", "w", padding=1, gradients={"grad_weight"},
                                  add={"grad_weight": "gw"})
        yield "kept", session.get("y", first_item=1, items=1)
        yield "sum of gradients", session.get("gw")
        session.drop("x")
        assert set(session.tensors()) == {"w", "labels", "y", "gw"} and session.number == 6
        for i in range(20):  # changes that the read must wait for
            session.submit(session.put, "labels", np.full(1 << 16, i))
        yield "behind changes", session.get("labels")
        (listed,) = [one for one in client.sessions() if one.name == "calls"]
        assert listed.tensors == 4
        resumed = client.session(resume=session.id)
        yield "after a resumption", resumed.get("labels")
        resumed.close()


def program():
    made = convgrad.Program()
    x, target = made.input("x"), made.input("target", is_index=True)
    w, b = made.parameter("w", (5, 12)), made.parameter("b", (5,))
    logits = made.step("linear", x, w, b, name="logits")
    made.output(made.step("cross_entropy", logits, target, name="loss"), logits)
    return made


def program_calls(client):
    with client.session() as session:
        session.put({"w": integers(5, 12), "b": integers(5)})
        session.load_program("net", program())
        inputs = {"x": integers(3, 12), "target": np.array([0, 4, 2])}
        yield "logits", session.run("net", inputs, fetched=["logits"]).values["logits"]
        run = session.run("net", inputs, tape="tape")
        back = session.backward("tape", {"loss": np.ones((), np.float32)},
                                input_gradients=["x"])
        yield "loss", run.values["loss"]
        yield "gradient of an input", back.values["x#gradient"]
        session.update(convgrad.Update("adamw", [convgrad.ParameterGroup(["w", "b"], 0.1)]))
        yield "updated", session.get("w")


def network_calls(client):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Flatten(), nn.Linear(36, 5))
    x, y = torch.from_numpy(X), torch.tensor([1, 4])
    for dtype in (torch.float32, torch.bfloat16):
        with convgrad.torch.remote(model, client, dtype=dtype) as net:
            sgd = convgrad.torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            losses = [net.train_step(x, y, optimizer=sgd) for _ in range(2)]
            for _ in range(2):
                sgd.zero_grad()
                nn.functional.cross_entropy(net(x), y).backward()
                sgd.step()
            yield f"losses in {dtype}", np.array(losses)
            for name, tensor in net.state_dict().items():
                yield f"{name} in {dtype}", tensor.numpy()
            yield f"at inference in {dtype}", net.eval()(x).detach().numpy()


def errors(client):
    """Yields the fields of errors, on which programs rely, without the texts."""
    def said(call, *args, **keywords):
        try:
            call(*args, **keywords)
        except convgrad.ConvgradError as error:
            return np.array([type(error).__name__, error.code.name, error.reason, error.field])
        raise AssertionError(f"no error of {call}")

    huge = np.zeros((1, 1024, 300, 300), np.float32)
    yield "too much work", said(
        client.conv_forward, huge, np.zeros((1024, 1024, 11, 11), np.float32))
    session = client.session()
    yield "no such tensor", said(session.get, "none")
    session.put({"w": integers(5, 12), "b": integers(5)})
    session.load_program("net", program())
    yield "a wrong shape", said(session.run, "net", {
        "x": integers(3, 11), "target": np.zeros(3, np.int64)})
    yield "another program", said(session.load_program, "net", convgrad.Program())
    (listed,) = [one for one in client.sessions() if one.tensors == 2]
    client.close_session(listed.handle)
    yield "no session", said(session.put, "w", W)
    yield "nor again", said(client.session, resume=session.id)


def calls(address):
    """Returns the results of all calls, by name."""
    with convgrad.Client(address, timeout=60) as client:
        return {name: bits(np.asarray(array))
                for group in (single_calls, session_calls, program_calls, network_calls, errors)
                for name, array in group(client)}


if __name__ == "__main__":
    print(pathlib.Path(convgrad.__file__).parent.parent)
    np.savez(sys.argv[2], **calls(sys.argv[1]))
