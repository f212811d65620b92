"""Compares small networks of many families on the server with PyTorch: "Whole network" in
proto/correctness.md, "Networks", and some steps of AdamW."""

import copy
import math
import pathlib
import re

import pytest
import torch
from families import BLOCKS, FAMILIES, TORCHVISION, make

from convgrad.torch import optim

pytestmark = pytest.mark.remote
PAGE = pathlib.Path(__file__).parents[4] / "client/python/networks.md"
MOST, MOST_ON_AVERAGE = 4.0, 1.25
# Minimum of PyTorch's error relative to a tensor's norm: a tensor may be exact by chance.
LEAST_ERROR = 2**-21
LAYOUTS = (torch.contiguous_format, torch.channels_last)
LR, STEPS = 1e-4, 5


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


def laid_out(model, x, dtype, layout):
    """Returns a copy, in the memory format if it is one of the input."""
    return copy.deepcopy(model).to(dtype).to(
        memory_format=layout if x.dim() == 4 else torch.contiguous_format)


def of_torch(model, x, dtype, layout=torch.contiguous_format):
    return found_by(laid_out(model, x, dtype, layout), x.to(dtype), lambda m: {
        name: p.grad for name, p in m.named_parameters() if p.grad is not None})


def error(found, exact):
    return float((found.double() - exact.double()).norm())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family(make_remote, family):
    made = make(family)
    if made is None:
        pytest.skip("could not import torchvision")
    model, x = made
    model.train()
    exact = of_torch(model, x, torch.float64)
    in_torch = [of_torch(model, x, torch.float32, layout) for layout in LAYOUTS]
    net = make_remote(copy.deepcopy(model))
    found = found_by(net, x, lambda n: n.gradients())
    assert found.keys() == exact.keys()
    largest = max(float(t.norm()) for t in exact.values())
    ratios = {}
    for name, t in exact.items():
        if float(t.norm()) < 1e-10 * largest:  # zero in theory, e.g. a bias before a batch_norm
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
    """Trains the network and PyTorch's models, and compares their errors."""
    keywords = dict(lr=LR, weight_decay=0.05, eps=1e-3)
    for name, tensor in net.state_dict().items():
        model.state_dict()[name].copy_(tensor)
    exact, *in_torch = (
        trained(one, torch.optim.AdamW(one.parameters(), **keywords), x.to(dtype))
        for dtype, layout in ((torch.float64, torch.contiguous_format), *(
            (torch.float32, layout) for layout in LAYOUTS))
        for one in [laid_out(model, x, dtype, layout)])
    found = trained(net, optim.AdamW(net.parameters(), **keywords), x)
    assert found.keys() == exact.keys()
    for kind in ("loss", "state", "evaluated"):
        ours, *theirs = (difference(one, exact, kind) for one in (found, *in_torch))
        norm = math.sqrt(sum(float(t.double().square().sum()) for name, t in exact.items()
                             if name.startswith(kind)))
        assert ours <= MOST * max(*theirs, 4 * LEAST_ERROR * norm), kind


def trained(model, optimizer, x):
    """Returns losses, parameters, statistics, and the trained model's outputs in eval mode."""
    found = {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model(x))
        loss.backward()
        optimizer.step()
        found[f"loss {step}"] = loss.detach()
    found |= {f"state {name}": tensor for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        outputs = tensors_of(model.eval()(x))
    return found | {f"evaluated {i}": y for i, y in enumerate(outputs)}


def difference(found, exact, kind):
    """Returns the norm of the differences of one kind of tensors."""
    return math.sqrt(sum(error(tensor, exact[name]) ** 2 for name, tensor in found.items()
                         if name.startswith(kind)))


def test_the_page_has_the_families():
    found = dict(re.findall(r"^\| (torchvision's classes|small blocks) \| (.*) \|$",
                            PAGE.read_text(), re.MULTILINE))
    assert found == {"torchvision's classes": ", ".join(TORCHVISION),
                     "small blocks": ", ".join(BLOCKS)}
