"""convgrad.torch.optim beside torch.optim, and steps with the loss on the server."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from cutting_proxy import CuttingProxy
from small_networks import OfIntegers, images, integers, make
from torch import nn

import convgrad
from convgrad.torch import optim


def model_of(seed=0):
    """Returns a network whose gradients two libraries agree on to a few bits."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(64, 5))


X = images(4, 3, 6, 6)
Y = torch.tensor([0, 4, 2, 2])


def step(net, optimizer, x=X, y=Y):
    optimizer.zero_grad()
    F.cross_entropy(net(x), y).backward()
    optimizer.step()


def assert_states(found, expected, rtol=2e-5, atol=2e-6):
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=rtol, atol=atol, msg=name)


@pytest.mark.parametrize("kind, settings", [
    ("SGD", dict(lr=0.1)), ("SGD", dict(lr=0.1, momentum=0.9)),
    ("SGD", dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
    ("SGD", dict(lr=0.1, momentum=0.8, dampening=0.3, maximize=True)),
    ("Adam", dict(lr=0.01)), ("Adam", dict(lr=0.02, betas=(0.8, 0.9), eps=1e-4)),
    ("Adam", dict(lr=0.01, betas=(0.0, 0.99))),
    ("Adam", dict(lr=0.01, weight_decay=0.1, maximize=True)), ("AdamW", dict(lr=0.01)),
    ("AdamW", dict(lr=0.01, weight_decay=0.2, betas=(0.5, 0.99))), ("RMSprop", dict(lr=0.01)),
    # A large eps, because a tiny one lets roundings of tiny gradients grow with their step.
    ("RMSprop", dict(lr=0.01, alpha=0.9, eps=1e-3, momentum=0.9, weight_decay=0.1)),
    ("RMSprop", dict(lr=0.01, alpha=0.3, centered=True, momentum=0.5, maximize=True))])
def test_steps_agree_with_torch(make_remote, kind, settings):
    model = model_of()
    net = make_remote(model)
    ours = getattr(optim, kind)(net.parameters(), **settings)
    theirs = getattr(torch.optim, kind)(model.parameters(), **settings)
    for _ in range(4):
        step(net, ours)
        step(model, theirs)
    assert_states(net.state_dict(), model.state_dict())
    state, expected = ours.state_dict(), theirs.state_dict()
    for i, entries in expected["state"].items():
        for name, tensor in entries.items():
            if tensor is not None:
                torch.testing.assert_close(state["state"][i][name], torch.as_tensor(
                    tensor, dtype=torch.float32), rtol=2e-5, atol=2e-6)
    assert state["param_groups"][0]["params"] == [0, 1, 2, 3]
    # Both optimizers can load either's state.
    again = make_remote(model)
    resumed = getattr(optim, kind)(again.parameters(), lr=7.0)
    resumed.load_state_dict(expected)
    theirs.load_state_dict(expected | {"state": expected["state"]})
    step(again, resumed)
    step(model, theirs)
    step(net, ours)
    assert_states(again.state_dict(), model.state_dict())
    assert_states(net.state_dict(), model.state_dict())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_state_of_another_dtype(make_remote, dtype):
    """torch casts a loaded state to the dtype of the parameters."""
    model = model_of()
    other = copy.deepcopy(model).to(dtype)
    saved = torch.optim.Adam(other.parameters(), lr=0.01)
    for parameter in other.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    saved.step()
    net = make_remote(model)
    ours, theirs = optim.Adam(net.parameters()), torch.optim.Adam(model.parameters())
    for one, optimizer in ((net, ours), (model, theirs)):
        optimizer.load_state_dict(saved.state_dict())
        step(one, optimizer)
    assert_states(net.state_dict(), model.state_dict())


def test_groups_and_schedulers(make_remote):
    model = model_of()
    net = make_remote(model)
    optimizers = []
    for one, library in ((net, optim), (model, torch.optim)):
        parameters = list(one.parameters())
        optimizers.append(library.SGD([
            {"params": parameters[:2], "lr": 0.2}, {"params": parameters[2:3]}], lr=0.05,
            momentum=0.9))
        optimizers[-1].add_param_group({"params": parameters[3], "weight_decay": 0.1})
    schedulers = [[torch.optim.lr_scheduler.StepLR(one, 2, 0.5),
                   torch.optim.lr_scheduler.LambdaLR(one, lambda epoch: 1 / (1 + epoch))]
                  for one in optimizers]
    for _ in range(4):
        for one, optimizer, both in zip((net, model), optimizers, schedulers):
            step(one, optimizer)
            for scheduler in both:
                scheduler.step()
    assert [g["lr"] for g in optimizers[0].param_groups] == [
        g["lr"] for g in optimizers[1].param_groups]
    assert_states(net.state_dict(), model.state_dict())


def test_a_scheduler_beside_whole_steps(make_remote):
    net = make_remote(model_of())
    optimizer = optim.SGD(net.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.train_step(X, Y, optimizer=optimizer)
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_clipping_and_scaling(make_remote):
    model = model_of()
    net = make_remote(model)
    ours = optim.SGD(net.parameters(), lr=0.5, clip_grad_norm=0.1, gradient_scale=0.5)
    theirs = torch.optim.SGD(model.parameters(), lr=0.5)
    F.cross_entropy(net(X), Y).backward()
    (F.cross_entropy(model(X), Y) * 0.5).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    theirs.step()
    updated = ours.submit_step().result()
    assert not updated.skipped and updated.gradient_norm == pytest.approx(norm.item(), 1e-5)
    assert_states(net.state_dict(), model.state_dict())


def test_clipping_by_a_call(make_remote):
    model = model_of()
    net = make_remote(model)
    ours = optim.SGD(net.parameters(), lr=0.5)
    theirs = torch.optim.SGD(model.parameters(), lr=0.5)
    for clips in (True, False):
        ours.zero_grad()
        F.cross_entropy(net(X), Y).backward()
        theirs.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        if clips:
            net.clip_grad_norm_(0.1)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        ours.step()
        theirs.step()
        assert_states(net.state_dict(), model.state_dict())
    # Clipping affects neither gradients that are dropped nor later ones.
    F.cross_entropy(net(X), Y).backward()
    net.clip_grad_norm_(0.1)
    step(net, ours)
    step(model, theirs)
    assert_states(net.state_dict(), model.state_dict())
    net.clip_grad_norm_(0.1)
    for backward in (lambda: F.cross_entropy(net(X), Y).backward(),
                     lambda: net.forward_backward(X, Y)):
        with pytest.raises(convgrad.Unimplemented, match="a backward between it and the step"):
            backward()
    with pytest.raises(convgrad.Unimplemented, match="a step without '0.weight'"):
        optim.SGD(list(net.parameters())[1:], lr=0.5).step()


def test_zeros_for_gradients(make_remote):
    """Momentum and weight decay continue with gradients of zeros, as they don't without any."""
    model = model_of()
    net = make_remote(model)
    settings = dict(lr=0.1, momentum=0.9, weight_decay=0.1, foreach=False)
    ours = optim.SGD(net.parameters(), fused=None, **settings)
    theirs = torch.optim.SGD(model.parameters(), **settings)
    for one, optimizer in ((net, ours), (model, theirs)):
        step(one, optimizer)
        optimizer.zero_grad(set_to_none=False)
        optimizer.step()
    assert_states(net.state_dict(), model.state_dict())


def test_steps_that_are_skipped(make_remote):
    net = make_remote(model_of())
    optimizer = optim.Adam(net.parameters(), skip_nonfinite=True)
    before = net.state_dict()
    (net(X).sum() * float("inf")).backward()
    assert optimizer.submit_step().result().skipped
    assert net.gradients() == {} and not optimizer.state_dict()["state"]
    assert_states(net.state_dict(), before, 0, 0)
    optimizer.zero_grad()
    step(net, optimizer)
    assert optimizer.state_dict()["state"][0]["step"] == 1


def test_gradients_stay_until_zero_grad(make_remote):
    model, x = OfIntegers(), integers(3, 2, 6, 6, most=2)
    net = make_remote(model)
    pairs = [(net, optim.SGD(net.parameters(), lr=0.5)),
             (model, torch.optim.SGD(model.parameters(), lr=0.5))]
    for one, optimizer in pairs:
        one(x).sum().backward()
        optimizer.step()
        optimizer.step()
    assert_states(net.state_dict(), model.state_dict(), 0, 0)
    assert net.gradients().keys() == dict(net.named_parameters()).keys()
    for _, optimizer in pairs:
        optimizer.zero_grad()
        optimizer.step()  # nothing has a gradient
    assert_states(net.state_dict(), model.state_dict(), 0, 0)


def test_a_closure(make_remote):
    net = make_remote(model_of())
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X), Y)
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert closure() < first


