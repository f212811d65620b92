"""Tests a remote network as an nn.Module: alone, and as a part of other modules."""

import copy
import inspect
import types

import pytest
import torch
import torch.nn.functional as F
from small_networks import images
from test_remote_optim import assert_states
from torch import nn

import convgrad
from convgrad.torch import offload, optim

X, Y = images(4, 3, 6, 6), torch.tensor([0, 4, 2, 2])


class Backbone(nn.Module):
    rate = 3

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.inc = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.sigmoid(self.norm(self.inc(x))).flatten(1)


def head():
    torch.manual_seed(4)
    return nn.Linear(64, 5)


def test_the_tree_is_the_models(make_remote):
    model = Backbone().eval()
    net = make_remote(model)
    assert isinstance(net, nn.Module) and not net.training and net.rate == 3
    assert [name for name, _ in net.named_modules()] == ["", "inc", "norm"]
    assert list(net.modules())[0] is net
    assert [name for name, _ in net.named_children()] == ["inc", "norm"]
    assert [name for name, _ in net.named_buffers()] == [n for n, _ in model.named_buffers()]
    assert net.inc is net.model.inc and net.inc.weight.is_meta
    assert [n for n, _ in net.named_parameters("a")] == [
        f"a.{n}" for n, _ in model.named_parameters()]
    assert "(inc): Conv2d(3, 4" in repr(net)
    with pytest.raises(AttributeError, match="outc"):
        net.outc  # noqa: B018
    net.train()
    assert net.training and net.model.norm.training
    net.apply(lambda module: module.eval())
    assert not net.norm.training
    net.inc = nn.Conv2d(3, 4, 3)
    torch.testing.assert_close(net.state_dict()["inc.weight"].shape, model.inc.weight.shape)
    seen = []
    net.register_forward_hook(lambda module, given, result: seen.append(module))
    net(X)
    assert seen == [net]


def test_the_signature_is_the_models(make_remote):
    """transformers' Trainer gives a model the columns of a dataset that its forward takes."""
    net = make_remote(Backbone())
    assert list(inspect.signature(net.forward).parameters) == ["x"]
    torch.testing.assert_close(net.forward(x=X), Backbone()(X), rtol=1e-4, atol=1e-4)
    # Accelerate replaces a forward so, and puts it back.
    net.forward = types.MethodType(lambda self, x: type(self).forward(self, 2 * x), net)
    assert torch.equal(net(X), net.forward(X))
    del net.forward
    net.forward = types.MethodType(net.forward.__func__, net)
    assert list(inspect.signature(net.forward).parameters) == ["x"]
    net(X)


def test_modes_that_a_containing_module_restores(make_remote):
    """As Lightning does after a validation: it assigns the mode of each module that it sees."""
    net = make_remote(nn.Sequential(Backbone(), nn.BatchNorm2d(4)))
    whole = nn.ModuleList([net, nn.Linear(2, 2)])
    net.model[1].eval()
    modes = {name: module.training for name, module in whole.named_modules()}
    whole.eval()
    assert not any(module.training for module in net.modules())
    for name, module in whole.named_modules():
        module.training = modes[name]
    assert net.training and net.model[0].norm.training and not net.model[1].training
    net.eval()
    net.training = True
    assert net.model[0].norm.training and not net.model[1].training


