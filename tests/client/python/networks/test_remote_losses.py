"""Tests losses on the server against PyTorch: cross_entropy of probabilities, as mixup makes
them, and with weights of classes, and losses that a forward returns."""

import argparse
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
from convgrad.torch.networks.settings import changed_part, frozen

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


def test_names_that_the_program_has(make_remote):
    """The model's own names don't meet those of target and loss."""
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.loss = nn.Linear(4, 2)

        def forward(self, target, label):
            return self.loss(target) + label

    model = Named()
    x, other, target = torch.randn(3, 4), torch.randn(3, 2), torch.randn(3, 2)
    found = make_remote(copy.deepcopy(model)).forward_backward(x, other, target, loss="mse")
    assert found == pytest.approx(F.mse_loss(model(x, other), target).item(), rel=1e-5)


def test_the_target_is_a_value():
    imported = import_(nn.Sequential(nn.Linear(4, 2)), ("input",), loss=Loss("cross_entropy"))
    assert not imported.program.message.inputs[1].is_index


class WithLoss(nn.Module):
    """Computes its loss if it is given labels, as models of transformers do."""

    def __init__(self, loss=None):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4, CLASSES)
        self.register_buffer("of_class", torch.linspace(0.5, 2, CLASSES))
        self.config = argparse.Namespace(problem_type=None)
        self.loss = loss

    def forward(self, x, labels=None):
        logits = self.fc(torch.relu(self.conv(x)).mean((2, 3)))
        if labels is None:
            return {"logits": logits}
        if self.loss is None and self.config.problem_type is None:
            self.config.problem_type = "single_label_classification"
        return {"logits": logits, "loss": (self.loss or with_indices)(self, logits, labels)}


def with_indices(_, logits, labels):
    return F.cross_entropy(logits.view(-1, CLASSES), labels.view(-1), ignore_index=1)


FLOATS = torch.rand(6, CLASSES, generator=torch.Generator().manual_seed(1))
INDICES = torch.tensor([1, 4, 0, 2, 3, 1])


@pytest.mark.parametrize("loss, labels", [
    (with_indices, INDICES),
    (lambda m, x, y: F.cross_entropy(x, y, m.of_class, label_smoothing=0.1), INDICES),
    (lambda _, x, y: F.cross_entropy(x, y, torch.arange(1.0, 6), reduction="sum"), INDICES),
    (lambda _, x, y: F.cross_entropy(x, torch.arange(len(x)) % CLASSES), INDICES),
    (lambda m, x, y: F.cross_entropy(x, y, m.of_class), FLOATS.softmax(1)),
    (lambda _, x, y: F.mse_loss(x[:, :1].squeeze(), y.squeeze()), FLOATS[:, 0]),
    (lambda _, x, y: F.mse_loss(x, torch.ones_like(x)) if y is not None else x, FLOATS),
    (lambda _, x, y: F.l1_loss(x, y, reduction="sum"), FLOATS),
    (lambda _, x, y: F.smooth_l1_loss(x, y, beta=0.5), FLOATS),
    (lambda _, x, y: F.binary_cross_entropy_with_logits(x, y), FLOATS)])
def test_a_loss_that_the_forward_returns(make_remote, loss, labels):
    model, x = WithLoss(loss), images(6, 3, 6, 6)
    net = make_remote(model)
    for batch in (6, 4):
        found, expected = (m(x[:batch], labels=labels[:batch]) for m in (net, model))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        for result in (found, expected):  # other outputs may have gradients, too
            (3 * result["loss"] + result["logits"].square().mean() / batch).backward()
    assert_states(net.gradients(), {n: p.grad for n, p in model.named_parameters()})
    with torch.no_grad():
        torch.testing.assert_close(net(x), model(x), rtol=1e-5, atol=1e-5)


def with_auxiliary(module, x, y):
    """The sum of two losses, as segmentation models with an auxiliary head have it."""
    main, other = F.cross_entropy(x, y), F.cross_entropy(x.flip(1) * 2, y, ignore_index=3)
    return main + 0.4 * other


def focal(module, x, y):
    each = F.cross_entropy(x, y, reduction="none")
    return ((1 - torch.exp(-each)) ** 2 * each).mean()


def distilled(module, x, y):
    soft = F.kl_div(F.log_softmax(x / 2, 1), F.softmax(module.of_class.expand_as(x), 1),
                    reduction="batchmean")
    return 0.3 * F.cross_entropy(x, y, module.of_class, label_smoothing=0.1) + soft


def shifted(module, x, y):
    """A loss of the next label, as language models have it."""
    return F.cross_entropy(x[:-1], y[1:])


