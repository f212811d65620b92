"""Tests operators that torch makes of others, against PyTorch."""

import pytest
import torch
import torch.nn.functional as F
from test_remote_import import Module, import_
from test_remote_writes import Model, assert_as_torch

import convgrad


@pytest.mark.parametrize("function", [
    lambda self, y, x: sum(part.sum(1) for part in y.tensor_split(3, 1)),
    lambda self, y, x: torch.cat(y.tensor_split((4, 2, -1, 9), 3), 3),
    lambda self, y, x: torch.hstack([y, x]) + torch.vstack([self.bias, self.bias]).sum(0),
    lambda self, y, x: torch.tensordot(y, self.bias.outer(self.bias), ([3], [0])),
    lambda self, y, x: torch.inner(y, self.bias) + torch.kron(self.bias, self.bias)[:4],
    lambda self, y, x: torch.special.expit(y).clip(0.3, 0.6).absolute().movedim(1, 3),
    lambda self, y, x: torch.linalg.matrix_norm(y).mean(1, keepdim=True) + y.diff().flatten(1),
    lambda self, y, x: F.margin_ranking_loss(
        y[:, :3], x, torch.ones(3, 1, 1).expand_as(x), 0.4, reduction="none"),
    lambda self, y, x: torch.einsum("bchw->bwhc", y) + torch.einsum(
        "bchw->bc", y)[:, None, None],
    lambda self, y, x: torch.einsum("b...w,wd->b...d", y, self.bias.outer(self.bias)),
    lambda self, y, x: torch.einsum("bchw,c,w->bh", y, self.bias[:4], self.bias),
    lambda self, y, x: torch.einsum("bii->bi", y[..., :4].sum(1)) + torch.einsum("c,c", *[
        self.bias] * 2),
    lambda self, y, x: F.hinge_embedding_loss(y, torch.ones_like(y), reduction="none"),
    lambda self, y, x: F.poisson_nll_loss(y, x[:, :1].abs().expand_as(y), reduction="none"),
    lambda self, y, x: F.cosine_embedding_loss(
        y.flatten(2).mT[:, 0], self.bias[:4].expand(len(y), 4), torch.ones(len(y)),
        reduction="none")])
def test_as_torch(make_remote, function):
    assert_as_torch(make_remote, Model(function))


def test_a_change_of_a_part(make_remote):
    def forward(self, y, x):
        y.tensor_split(2, 1)[1].mul_(3)
        y.hsplit(2)[0].movedim(1, 2).add_(1)
        return y

    assert_as_torch(make_remote, Model(forward))


def test_a_change_of_a_view(make_remote):
    """It is a copy if y has its channels last, as those of x decide."""
    def forward(self, y, x):
        y.ravel().mul_(2)
        return y

    with pytest.raises(convgrad.Unimplemented, match="a view of a tensor changed in place"):
        make_remote(Model(forward))(torch.randn(2, 3, 4, 6))


def test_an_operator_of_one_that_is_lacking():
    """The error names what the forward calls."""
    with pytest.raises(convgrad.Unimplemented, match=r"aten\.nanmean, .*test_implicit\.py:"):
        import_(Module(lambda self, x: torch.nanmean(x, 1)))