class Versioned(nn.Linear):
    """Loads only states of its own format, as torchvision's MNASNet does."""

    _version = 2

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *others):
        if local_metadata.get("version") != 2:
            raise ValueError(f"no such version: {local_metadata}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)


def test_a_state_has_its_modules_versions(make_remote):
    net = make_remote(nn.Sequential(Versioned(3, 2)))
    F.mse_loss(net(torch.ones(1, 3)), torch.ones(1, 2)).backward()
    optim.SGD(net.parameters(), ema_decay=0.5).step()
    net.load_state_dict(net.state_dict())
    net.load_averaged_state_dict(net.averaged_state_dict())
    with pytest.raises(ValueError, match="no such version"):
        net.load_state_dict(dict(net.state_dict()))


class Legacy(nn.Module):
    """Saves and loads in ways of its own, and has hooks of a state."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.fc = nn.Linear(3, 2)
        self.tied = nn.Linear(3, 2)
        self.tied.weight = self.fc.weight
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("shift", torch.ones(2))
        self.register_buffer("table", torch.full((2,), 2.0), persistent=False)
        self.loads = 0
        self._register_load_state_dict_pre_hook(self._rename)
        self.norm.register_load_state_dict_post_hook(self._fill)
        self.register_state_dict_post_hook(
            lambda _, state, prefix, *__: state.update({prefix + "shift": state[
                prefix + "shift"] / 2}))

    def _rename(self, state, prefix, *_):
        for name in [name for name in state if name.startswith(prefix + "old.")]:
            state[name.replace("old.", "fc.")] = state.pop(name) * 10

    @staticmethod
    def _fill(norm, _):
        nn.init.constant_(norm.bias, norm.weight.detach().sum().item())

    def _load_from_state_dict(self, state, prefix, *others):
        if len(self.shift) != len(state.get(prefix + "shift", self.shift)):
            self.shift = torch.ones(1)
        if "norm.bias" in state:
            self.tied.bias = nn.Parameter(torch.full((2,), 7.0))
            state[prefix + "tied.bias"] = self.tied.bias
        self.shift.data.add_(state.pop(prefix + "shift", self.shift * 5))
        state[prefix + "shift"] = self.shift
        super()._load_from_state_dict(state, prefix, *others)

    def get_extra_state(self):
        return {"loads": self.loads}

    def set_extra_state(self, state):
        self.loads = state["loads"] + 1

    def forward(self, x):
        return self.norm(self.fc(x) + self.tied(x) * self.loads + self.shift) * self.table


def assert_legacy(net, model):
    found, expected = net.state_dict(), model.state_dict()
    assert found.pop("_extra_state") == expected.pop("_extra_state")
    assert_states(found, expected, 0, 0)
    net.eval(), model.eval()
    x = torch.arange(12.0).reshape(4, 3)
    torch.testing.assert_close(net(x), model(x))


def test_hooks_of_states(make_remote):
    model = Legacy()
    net = make_remote(model)
    optim.SGD(net.parameters())
    state = model.state_dict()
    ids = [id(p) for p in net.parameters()]
    renamed = {"old." + name[3:] if name.startswith("fc.") else name: value
               for name, value in state.items()}
    partial = {"norm.weight": torch.tensor([3.0, 4.0]), "norm.running_var": torch.ones(2)}
    other = {**state, "shift": torch.tensor([5.0])}
    for loaded, strict in ((state, True), (renamed, True), (partial, False), ({}, False),
                           (other, True), (partial, False)):
        results = [one.load_state_dict(copy.deepcopy(loaded), strict) for one in (net, model)]
        assert results[0] == results[1]
        assert_legacy(net, model)
    assert [id(p) for p in net.parameters()] == ids
    net.register_state_dict_post_hook(lambda _, state, *__: state.clear())
    assert not net.state_dict()
    net.register_load_state_dict_post_hook(lambda _, keys: keys.missing_keys.clear())
    net.load_state_dict(partial)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        net.load_state_dict({"norm.weight": torch.zeros(2), "more": torch.zeros(2)})
    assert net.gradients() == {} and net.norm.weight.is_meta
    with torch.inference_mode():
        net.load_state_dict({"norm.weight": torch.ones(2)})


def test_a_counter_that_a_state_lacks(make_remote):
    """States of old PyTorch have none, and no versions. The count goes on."""
    model = Backbone()
    net = make_remote(model)
    old = {n: t * 2 for n, t in model.state_dict().items() if "num" not in n}
    for one in (model, net):
        one(X)
        one.load_state_dict(old)
        one(X)
    assert net.state_dict()["norm.num_batches_tracked"] == 2
    assert_states(net.state_dict(), model.state_dict())


@pytest.mark.parametrize("use", [
    lambda own, x: own + x, lambda own, x: own.mul_(x), lambda own, x: own.fill_(x),
    lambda own, x: own.copy_(x), lambda own, x: torch.stack([own, x])])
@pytest.mark.parametrize("value", [nn.Parameter(torch.tensor(2.0)), torch.tensor(2.0)])
def test_arithmetic_with_what_is_on_the_server(make_remote, use, value):
    model = nn.ReLU()
    model.register_parameter("x", value) if isinstance(value, nn.Parameter) else (
        model.register_buffer("x", value))
    own = torch.ones(())
    with torch.no_grad(), pytest.raises(convgrad.Unimplemented, match=r"net\.state_dict\(\)"):
        use(own, make_remote(model).model.x)
    assert own == 1


def test_a_change_in_place_that_no_load_covers(make_remote):
    net = make_remote(Backbone())
    nn.init.zeros_(net.inc.weight)
    with pytest.raises(convgrad.Unimplemented, match=r"inc\.weight: found a change in place"):
        net.load_state_dict({"inc.bias": torch.ones(4)}, strict=False)
    net.load_state_dict({"inc.weight": torch.ones(4, 3, 3, 3)}, strict=False, assign=True)
    assert net.state_dict()["inc.weight"].sum() == 108
    assert list(net.state_dict(prefix="a."))[0] == "a.inc.weight"


def test_a_copy_into_the_models_own_state(make_remote):
    net = make_remote(Backbone())
    with torch.no_grad():
        net.model.state_dict()["inc.weight"].copy_(torch.ones(4, 3, 3, 3))
    with pytest.raises(convgrad.Unimplemented, match=r"inc\.weight: found a change in place"):
        net(X)


@pytest.mark.parametrize("values", [
    lambda model: model.state_dict(), lambda model: dict(model.named_parameters())])
def test_functional_call(make_remote, values):
    net = make_remote(Backbone())
    state, values = net.state_dict(), values(Backbone())
    with pytest.raises(convgrad.Unimplemented, match="functional_call: found other tensors"):
        torch.func.functional_call(net, values, X)
    assert_states(net.state_dict(), state, 0, 0)
    net(X)


def test_compile(make_remote):
    net = make_remote(Backbone())
    with pytest.raises(convgrad.Unimplemented, match="torch.compile: found a remote network"):
        net.compile()
    net(X)


def test_another_default_dtype(make_remote):
    net = make_remote(Backbone())
    torch.set_default_dtype(torch.float64)
    try:
        net(X).sum().backward()
    finally:
        torch.set_default_dtype(torch.float32)
    assert net.gradients()


def test_layers_before_and_behind_train_with_it(make_remote):
    model = nn.Sequential(nn.Conv2d(3, 3, 1), Backbone(), head())
    net = make_remote(model[1])
    mine = nn.Sequential(nn.Conv2d(3, 3, 1), net, head())
    mine[0].load_state_dict(model[0].state_dict())
    theirs = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    here = torch.optim.SGD([*mine[0].parameters(), *mine[2].parameters()], 0.1, momentum=0.9)
    there = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        for whole, optimizers in ((model, [theirs]), (mine, [here, there])):
            for optimizer in optimizers:
                optimizer.zero_grad()
            F.cross_entropy(whole(X), Y).backward()
            for optimizer in optimizers:
                optimizer.step()
    assert_states(mine.state_dict(), model.state_dict(), 1e-4, 1e-5)
    model.eval()
    mine.eval()
    torch.testing.assert_close(mine(X), model(X), rtol=1e-4, atol=1e-5)


def test_a_whole_is_saved_and_loaded(make_remote):
    model = nn.Sequential(Backbone(), head())
    mine = nn.Sequential(make_remote(Backbone()), head())
    state = {name: tensor * 2 for name, tensor in model.state_dict().items()}
    assert not mine.load_state_dict(state)[0]
    assert_states(mine.state_dict(), state, 0, 0)
    del state["0.inc.bias"]
    with pytest.raises(RuntimeError, match=r'Missing key.*"0\.inc\.bias"'):
        mine.load_state_dict(state)
    state["0.inc.bias"] = torch.zeros(5)
    with pytest.raises(RuntimeError, match=r"inc\.bias"):
        mine.load_state_dict(state)
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"0\.more"'):
        mine.load_state_dict({**mine.state_dict(), "0.more": torch.zeros(1)})


def test_what_changes_nothing_and_what_would(make_remote, client):
    net = make_remote(Backbone())
    whole = nn.Sequential(net, head())
    for same in (net.to("cpu"), net.float(), net.cpu(), whole.to("cpu")[0],
                 net.to(memory_format=torch.channels_last)):
        assert same is net
    for change in (net.half, net.double, whole.bfloat16, lambda: net.to("meta")):
        with pytest.raises(convgrad.Unimplemented, match="network: found a change from torch"):
            change()
    with pytest.raises((TypeError, convgrad.ConvgradError), match="RemoteParameter"):
        torch.optim.SGD(whole.parameters(), lr=0.1)
    with pytest.raises(convgrad.InvalidArgument, match="found Parameter"):
        optim.SGD(whole.parameters(), lr=0.1)
    with pytest.raises(convgrad.Unimplemented, match=r"0 \(RemoteNetwork\): found a network"):
        make_remote(whole)
    assert offload(whole, client).taken == ()
    with pytest.raises(convgrad.InvalidArgument, match="model: found a network"):
        offload(net, client)
    # A function that writes to tensors without values raises an error.
    with pytest.raises(convgrad.Unimplemented, match=r"inc\.weight|inc"):
        net.apply(lambda m: nn.init.ones_(m.weight) if isinstance(m, nn.Conv2d) else None)
        net(X)


def capturing(module, _, output):
    """As the hooks by which transformers collects hidden states."""
    if module.into is not None:
        module.into.append(output)


class Collecting(Backbone):
    """Registers its hook in its first call, as transformers' models do."""

    def __init__(self):
        super().__init__()
        self.inc.into = None

    def forward(self, x):
        if not getattr(self, "_output_capturing_hooks_installed", False):
            self.inc.register_forward_hook(capturing)
            self._output_capturing_hooks_installed = True
        self.inc.into = collected = []
        y = super().forward(x)
        self.inc.into = None
        return {"last": y, "hidden": tuple(collected)}


@pytest.mark.parametrize("is_called", [False, True])
def test_hooks_that_collect_hidden_states(make_remote, monkeypatch, is_called):
    monkeypatch.setattr(capturing, "__module__", "transformers.utils.output_capturing")
    model = Collecting()
    if is_called:
        model.eval()(X)
        model.train()
    net = make_remote(model)
    for _ in range(2):
        found, expected = net(X), model(X)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        for result in (found, expected):
            (result["hidden"][0].square().mean() + result["last"].mean()).backward()
    assert len(found["hidden"]) == 1
    assert_states(net.gradients(), {n: p.grad for n, p in model.named_parameters()})
    monkeypatch.setattr(capturing, "__module__", "another")
    with pytest.raises(convgrad.Unimplemented, match="hook"):
        make_remote(Collecting())(X)