@pytest.mark.parametrize("keywords", [{}, {"label_smoothing": 0.1}, {"reduction": "sum"},
                                      {"ignore_index": 2}])
def test_a_loss_on_the_server(make_remote, keywords):
    model = model_of()
    net = make_remote(model)
    found = net.forward_backward(X, Y, **keywords)
    expected = F.cross_entropy(model(X), Y, **keywords)
    expected.backward()
    assert found == pytest.approx(expected.item(), 1e-5)
    assert_states(net.gradients(), {n: p.grad for n, p in model.named_parameters()})


def test_a_mean_squared_error(make_remote):
    model, x, y = OfIntegers(), integers(3, 2, 6, 6, most=2), integers(3, 4)
    net = make_remote(model)
    loss = F.mse_loss(model(x), y, reduction="sum")
    loss.backward()
    assert net.forward_backward(x, y, loss="mse", reduction="sum") == loss.item()
    assert_states(net.gradients(), {n: p.grad for n, p in model.named_parameters()}, 0, 0)


@pytest.mark.parametrize("loss, keywords, function", [
    ("l1", {}, F.l1_loss), ("smooth_l1", {"beta": 0.3}, F.smooth_l1_loss),
    ("binary_cross_entropy_with_logits", {}, F.binary_cross_entropy_with_logits),
    ("binary_cross_entropy_with_logits", {"pos_weight": 3.0, "reduction": "sum"},
     F.binary_cross_entropy_with_logits)])
