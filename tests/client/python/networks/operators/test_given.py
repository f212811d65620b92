"""Tests what the client computes in each call of a remote network, because it follows from
inputs alone: masks and indices of tokens, and random numbers."""

import copy

import pytest
import torch
import torch.nn.functional as F
from small_networks import images
from test_remote_import import Module, import_
from test_remote_optim import assert_states
from torch import nn

import convgrad

WORDS = 7
IDS = torch.tensor([[1, 4, 2, 0, 0], [3, 3, 6, 5, 0], [2, 1, 1, 5, 6]])


class OfTokens(nn.Module):
    """A function of token ids, their embeddings, and lengths."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(2)
        self.embedding, self.scales = nn.Embedding(WORDS, 6), nn.Parameter(torch.rand(9))
        self.function = function

    def forward(self, ids, lengths=None):
        return self.function(self, self.embedding(ids), ids, lengths)


def padding(self, x, ids, _):
    return F.scaled_dot_product_attention(
        x[:, None], x[:, None], x[:, None], attn_mask=(ids != 0)[:, None, None, :])


def mean_of_words(self, x, ids, _):
    mask = (ids > 0).float().unsqueeze(-1)
    return (x * mask).sum(1) / mask.sum(1).clamp(min=1e-9)


def of_lengths(self, x, _, lengths):
    return x.masked_fill(torch.arange(5)[None, :, None] >= lengths[:, None, None], -1.5)


def last_word(self, x, ids, _):
    return x[torch.arange(ids.shape[0]), (ids != 0).sum(-1) - 1]


def shifted_words(self, x, ids, _):
    return self.scales[ids + 1][..., None] * x + self.embedding(ids.flip(1).clamp(max=3))


def one_hot(self, x, ids, _):
    return torch.cat([x, F.one_hot(ids, WORDS).float()], -1)


def sorted_words(self, x, ids, _):
    order = torch.argsort(ids, stable=True, dim=1)[:, :3]
    return x.gather(1, order[:, :, None].expand(-1, -1, 6))


def moved_words(self, x, ids, _):
    first = torch.cat([ids[:, 2:], ids[:, :2]], 1)
    ends = torch.stack([ids[:, 0], ids[:, 4]], 1)
    return x * self.embedding(first) + self.embedding(ends).sum(1, keepdim=True) + (
        self.scales[ids.roll(1, 1).repeat(1, 2)[:, :5]][..., None])


def labels_to_the_right(self, _, ids, __):
    """As models with encoder and decoder make their decoder's inputs."""
    shifted = ids.new_zeros(ids.shape)
    shifted[:, 1:] = ids[:, :-1].clone()
    shifted[:, 0] = 3
    shifted.masked_fill_(shifted == 5, 1)
    return self.embedding(shifted)


def changed_in_place(self, x, ids, _):
    """Each use has what the memory holds then, also by way of a view of before."""
    mask = ids != 4
    view = mask[:, 1:]
    first = x * mask[..., None].float()
    view[:, 0] = False
    second = x * mask[..., None].float()
    mask[:, 2] = True
    return first + 2 * second + F.pad(x[:, 1:] * view[..., None].float(), (0, 0, 0, 1))


def changed_input(self, x, _, lengths):
    """The caller's tensor stays as it is."""
    lengths[0] = 4
    lengths.sub_(1).clamp_(min=1)
    return x * (torch.arange(5) < lengths[:, None]).float()[..., None]


@pytest.mark.parametrize("function", [
    moved_words, labels_to_the_right, changed_in_place, changed_input, padding, mean_of_words,
    of_lengths, last_word, shifted_words, one_hot, sorted_words])
def test_masks_and_indices_of_inputs(make_remote, function):
    model = OfTokens(function)
    net = make_remote(copy.deepcopy(model))
    for ids in (IDS, IDS[:2], IDS[:1], IDS.flip(0)):
        lengths = torch.arange(1, len(ids) + 1)
        results = []
        for one in (net, model):
            y = one(ids, lengths if one is net else lengths.clone())
            (y * y.detach().cos()).sum().backward()
            results.append(y)
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)
    assert_states(net.gradients(), {
        name: p.grad for name, p in model.named_parameters() if p.grad is not None})


def test_an_image_that_changes_in_place(make_remote):
    """The client changes a copy. The server changes what the caller has given."""
    def forward(self, x):
        x.mul_(-2)
        return self.fc(x) * x.argmax(-1, keepdim=True)

    torch.manual_seed(0)
    model = Module(forward, fc=nn.Linear(6, 6))
    net, x = make_remote(copy.deepcopy(model)), torch.randn(3, 6)
    given = x.clone()
    torch.testing.assert_close(net(given), model(x.clone()))
    assert torch.equal(given, x)


