"""Tests optimizer states on the server: their owner, when they start again, hooks, refusals."""

import collections
import copy

import pytest
import torch
from test_remote_optim import X, Y, assert_states, model_of, step

import convgrad
from convgrad.torch import optim, remote


def pairs(make_remote):
    model = model_of()
    return (make_remote(model), optim), (model, torch.optim)


def test_a_model_with_more_tensors_than_a_message_has_payloads(make_remote):
    model = model_of()
    model.others = torch.nn.ParameterList(torch.full((2,), float(i)) for i in range(1025))
    net = make_remote(model)
    state = {name: value + 1 for name, value in net.state_dict().items()}
    net.load_state_dict(state)
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=0)


@pytest.mark.parametrize("first, second", [
    ("SGD", "SGD"), ("Adam", "Adam"), ("Adam", "AdamW"), ("SGD", "AdamW")])
def test_a_new_optimizer_begins_anew(make_remote, first, second):
    ours, theirs = pairs(make_remote)
    for net, library in (ours, theirs):
        for kind in (first, second, first):
            settings = dict(lr=0.1, momentum=0.9) if kind == "SGD" else dict(lr=0.01)
            optimizer = getattr(library, kind)(net.parameters(), **settings)
            assert not optimizer.state_dict()["state"]
            for _ in range(3):
                step(net, optimizer)
    assert_states(ours[0].state_dict(), theirs[0].state_dict(), 1e-4, 1e-5)


def test_an_optimizer_that_was_superseded(make_remote):
    net = make_remote(model_of())
    handles = list(net.parameters())
    old, other = optim.SGD(handles[:2], momentum=0.9), optim.SGD(handles[2:], momentum=0.9)
    new = optim.SGD(handles[1:2])
    step(net, new)
    step(net, other)
    for use in (old.step, old.state_dict, old.submit_step,
                lambda: old.load_state_dict(new.state_dict()),
                lambda: net.train_step(X, Y, optimizer=old)):
        with pytest.raises(convgrad.FailedPrecondition,
                           match=r"a later optimizer for '0\.bias'"):
            use()
    step(net, new)


@pytest.mark.parametrize("kind, settings", [
    ("SGD", dict(lr=0.1, momentum=0.9)), ("Adam", dict(lr=0.01))])
def test_a_resumed_training_goes_on_with_the_states(client, kind, settings):
    torch.manual_seed(0)
    model = model_of()
    theirs = getattr(torch.optim, kind)(model.parameters(), **settings)
    with client.session(keep_open=True) as session:
        net = remote(model, session)
        optimizer = getattr(optim, kind)(net.parameters(), **settings)
        for _ in range(3):
            step(net, optimizer)
            step(model, theirs)
        net.wait()
    with client.session(resume=session.id) as session:
        net = remote(model_of(seed=5), session, put=False)
        optimizer = getattr(optim, kind)(net.parameters(), resume=True, **settings)
        for _ in range(3):
            step(net, optimizer)
            step(model, theirs)
        assert_states(net.state_dict(), model.state_dict(), 1e-4, 1e-5)
        anew = getattr(optim, kind)(net.parameters(), **settings)
        assert not anew.state_dict()["state"]


def test_a_state_that_is_loaded_is_all_there_is(make_remote):
    """Loads states from before the first step, as learning rate finders do."""
    ours, theirs = pairs(make_remote)
    for net, library in (ours, theirs):
        optimizer = library.Adam([{"params": [p]} for p in net.parameters()], lr=0.05)
        fresh = copy.deepcopy(optimizer.state_dict())
        weights = copy.deepcopy(net.state_dict())
        for _ in range(3):
            step(net, optimizer)
        optimizer.load_state_dict(fresh)
        net.load_state_dict(weights)
        assert not optimizer.state_dict()["state"]
        for _ in range(2):
            step(net, optimizer)
        part = optimizer.state_dict()
        del part["state"][1]
        optimizer.load_state_dict(part)
        assert set(optimizer.state_dict()["state"]) == {0, 2, 3}
        step(net, optimizer)
    assert_states(ours[0].state_dict(), theirs[0].state_dict(), 1e-4, 1e-5)