def test_losses_of_elements(make_remote, loss, keywords, function):
    model = model_of()
    net, y = make_remote(model), torch.rand(4, 5)
    found = net.forward_backward(X, y, loss=loss, **keywords)
    expected = function(model(X), y, **{
        key: torch.tensor(value) if key == "pos_weight" else value
        for key, value in keywords.items()})
    expected.backward()
    assert found == pytest.approx(expected.item(), 1e-5)
    assert_states(net.gradients(), {n: p.grad for n, p in model.named_parameters()})


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
@pytest.mark.parametrize("is_exact", [True, False])
def test_a_batch_in_parts(make_remote, parts, is_exact):
    """The update is that of the whole batch, bit for bit if all sums are exact."""
    if is_exact:
        model, x, y = OfIntegers(), integers(8, 2, 6, 6, most=2), integers(8, 4)
    else:
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                              nn.Linear(8 * 49, 5))
        x, y = images(8, 3, 16, 16), torch.randn(8, 5)
    whole, split = make_remote(model), make_remote(model)
    loss = whole.forward_backward(x, y, loss="mse")
    losses = [split.submit_forward_backward(a, b, loss="mse", denominator=y.numel())
              for a, b in zip(x.chunk(parts), y.chunk(parts))]
    assert sum(one.result() for one in losses) == pytest.approx(loss, 1e-6)
    tolerances = (0, 0) if is_exact else (1e-4, 1e-6)
    assert_states(split.gradients(), whole.gradients(), *tolerances)
    for net in (whole, split):
        optim.SGD(net.parameters(), lr=0.5).step()
    assert_states(split.state_dict(), whole.state_dict(), *tolerances)