@pytest.mark.parametrize("function", [
    lambda self, x: x + torch.rand(1),
    lambda self, x: x + torch.randn_like(x.transpose(1, 3)).transpose(1, 3),
    lambda self, x: x + torch.rand(5).detach(),
    lambda self, x: x + torch.randn_like(x) * 0.1,
    lambda self, x: x * torch.rand(x.shape[0], 1, 1, 1),
    lambda self, x: torch.relu(x) * (torch.rand(x.shape) > 0.5),
    lambda self, x: torch.where(torch.rand(x.shape[0], 1, 1, 1) < 0.4, torch.relu(x), x * 2),
    lambda self, x: x * (torch.rand(x.shape[0], 1, 1, 1) + 1.5).floor(),
    lambda self, x: x * torch.rand(x.shape[0], 1, 1, 1).expand_as(x),
    lambda self, x: F.linear(x, torch.rand(4, 5)),
    lambda self, x: x * x.new_empty(len(x), 1, 1, 1).bernoulli_(0.5).clone()[:, 0, None],
    lambda self, x: x + x.new_empty(x.shape).normal_(std=0.1) + torch.zeros(5).uniform_(-1, 1),
    lambda self, x: torch.relu(x)[:, torch.randint(3, (9,))],
    lambda self, x: x * torch.rand(x.shape[0], 1, 1, 1).add(0.5, alpha=3).floor()])
def test_random_numbers_are_torchs(make_remote, function):
    """Each call draws new ones, from torch's default generator, as torch does."""
    model = Module(function)
    net, x = make_remote(model), images(4, 3, 5, 5)
    given, own = (x.clone().requires_grad_() for _ in range(2))
    found = []
    for one, values in ((net, given), (model, own)):
        torch.manual_seed(11)
        results = [one(values), one(values)]
        sum((y * y.detach()).sum() for y in results).backward()
        found.append([*(y.detach() for y in results), values.grad])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)
    assert not torch.equal(*found[0][:2])


def test_a_reparametrization(make_remote):
    """A variational autoencoder trains as in torch."""
    def forward(self, x):
        hidden = self.encoder(x)
        mean, log = self.mean(hidden), self.log(hidden)
        z = mean + torch.randn_like(mean) * (0.5 * log).exp()
        apart = -0.5 * (1 + log - mean.square() - log.exp()).sum()
        return F.mse_loss(self.decoder(z), x, reduction="sum") + apart

    torch.manual_seed(1)
    model = Module(forward, encoder=nn.Linear(6, 5), mean=nn.Linear(5, 2), log=nn.Linear(5, 2),
                   decoder=nn.Linear(2, 6))
    net, x = make_remote(copy.deepcopy(model)), torch.randn(4, 6)
    ours = convgrad.torch.optim.Adam(net.parameters(), lr=0.01)
    theirs = torch.optim.Adam(model.parameters(), lr=0.01)
    for one, optimizer in ((net, ours), (model, theirs)):
        torch.manual_seed(3)
        for _ in range(4):
            optimizer.zero_grad()
            one(x).backward()
            optimizer.step()
    assert_states(net.state_dict(), model.state_dict(), 1e-4, 1e-5)


def test_a_gradient_is_never_lost():
    """What a gradient may pass through isn't computed by the client."""
    with pytest.raises(convgrad.Unimplemented, match=r"aten\.erf, expected"):
        import_(Module(lambda self, x: torch.erf(x) * torch.relu(x)))


def data_into_it(self, x):
    own = torch.rand(x.shape[0], 8).mul_(2).sub_(1)
    own[:, 1] = self.c(x)[:, 0, 0, 0]
    return own


@pytest.mark.parametrize("function, words", [
    (data_into_it, r"aten\.copy_ of what the client computes"),
    (lambda self, x: (torch.relu(x), x > 0), "torch.bool among what it returns"),
    (lambda self, x: x * (x.mean() * self.c.weight).argmax(), r"aten\.argmax")])
def test_what_is_refused(function, words):
    with pytest.raises(convgrad.Unimplemented, match=words):
        import_(Module(function, c=nn.Conv2d(3, 3, 1)))


def test_targets_are_checked(make_remote):
    model = OfTokens(lambda self, x, ids, classes: 2 * F.cross_entropy(
        x.transpose(1, 2), classes, ignore_index=-1))
    net, classes = make_remote(model), (IDS % 6).masked_fill(IDS == 2, -1)
    torch.testing.assert_close(net(IDS, classes), model(IDS, classes))
    for wrong in (6, -2):
        classes[1, 1] = wrong
        with pytest.raises(convgrad.InvalidArgument,
                           match=f"target: found {wrong}, expected a class from 0 to 5, or -1"):
            net(IDS, classes)