@pytest.mark.parametrize("beta", [0.0, 0.25])
def test_a_mean_far_larger_than_the_next_gradient(make_remote, beta):
    """A small gradient isn't lost in a difference of large numbers."""
    found = []
    for net, library in pairs(make_remote):
        optimizer = library.Adam(net.parameters(), lr=0.05, betas=(beta, 0.9))
        step(net, optimizer)
        state = optimizer.state_dict()
        for entries in state["state"].values():
            entries["exp_avg"].fill_(2**20 if beta == 0 else 1)
        optimizer.load_state_dict(state)
        step(net, optimizer)
        found.append([entries["exp_avg"]
                      for entries in optimizer.state_dict()["state"].values()])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


def test_a_group_that_is_added_begins_anew(make_remote):
    ours, theirs = pairs(make_remote)
    for net, library in (ours, theirs):
        parameters = list(net.parameters())
        step(net, library.SGD(parameters, lr=0.1, momentum=0.9))
        optimizer = library.SGD(parameters[:2], lr=0.1, momentum=0.9)
        step(net, optimizer)
        optimizer.add_param_group({"params": parameters[2:]})
        step(net, optimizer)
    assert_states(ours[0].state_dict(), theirs[0].state_dict(), 1e-4, 1e-5)


def test_groups_without_parameters(make_remote):
    ours, theirs = pairs(make_remote)
    for net, library in (ours, theirs):
        optimizer = library.SGD([{"params": []}, {"params": net.parameters(), "lr": 0.2}],
                                lr=0.1, momentum=0.9)
        optimizer.add_param_group({"params": []})
        for _ in range(2):
            step(net, optimizer)
        optimizer.load_state_dict(optimizer.state_dict())
        step(net, optimizer)
    assert_states(ours[0].state_dict(), theirs[0].state_dict(), 1e-4, 1e-5)
    net = make_remote(torch.nn.BatchNorm2d(2))
    optim.SGD([{"params": []}, {"params": net.parameters()}], lr=0.1, ema_decay=0.9)
    assert net.optimizers.keys() == {"weight", "bias", "running_mean", "running_var"}


@pytest.mark.parametrize("kind, settings, words", [
    ("SGD", dict(lr=-1), "lr: found -1"), ("SGD", dict(momentum=-0.1), "momentum: found -0.1"),
    ("SGD", dict(weight_decay=-1), "weight_decay"), ("SGD", dict(nesterov=True), "nesterov"),
    ("SGD", dict(nesterov=True, momentum=0.9, dampening=0.1), "nesterov"),
    ("Adam", dict(lr=-1), "lr: found -1"), ("Adam", dict(betas=(0.9, 1.0)), "betas: found 1.0"),
    ("AdamW", dict(betas=(-0.1, 0.9)), "betas: found -0.1"), ("AdamW", dict(eps=-1), "eps")])
def test_settings_that_torch_refuses(make_remote, kind, settings, words):
    net = make_remote(model_of())
    with pytest.raises(ValueError, match=words):
        getattr(optim, kind)(net.parameters(), **settings)
    with pytest.raises(ValueError):
        getattr(torch.optim, kind)(model_of().parameters(), **{"lr": 0.1} | settings)


def test_states_that_would_be_lost(make_remote):
    net, model = make_remote(model_of()), model_of()
    theirs = torch.optim.Adam(model.parameters(), lr=0.01, amsgrad=True)
    step(model, theirs)
    ours = optim.Adam(net.parameters(), lr=0.01)
    step(net, ours)
    before = ours.state_dict()
    state = theirs.state_dict()
    with pytest.raises(convgrad.Unimplemented, match="param_groups.amsgrad: found True"):
        ours.load_state_dict(state)
    state["param_groups"][0]["amsgrad"] = False
    with pytest.raises(convgrad.Unimplemented, match=r"state\[0\]: found max_exp_avg_sq"):
        ours.load_state_dict(state)
    decoupled = copy.deepcopy(before)
    decoupled["param_groups"][0]["decoupled_weight_decay"] = True
    with pytest.raises(convgrad.Unimplemented, match="decoupled_weight_decay: found True"):
        ours.load_state_dict(decoupled)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step(model, sgd)
    with pytest.raises(convgrad.Unimplemented, match=r"state\[0\]: found momentum_buffer"):
        ours.load_state_dict(sgd.state_dict())
    for i, entries in before["state"].items():
        for name, tensor in entries.items():
            assert torch.equal(ours.state_dict()["state"][i][name], tensor)
    ours.param_groups[0]["amsgrad"] = True
    with pytest.raises(convgrad.Unimplemented, match="param_groups.amsgrad"):
        ours.step()


