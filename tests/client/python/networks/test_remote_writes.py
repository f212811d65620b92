"""What a forward writes into tensors and their views, against PyTorch: values, and gradients of
inputs and parameters."""

import copy

import pytest
import torch
from test_remote_import import import_
from torch import nn

import convgrad


class Model(nn.Module):
    """A function of a convolution's result, its input and a parameter."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(4)
        self.conv, self.bias = nn.Conv2d(3, 4, 1), nn.Parameter(torch.randn(6))
        self.register_buffer("mean", torch.ones(4))
        self.function = function

    def forward(self, x):
        return self.function(self, self.conv(x), x)


def assert_as_torch(make_remote, model, *shape):
    """Compares values and gradients. What isn't finite has to be so in both."""
    net = make_remote(copy.deepcopy(model))
    found = []
    torch.manual_seed(5)
    x = torch.randn(shape or (2, 3, 4, 6))
    for one in (net, model):
        given = x.clone().requires_grad_()
        y = one(given)
        outputs = y if isinstance(y, tuple) else (y,)
        sum((out * out.detach().cos()).sum() for out in outputs).backward()
        gradients = net.gradients() if one is net else {
            name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        found.append(({f"{i}": out.detach() for i, out in enumerate(outputs)},
                      {"input": given.grad, **gradients}))
    torch.testing.assert_close(*(values for values, _ in found), rtol=1e-4, atol=1e-5)
    ours, theirs = (gradients for _, gradients in found)
    theirs = {name: t for name, t in theirs.items() if name in ours or t is None or t.any()}
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def slice_of_a_slice(self, y, x):
    y[:, 1:4][:, :, 1:3].mul_(2)
    return y


def read_before_and_after(self, y, x):
    part = y[:, :2]
    before = part * 1
    y[:, 1:3] += x[:, :2]
    return before, part, y[:, 1]


def write_by_two_views(self, y, x):
    first, second = y[:, :3], y.permute(0, 2, 3, 1)[..., 2:]
    first.mul_(3)
    second += 1
    first[:, 2].zero_()
    return first + 0, second + 0, y


def through_a_permuted_view(self, y, x):
    tokens = y.flatten(2)
    y = tokens.transpose(1, 2)
    y[:, ::2] = y[:, 1::2] * 2
    y[:, 3, 1:] = self.bias[:3]
    return y, tokens.transpose(1, 2) + 0


def a_select(self, y, x):
    y[:, 0] = y[:, 1] + x[:, 0]
    y.select(1, 2)[:, 1].fill_(0.5)
    return y


def a_view_of_other_extents(self, y, x):
    pairs = y.view(-1, 2, 2, 4, 6)
    pairs[:, 1] *= pairs[:, 0].clone()
    return torch.sigmoid(y)


def part_of_a_parameter(self, y, x):
    bias = self.bias.clone()
    bias[2:4].zero_()
    return y * bias


def in_place_on_an_input(self, y, x):
    x[:, :1].mul_(2)
    return self.conv(x.relu_()) + y + x[:, :1]


def whole_by_a_view(self, y, x):
    y[:] = x[:, :1]
    y.view(y.shape).add_(1)
    return y


def of_seven_axes(self, y, x):
    wide = y.view(y.shape[0], 2, 2, 2, 2, 2, 3)
    turned = wide.permute(0, 6, 4, 2, 5, 3, 1)
    turned[:, 1, :, 1] *= 2
    wide[:, 0] += 1
    return y, turned.reshape(y.shape[0], 3, -1)


def constants(self, y, x):
    mask = torch.zeros(4, 6)
    mask[1:3, 2:] = 1
    view = mask[1:]
    mask.mul_(2)
    filled = y.new_full((y.shape[0], 2, 1, 1), 0.5)
    filled[:, :1] = 2
    return y * mask, y[:, :, 1:] + view, torch.cat([y[:, :2] * filled, x], 1)


def empty(self, y, x):
    whole, other = y.new_empty(y.shape[0], 7, 4, 6), torch.empty_like(y)
    whole[:, :4], whole[:, 4:] = y, x
    same = other
    same[:] = y[:, 1:2]
    return whole, other.add_(1) * same


def not_finite(self, y, x):
    y[:, :1] = float("inf")
    y[:, 1:2] = torch.nan
    y[:, :2] = 1
    return y


def by_masks(self, y, x):
    y[y > 0.5] = 2.0
    y[:, y.detach()[0, :, 0, 0] < 0] = 0.5
    part = y[:, 1:]
    part[part.sum((1, 2, 3)) > 0] = self.bias[0]
    y[x[:, :1].expand_as(y) < -1] = torch.nan
    y[torch.isnan(y)] = torch.tensor([3.0])
    return y, part + 0


FORWARDS = (slice_of_a_slice, read_before_and_after, write_by_two_views,
            through_a_permuted_view, a_select, a_view_of_other_extents,
            part_of_a_parameter, whole_by_a_view, of_seven_axes, constants, empty,
            not_finite, by_masks)


@pytest.mark.parametrize("function", FORWARDS)
def test_a_write(make_remote, function):
    assert_as_torch(make_remote, Model(function))


def test_a_write_into_an_input(make_remote):
    model = Model(in_place_on_an_input)
    net, x = make_remote(model), torch.randn(2, 3, 4, 6)
    with torch.no_grad():
        torch.testing.assert_close(net(x.clone()), model(x.clone()), rtol=1e-4, atol=1e-5)


def reshaped_before(self, y, x):
    seen = y.reshape(y.shape[0], -1)
    y[:, 0] = 1
    return seen


def written_after_a_reshape(self, y, x):
    y.permute(0, 2, 3, 1).reshape(y.shape[0], -1)[:, 1:].zero_()
    return y


def contiguous(self, y, x):
    z = y.contiguous()
    z[:, 0] = 1
    return y


def expanded(self, y, x):
    y[:, :1].expand(-1, 4, -1, -1).mul_(2)
    return y


def part_of_a_buffer(self, y, x):
    self.mean[:2].add_(1)
    return y * self.mean.view(1, -1, 1, 1)


def data_in_a_constant(self, y, x):
    mask = torch.zeros(2)
    mask[:1] = self.bias[:1]
    return y * mask[0]


def a_shape_beside_a_view(self, y, x):
    seen = y[:, 0]
    y.transpose_(1, 2)
    return seen * 1


def rows_by_a_mask(self, y, x):
    y[:, torch.tensor([True, False, True, True]), 0] = self.bias.expand(3, 6)
    return y


def places(self, y, x):
    y[:, [0, 2]] = y[:, [1, 3]]
    return y


@pytest.mark.parametrize("function, words", [
    (a_shape_beside_a_view, "a change of shape in place of elements that another tensor"),
    (reshaped_before, "a view of a tensor changed in place since"),
    (written_after_a_reshape, "a view of a tensor changed in place since"),
    (contiguous, "a view of a tensor changed in place since"),
    (expanded, "elements that share memory|more than one element"),
    (part_of_a_buffer, r"'mean', which its forward changes"),
    (rows_by_a_mask, r"a write of \(3, 6\) by a mask"),
    (places, "a write at places, expected x.mask. = y"),
    (data_in_a_constant, r"aten\.copy_ of a constant of")])
def test_what_cannot_be_followed(function, words):
    with pytest.raises(convgrad.ConvgradError, match=words):
        import_(Model(function), shape=(2, 3, 4, 6))