@pytest.mark.parametrize("loss, labels", [
    (lambda _, x, y: F.cross_entropy(x, y) / 2, INDICES),
    (lambda _, x, y: F.cross_entropy(x, y, reduction="none"), INDICES),
    (lambda _, x, y: F.cross_entropy(x, y, reduction="none", ignore_index=2).mean(), INDICES),
    (lambda _, x, y: F.cross_entropy(x, y[:, 0]), INDICES[:, None]),
    (lambda _, x, y: F.cross_entropy(x.expand(5, *x.shape).mT, y.t()), torch.ones(5, 5).long()),
    (lambda _, x, y: -F.nll_loss(x.log_softmax(1), y, reduction="sum"), INDICES),
    (lambda _, x, y: F.cross_entropy(x @ x.T, torch.arange(len(x))) + 0 * y.sum(), FLOATS),
    (lambda _, x, y: F.cross_entropy(x, y.softmax(1), label_smoothing=0.2) * 3, FLOATS),
    (lambda m, x, y: F.cross_entropy(x, y.softmax(1), m.of_class, reduction="none"), FLOATS),
    (lambda m, x, y: F.binary_cross_entropy_with_logits(x * 30, y, m.of_class), FLOATS),
    (lambda m, x, y: F.binary_cross_entropy_with_logits(
        x, y, pos_weight=m.of_class, reduction="none").square(), FLOATS),
    (lambda _, x, y: F.binary_cross_entropy_with_logits(
        x, y, pos_weight=torch.tensor(3.0)), FLOATS),
    (lambda m, x, y: F.binary_cross_entropy(
        (x * 9).sigmoid(), y.sigmoid(), m.of_class), FLOATS),
    (lambda _, x, y: F.binary_cross_entropy(
        (x * 99).sigmoid(), (y > 0).float(), reduction="none"), FLOATS),
    (lambda _, x, y: F.mse_loss(x, y) + F.l1_loss(x, y, reduction="sum"), FLOATS),
    (lambda _, x, y: F.smooth_l1_loss(x, y, reduction="none", beta=0.3) ** 2, FLOATS),
    (lambda _, x, y: F.huber_loss(x, y, delta=0.7), FLOATS),
    (lambda _, x, y: F.kl_div(x, y.log_softmax(1), log_target=True, reduction="sum"), FLOATS),
    (with_auxiliary, INDICES), (focal, INDICES), (distilled, INDICES), (shifted, INDICES)])
def test_losses_that_a_forward_computes_with(make_remote, loss, labels):
    model, x = WithLoss(loss), images(len(labels), 3, 6, 6)
    net = make_remote(copy.deepcopy(model))
    for batch in (len(labels), 4):
        for one in (net, model):
            one(x[:batch], labels=labels[:batch])["loss"].sum().backward()
        torch.testing.assert_close(*(one(x[:batch], labels=labels[:batch])["loss"]
                                     for one in (net, model)), rtol=1e-5, atol=1e-5)
    assert_states(net.gradients(), {n: p.grad for n, p in model.named_parameters()})


def test_a_loss_of_many_classes(make_remote):
    """More than a table of rows for each class has."""
    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc = nn.Linear(3, 3000)

        def forward(self, x, y):
            return F.cross_entropy(self.fc(x), y, reduction="none") * 2

    model, x = Many(), torch.randn(4, 3)
    net, y = make_remote(copy.deepcopy(model)), torch.tensor([0, 2999, -100, 1500])
    for one in (net, model):
        one(x, y).sum().backward()
    torch.testing.assert_close(net(x, y), model(x, y))
    assert_states(net.gradients(), {n: p.grad for n, p in model.named_parameters()})


def test_a_loss_of_what_is_left_out(make_remote):
    """Logits of minus infinity, as masks make them: others are chosen, or it is infinite."""
    model = WithLoss(lambda _, x, y: 2 * F.cross_entropy(x.masked_fill(
        torch.arange(5) == 1, -float("inf")), y, reduction="none"))
    net, x = make_remote(copy.deepcopy(model)), images(6, 3, 6, 6)
    labels = torch.where(INDICES == 1, 0, INDICES)
    for one in (net, model):
        one(x, labels=labels)["loss"].sum().backward()
    assert_states(net.gradients(), {n: p.grad for n, p in model.named_parameters()})
    labels[2] = 1
    torch.testing.assert_close(*(one(x, labels=labels)["loss"] for one in (net, model)))


def test_a_target_that_is_refused(make_remote):
    net = make_remote(WithLoss(lambda m, x, y: F.cross_entropy(x, x.argmax(1))))
    with pytest.raises(convgrad.Unimplemented, match=r"aten\.argmax"):
        net(images(6, 3, 6, 6), labels=INDICES)


def test_a_constant_target(make_remote):
    """The client sends numbers of the forward's text; a buffer is refused by its name."""
    model = WithLoss(lambda m, x, y: F.cross_entropy(x, torch.tensor([1, 4, 0])))
    x = torch.rand(3, 3, 6, 6)
    net = make_remote(copy.deepcopy(model))
    torch.testing.assert_close(net(x, labels=0), model(x, labels=0), rtol=1e-5, atol=1e-5)
    for factor in (1, 2):
        model = WithLoss(lambda m, x, y, by=factor: by * F.cross_entropy(x, m.fixed))
        model.register_buffer("fixed", torch.tensor([1, 4, 0]))
        with pytest.raises(convgrad.Unimplemented, match=r"a target of \(3\), fixed, expected "
                           "class indices that follow from inputs alone; see .*losses.py"):
            make_remote(model)(x, labels=0)


def test_what_a_forward_sets_in_its_configuration(make_remote):
    """As transformers' models for classification do; the error says how to set it before."""
    net = make_remote(WithLoss())
    with pytest.raises(convgrad.Unimplemented, match=r"'config\.problem_type', which .*, or "
                       r"config\.problem_type = 'single_label_classification' before it"):
        net(images(6, 3, 6, 6), labels=INDICES)
    net.config.problem_type = "single_label_classification"
    net(images(6, 3, 6, 6), labels=INDICES)["loss"].backward()
    assert net.gradients().keys() == {n for n, _ in net.named_parameters()}


def test_a_number_that_a_forward_sets_in_its_configuration():
    config = argparse.Namespace(scale=1.0)
    before, config.scale = frozen(config), 0.5
    assert changed_part("config", before, frozen(config)) == (
        "config.scale", ", or config.scale = 0.5 before it")
