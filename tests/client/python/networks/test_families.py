"""Small networks of many families on the server, against PyTorch: "Whole network" in
proto/correctness.md, "Networks", and some steps of AdamW."""

import copy
import math

import pytest
import torch
from families import FAMILIES, make

from convgrad.torch import optim

pytestmark = pytest.mark.remote
MOST, MOST_ON_AVERAGE = 4.0, 1.25
# Of a tensor's norm: what PyTorch's error counts at least, as when a tensor is exact by chance.
LEAST_ERROR = 2**-24
LR, STEPS = 1e-3, 5


def tensors_of(outputs):
    return list(outputs.values()) if isinstance(outputs, dict) else [outputs]


def loss_of(outputs):
    return sum(y.square().mean() for y in tensors_of(outputs))


def found_by(model, x, gradients_of):
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    outputs = model(x)
    loss_of(outputs).backward()
    named = {f"output {i}": y.detach() for i, y in enumerate(tensors_of(outputs))}
    return named | {"input": x.grad} | gradients_of(model)


def of_torch(model, x, dtype, memory_format=torch.contiguous_format):
    model = copy.deepcopy(model).to(dtype).to(memory_format=memory_format if x.dim() == 4
                                              else torch.contiguous_format)
    return found_by(model, x.to(dtype), lambda m: {
        name: p.grad for name, p in m.named_parameters() if p.grad is not None})


def error(found, exact):
    return float((found.double() - exact).norm())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family(make_remote, family):
    made = make(family)
    if made is None:
        pytest.skip("could not import torchvision")
    model, x = made
    model.train()
    exact = of_torch(model, x, torch.float64)
    in_torch = [of_torch(model, x, torch.float32, layout)
                for layout in (torch.contiguous_format, torch.channels_last)]
    net = make_remote(copy.deepcopy(model))
    found = found_by(net, x, lambda n: n.gradients())
    assert found.keys() == exact.keys()
    largest = max(float(t.norm()) for t in exact.values())
    ratios = {}
    for name, t in exact.items():
        if float(t.norm()) < 1e-10 * largest:  # zero in theory, as a bias before a batch_norm
            assert float(found[name].norm()) < 1e-4 * largest
            continue
        of_theirs = max(error(other[name], t) for other in in_torch)
        ratios[name] = error(found[name], t) / max(of_theirs, LEAST_ERROR * float(t.norm()))
    geomean = math.exp(sum(math.log(max(r, 0.01)) for r in ratios.values()) / len(ratios))
    worst = max(ratios, key=lambda name: ratios[name])
    print(f"{family}: {len(ratios)} tensors, geomean {geomean:.2f}, worst {ratios[worst]:.2f} "
          f"({worst})")
    assert ratios[worst] <= MOST and geomean <= MOST_ON_AVERAGE
    follow_adamw(net, model, x)


def follow_adamw(net, model, x):
    """Trains both, and compares losses, parameters and statistics."""
    model.load_state_dict(net.state_dict())
    keywords = dict(lr=LR, weight_decay=0.05, eps=1e-3)
    pairs = [(net, optim.AdamW(net.parameters(), **keywords)),
             (model, torch.optim.AdamW(model.parameters(), **keywords))]
    losses = []
    for one, optimizer in pairs:
        optimizer.zero_grad()
        for _ in range(STEPS):
            loss = loss_of(one(x))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    torch.testing.assert_close(losses[:STEPS], losses[STEPS:], rtol=1e-4, atol=1e-6)
    theirs = model.state_dict()
    for name, tensor in net.state_dict().items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-4, atol=0.02 * LR,
                                   msg=lambda said, name=name: f"{name}: {said}")
    model.eval()
    net.eval()
    with torch.no_grad():
        for y, expected in zip(tensors_of(net(x)), tensors_of(model(x))):
            torch.testing.assert_close(y, expected, rtol=1e-3, atol=1e-4)