def test_hooks_of_steps_and_states(make_remote):
    found = []
    for net, library in pairs(make_remote):
        optimizer = library.SGD(net.parameters(), lr=0.1, momentum=0.9)
        calls = []

        def pre(one, args, kwargs, calls=calls):
            calls.append("pre")
            one.param_groups[0]["lr"] *= 0.5

        def loading(one, state, calls=calls):
            calls.append("loading")
            return {**state, "param_groups": [{**state["param_groups"][0], "lr": 0.3}]}

        handles = [
            optimizer.register_step_pre_hook(pre),
            optimizer.register_step_post_hook(lambda *_, calls=calls: calls.append("post"))]
        optimizer.register_state_dict_pre_hook(lambda _, calls=calls: calls.append("saving"))
        optimizer.register_state_dict_post_hook(lambda _, state: {**state, "more": 1})
        optimizer.register_load_state_dict_pre_hook(loading)
        optimizer.register_load_state_dict_post_hook(
            lambda _, calls=calls: calls.append("loaded"))
        for _ in range(2):
            step(net, optimizer)
        state = optimizer.state_dict()
        assert state["more"] == 1 and state["param_groups"][0]["lr"] == 0.025
        optimizer.load_state_dict(state)
        assert state["param_groups"][0]["lr"] == 0.025
        assert optimizer.param_groups[0]["lr"] == 0.3
        step(net, optimizer)
        found.append((net, optimizer, calls, handles))
    (net, optimizer, calls, handles), (model, _, expected, _) = found
    assert calls == expected
    assert_states(net.state_dict(), model.state_dict(), 1e-4, 1e-5)
    before = net.state_dict()
    for handle in handles:
        for call in (optimizer.submit_step, lambda: net.train_step(X, Y, optimizer=optimizer)):
            with pytest.raises(convgrad.Unimplemented, match="hooks of its steps, expected s"):
                call()
        handle.remove()
    # PyTorch 1.13, which collects this test, doesn't have it.
    from torch.optim.optimizer import register_optimizer_step_pre_hook
    of_all = register_optimizer_step_pre_hook(lambda *_: None)
    with pytest.raises(convgrad.Unimplemented, match="hooks of its steps, expected s"):
        optimizer.submit_step()
    of_all.remove()
    assert calls == expected
    assert_states(net.state_dict(), before, 0, 0)
    net.train_step(X, Y, optimizer=optimizer)


@pytest.mark.parametrize("steps", ["train_step", "step"])
def test_a_module_that_is_replaced_just_before_a_step(make_remote, steps):
    """The step is that of the optimizer's own parameters, without the new ones."""
    ours, theirs = pairs(make_remote)
    for net, library in (ours, theirs):
        optimizer = library.SGD(net.parameters(), lr=0.1, momentum=0.9)
        step(net, optimizer)
        optimizer.zero_grad()
        torch.manual_seed(3)
        (net.model if library is optim else net)[3] = torch.nn.Linear(64, 5)
        if steps == "train_step" and library is optim:
            net.train_step(X, Y, optimizer=optimizer)
            net.zero_grad()
        else:
            step(net, optimizer)
            net.zero_grad()
    assert_states(ours[0].state_dict(), theirs[0].state_dict(), 1e-4, 1e-5)


@pytest.mark.parametrize("reset", [
    lambda one: setattr(one, "state", collections.defaultdict(dict)),
    lambda one: one.__setstate__({"state": collections.defaultdict(dict)})])
def test_a_state_that_is_set_to_nothing(make_remote, reset):
    ours, theirs = pairs(make_remote)
    for net, library in (ours, theirs):
        optimizer = library.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            step(net, optimizer)
            reset(optimizer)
            assert not optimizer.state_dict()["state"] and not optimizer.state
    assert_states(ours[0].state_dict(), theirs[0].state_dict(), 1e-4, 1e-5)


def test_what_an_optimizers_state_refuses(make_remote):
    optimizer = optim.Adam(make_remote(model_of()).parameters())
    with pytest.raises(convgrad.Unimplemented, match=r"optimizer\.state.*load_state_dict\(\)"):
        optimizer.state = {0: {"step": 1}}
    with pytest.raises(AttributeError, match="clear"):
        optimizer.state.clear()


def test_an_optimizer_of_another_network(make_remote):
    net, other = (make_remote(model_of()) for _ in range(2))
    with pytest.raises(convgrad.InvalidArgument, match="optimizer.*one of another network"):
        net.train_step(X, Y, optimizer=optim.SGD(other.parameters()))
