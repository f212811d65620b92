"""Tests cross_entropy on the server against PyTorch: of probabilities, as mixup makes them, and
with weights of classes."""

import copy

import pytest
import torch
import torch.nn.functional as F
from small_networks import images
from test_remote_import import import_
from test_remote_optim import X, assert_states, model_of
from torch import nn

import convgrad
from convgrad.torch import optim
from convgrad.torch.networks.importing import Loss

CLASSES = 5


def mixup(labels, share=0.3):
    """Returns the targets of timm's Mixup and torchvision's MixUp and CutMix."""
    one_hot = F.one_hot(labels, CLASSES).float()
    return share * one_hot + (1 - share) * one_hot.flip(0)


def soft_target_cross_entropy(x, target):
    """Returns what timm's SoftTargetCrossEntropy does."""
    return torch.sum(-target * F.log_softmax(x, dim=-1), dim=-1).mean()


@pytest.mark.parametrize("target", [
    mixup(torch.tensor([0, 4, 2, 2])), torch.rand(4, CLASSES, generator=torch.Generator())])
@pytest.mark.parametrize("keywords", [
    {}, {"label_smoothing": 0.1}, {"reduction": "sum"},
    {"reduction": "sum", "label_smoothing": 0.3, "ignore_index": -100}])
def test_a_loss_on_the_server(make_remote, target, keywords):
    model = model_of()
    net = make_remote(model)
    found = net.forward_backward(X, target, **keywords)
    expected = nn.CrossEntropyLoss(**keywords)(model(X), target)
    expected.backward()
    assert found == pytest.approx(expected.item(), 1e-5)
    assert_states(net.gradients(), {n: p.grad for n, p in model.named_parameters()})


def test_losses_of_trainers(make_remote):
    """The trainer's own loss gives the gradients of the server's."""
    model, target = model_of(), mixup(torch.tensor([1, 3, 0, 2]))
    net, other = make_remote(model), make_remote(copy.deepcopy(model))
    nn.CrossEntropyLoss(label_smoothing=0.1)(net(X), target).backward()
    other.forward_backward(X, target, label_smoothing=0.1)
    assert_states(other.gradients(), net.gradients())
    net.zero_grad()
    other.zero_grad()
    loss = soft_target_cross_entropy(net(X), target)
    loss.backward()
    assert other.forward_backward(X, target) == pytest.approx(loss.item(), 1e-5)
    assert_states(other.gradients(), net.gradients())


def test_of_images(make_remote):
    """Each position of a segmentation has probabilities."""
    torch.manual_seed(2)
    model, x = nn.Conv2d(3, 19, 3), images(2, 3, 6, 7)
    net, target = make_remote(model), torch.rand(2, 19, 4, 5).softmax(1)
    found = net.forward_backward(x, target, label_smoothing=0.2)
    expected = F.cross_entropy(model(x), target, label_smoothing=0.2)
    expected.backward()
    assert found == pytest.approx(expected.item(), 1e-5)
    assert_states(net.gradients(), {n: p.grad for n, p in model.named_parameters()})


def test_a_batch_in_parts_and_steps(make_remote):
    model, target = model_of(), mixup(torch.tensor([0, 4, 2, 2]))
    net, parts = make_remote(model), make_remote(copy.deepcopy(model))
    loss = net.forward_backward(X, target)
    losses = [parts.forward_backward(x, y, denominator=4)
              for x, y in zip(X.chunk(2), target.chunk(2))]
    assert sum(losses) == pytest.approx(loss, 1e-5)
    assert_states(parts.gradients(), net.gradients())
    net.zero_grad()
    ours = optim.AdamW(net.parameters(), lr=0.01)
    theirs = torch.optim.AdamW(model.parameters(), lr=0.01)
    for labels in (target, torch.tensor([0, 4, 2, 2]), target):  # two programs in turn
        net.train_step(X, labels, optimizer=ours)
        theirs.zero_grad()
        F.cross_entropy(model(X), labels).backward()
        theirs.step()
    assert_states(net.state_dict(), model.state_dict())


@pytest.mark.parametrize("target", [torch.tensor([0, 4, 2, 2], dtype=torch.int32),
                                    torch.tensor([0, 4, 2, 2], dtype=torch.uint8),
                                    mixup(torch.tensor([0, 4, 2, 2]))])
def test_weights_of_classes(make_remote, target):
    model, weight = model_of(), torch.tensor([1.0, 0.5, 3.0, 0.0, 2.0])
    net = make_remote(model)
    for own in (weight, [2.0, 1.0, 0.25, 1.5, 1.0], (3, 1, 2, 0, 1), None):
        net.zero_grad()
        model.zero_grad()
        found = net.forward_backward(X, target, weight=own, label_smoothing=0.1)
        indices = target if torch.is_floating_point(target) else target.long()
        expected = F.cross_entropy(model(X), indices, None if own is None else torch.tensor(
            list(own), dtype=torch.float32), label_smoothing=0.1)
        expected.backward()
        assert found == pytest.approx(expected.item(), 1e-5)
        assert_states(net.gradients(), {n: p.grad for n, p in model.named_parameters()})


def test_in_bf16(make_remote):
    model, target = model_of(), mixup(torch.tensor([0, 4, 2, 2]))
    net = make_remote(model, dtype=torch.bfloat16)
    found = net.forward_backward(X, target)
    assert found == pytest.approx(F.cross_entropy(model(X), target).item(), 2e-2)


def test_what_is_refused(make_remote):
    net, target = make_remote(model_of()), torch.rand(4, CLASSES)
    with pytest.raises(convgrad.InvalidArgument, match=r"\.ignore_index: found 2"):
        net.forward_backward(X, target, ignore_index=2)
    with pytest.raises(convgrad.InvalidArgument,
                       match=r"\.target: found \[4,4\], expected \[4,5\].*for probabilities"):
        net.forward_backward(X, target[:, :4])
    with pytest.raises(convgrad.InvalidArgument, match="target"):
        net.forward_backward(X, target.double())
    with pytest.raises(convgrad.InvalidArgument, match="target: found torch.float32 of .*clas"):
        net.forward_backward(X, torch.tensor([0.0, 4, 2, 2]))
    with pytest.raises(convgrad.InvalidArgument, match=r"weight: found \[2\].*per channel"):
        net.forward_backward(X, target, weight=torch.ones(2))
    for weight in (2.0, "abc", [1, 2, 3, 4, float("nan")], torch.ones(5) * 1j):
        with pytest.raises(convgrad.InvalidArgument, match="weight: .*finite number for each"):
            net.forward_backward(X, target, weight=weight)
    for name, value, words in (("pos_weight", torch.ones(5), "expected a number"),
                               ("pos_weight", target[0].numpy(), "expected a number"),
                               ("weight", 2.0, "expected one of cross_entropy")):
        with pytest.raises(convgrad.InvalidArgument, match=f"{name}: .*{words}"):
            net.forward_backward(X, target, loss="binary_cross_entropy_with_logits",
                                 **{name: value})
    for dtype in (torch.bool, torch.complex64):
        with pytest.raises(convgrad.InvalidArgument, match="target: .*expected class indices"):
            net.forward_backward(X, torch.ones(4).to(dtype))


def test_the_target_is_a_value():
    imported = import_(nn.Sequential(nn.Linear(4, 2)), ("input",), loss=Loss("cross_entropy"))
    assert not imported.program.message.inputs[1].is_index
