"""Tests hooks on tensors that autograd saves for a remote network, e.g. by
torch.utils.checkpoint."""

import copy

import pytest
import torch
import torch.nn.functional as F
from server_process import ServerProcess
from shared_steps import wait_until
from small_networks import OfIntegers, integers
from test_remote_graphs import assert_gradients, kept_bytes
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import convgrad
from convgrad.torch import remote

X = integers(3, 2, 6, 6, most=2)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint(make_remote, use_reentrant):
    model = OfIntegers()
    net, x = make_remote(model), X.clone().requires_grad_()
    inputs = []
    for one in (model, net):
        x.grad = None
        y = checkpoint(one, x, use_reentrant=use_reentrant)
        (y * y).sum().backward()
        y = checkpoint(lambda x, one=one: F.relu(one(x * 2)), x, use_reentrant=use_reentrant)
        y.sum().backward()
        inputs.append(x.grad)
    assert_gradients(net, model)
    torch.testing.assert_close(*inputs, rtol=0, atol=0)


def test_checkpoint_of_several_calls_and_of_statistics(make_remote):
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4))
    net = make_remote(model)
    both = lambda one: lambda x: one(x) + one(x + 1)  # noqa: E731
    for one in (model, net):
        checkpoint(both(one), X, use_reentrant=False).square().sum().backward()
    expected = {n: p.grad for n, p in model.named_parameters()}
    torch.testing.assert_close(net.gradients(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(net.state_dict(), model.state_dict())
    assert net.state_dict()["1.num_batches_tracked"] == 4


def test_a_checkpoints_tapes_go():
    server = ServerProcess()
    with convgrad.Client(server.address) as client, remote(OfIntegers(), client) as net:
        x = X.repeat(20, 1, 1, 1)  # so that its tape is larger than a kept reply
        y = net(x)
        with_tape = kept_bytes(client)
        del y
        wait_until(lambda: kept_bytes(client) < with_tape)
        y = checkpoint(net, x, use_reentrant=False)
        wait_until(lambda: kept_bytes(client) < with_tape)  # the forward will run again
        y.sum().backward()
        net.zero_grad()
        wait_until(lambda: kept_bytes(client) < with_tape)
    server.kill()


def test_a_forward_that_is_interrupted_leaves_no_tape(monkeypatch):
    """Ctrl-C raises KeyboardInterrupt in the forward's wait. A debugger keeps its traceback."""
    server = ServerProcess()
    with convgrad.Client(server.address) as client, remote(OfIntegers(), client) as net:
        x = X.repeat(20, 1, 1, 1)
        y = net(x)
        with_tape = kept_bytes(client)
        del y
        wait_until(lambda: kept_bytes(client) < with_tape)

        def interrupted(future):
            future.result()
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as kept:
            patch.setattr(net.pipeline, "result", interrupted)
            net(x)
        wait_until(lambda: kept_bytes(client) < with_tape)
        assert kept.tb is not None
        net(x).sum().backward()
    server.kill()


def test_a_checkpoint_of_modules_that_change(make_remote):
    net = make_remote(nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)))
    y = checkpoint(net, X, use_reentrant=False)
    net.eval()
    with pytest.raises(convgrad.Unimplemented, match="checkpoint: found modules that have"):
        y.sum().backward()


def test_hooks_that_keep_tensors(make_remote):
    model = OfIntegers()
    net = make_remote(model)
    keeping = [save_on_cpu(), saved_tensors_hooks(lambda x: x, lambda x: x),
               saved_tensors_hooks(lambda x: (x.detach().view_as(x),), lambda x: x[0])]
    for hooks in keeping:
        for one in (model, net):
            with hooks:
                loss = one(X).sum()
            loss.backward(retain_graph=True)
            loss.backward()
    assert_gradients(net, model)


@pytest.mark.parametrize("pack, unpack", [
    (torch.clone, lambda x: x), (lambda x: x.tolist(), torch.tensor),
    (lambda x: x.to(torch.float16), lambda x: x.long()), (lambda x: x.double(), lambda x: x),
    (copy.deepcopy, lambda x: x), (lambda x: None, lambda x: torch.ones(3))])
def test_hooks_that_copy_are_refused(make_remote, pack, unpack):
    net = make_remote(OfIntegers())
    with saved_tensors_hooks(pack, unpack):
        loss = net(X).sum()
    with pytest.raises(convgrad.Unimplemented, match="saved_tensors_hooks: found a copy"):
        loss.backward()
    assert net.gradients() == {}
    net(X).sum().backward()
    assert net.gradients()