@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW])
def test_a_whole_step_in_one_call(make_remote, kind):
    whole, parts = make_remote(make("Mobile")), make_remote(make("Mobile"))
    in_one, in_three = kind(whole.parameters(), lr=0.01), kind(parts.parameters(), lr=0.01)
    futures = []
    for i in range(4):
        x, y = images(seed=i), torch.tensor([0, 1, 2, 3])
        loss = parts.forward_backward(x, y)
        in_three.step()
        in_three.zero_grad()
        futures.append((whole.submit_train_step(x, y, optimizer=in_one), loss))
    assert [found.result() for found, _ in futures] == [loss for _, loss in futures]
    assert_states(whole.state_dict(), parts.state_dict(), 0, 0)
    assert not whole.gradients()
    assert whole.train_step(x, y, optimizer=in_one) == parts.forward_backward(x, y)


def test_training_without_waiting(make_remote):
    model = make("ResNet")
    net = make_remote(model)
    ours = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    theirs = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = images(), torch.tensor([0, 1, 2, 3])
    futures = []
    for _ in range(10):
        ours.zero_grad()
        futures.append(net.submit_forward_backward(x, y))
        ours.step()
    expected = []
    for _ in range(10):
        theirs.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        theirs.step()
        expected.append(loss.item())
    found = [future.result() for future in futures]
    assert found == pytest.approx(expected, rel=0.02) and found[-1] < found[0] / 2
    assert net.session.number >= 30


def test_final_weights_are_the_same_bits_in_two_runs(make_remote):
    states = []
    for _ in range(2):
        net = make_remote(copy.deepcopy(make("Mobile")))
        optimizer = optim.AdamW(net.parameters(), lr=0.01)
        for i in range(5):
            step(net, optimizer, images(seed=i), torch.tensor([0, 1, 2, 3]))
        states.append(net.state_dict())
    assert_states(states[0], states[1], 0, 0)


def trained(client, steps=20):
    """Returns the weights and losses of steps that are sent without waiting."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
                          nn.Dropout(0.2), nn.Flatten(), nn.Linear(144, 5))
    with convgrad.torch.remote(model, client) as net:
        optimizer = optim.Adam(net.parameters(), lr=0.01)
        losses = []
        for i in range(steps):
            losses.append(net.submit_forward_backward(images(4, 3, 6, 6, seed=i), Y))
            optimizer.step()
            optimizer.zero_grad()
            if i % 5 == 0:
                net(X)  # trains statistics, and waits
        return net.state_dict(), [loss.result() for loss in losses]


def test_connections_that_are_cut_change_no_bit(server, client):
    expected = trained(client)
    proxy = CuttingProxy(server.address, cuts=30, mean_bytes=4_000)
    retry = convgrad.RetryPolicy(max_attempts=10_000, max_seconds=0.05)
    with convgrad.Client(proxy.address, retry=retry) as cut:
        found = trained(cut)
    assert proxy.cuts == 30
    assert_states(found[0], expected[0], 0, 0)
    assert found[1] == expected[1]
    proxy.close()


def test_what_is_refused(make_remote):
    net, other = make_remote(model_of()), make_remote(model_of())
    handles = list(net.parameters())
    for params, words in (
            (model_of().parameters(), "params: found Parameter"),
            ([handles[0], handles[0]], "'0.weight' twice"),
            ([handles[0], *other.parameters()], "parameters of two networks")):
        with pytest.raises(convgrad.InvalidArgument, match=words):
            optim.SGD(params, lr=0.1)
    optimizer = optim.Adam(handles)
    with pytest.raises(convgrad.Unimplemented, match="differentiable"):
        optim.SGD(handles, differentiable=True)
    with pytest.raises(convgrad.Unimplemented, match="amsgrad"):
        optim.Adam(handles, amsgrad=True)
    with pytest.raises(convgrad.Unimplemented, match="norm_type"):
        net.clip_grad_norm_(1.0, 1.0)
    with pytest.raises(convgrad.InvalidArgument, match="max_norm: found 0"):
        net.clip_grad_norm_(0)
    optimizer = optim.Adam(handles)
    with pytest.raises(convgrad.InvalidArgument, match=r"groups of \[1\] parameters"):
        optimizer.load_state_dict({"state": {}, "param_groups": [{"params": [0]}]})
    with pytest.raises(convgrad.InvalidArgument, match="loss: found hinge"):
        net.forward_backward(X, Y, loss="hinge")
    with pytest.raises(TypeError):
        net.forward_backward(Y)
