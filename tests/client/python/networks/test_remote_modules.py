"""Tests a remote network as an nn.Module: alone, and as a part of other modules."""

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
