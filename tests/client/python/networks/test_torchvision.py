"""Compares torchvision's networks on the server with PyTorch's own errors: "Whole network" in
proto/correctness.md, "Networks"."""

import copy
import importlib.util
import os

import pytest
import torch
import torch.nn.functional as F
from small_networks import UNet
from torch import nn

pytestmark = pytest.mark.skipif(
    not os.environ.get("CONVGRAD_FULL") or importlib.util.find_spec("torchvision") is None,
    reason="only in tests/run full, with a current PyTorch")

NETWORKS = ("resnet18", "resnet50", "vgg11_bn", "mobilenet_v2", "squeezenet1_1", "googlenet",
            "densenet121", "unet")
SHAPE = (4, 3, 96, 96)
MOST, MOST_ON_AVERAGE = 4.0, 1.25


def make(name):
    torch.manual_seed(0)
    if name == "unet":
        return UNet(10)
    from torchvision import models
    keywords = {"init_weights": True} if name == "googlenet" else {}
    model = getattr(models, name)(num_classes=10, **keywords)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # no two libraries draw the same mask
    return model


def losses_of(outputs, labels):
    if outputs.__class__.__name__ == "GoogLeNetOutputs":
        return sum(F.cross_entropy(y, labels) * w for y, w in zip(outputs, (1, 0.3, 0.3)))
    if outputs.dim() == 4:
        labels = labels[:, None, None].expand(-1, *outputs.shape[2:])
    return F.cross_entropy(outputs, labels)


def tensors_of(outputs, x, gradients):
    """Returns all compared tensors, by name."""
    many = isinstance(outputs, tuple)
    named = {f"output {i}": y.detach() for i, y in enumerate(outputs if many else [outputs])}
    return named | {"input": x.grad} | gradients


def run_locally(model, x, labels, dtype, threads=2, memory_format=torch.contiguous_format):
    model = copy.deepcopy(model).to(dtype).to(memory_format=memory_format)
    x = x.to(dtype).clone(memory_format=memory_format).requires_grad_()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    outputs = model(x)
    losses_of(outputs, labels).backward()
    torch.set_num_threads(before)
    return tensors_of(outputs, x, {n: p.grad for n, p in model.named_parameters()})


def error(found, exact):
    return float((found.double() - exact).norm())


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_as_exact_as_pytorchs(make_remote, name):
    model = make(name)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SHAPE, generator=generator)
    labels = torch.randint(10, SHAPE[:1], generator=generator)
    exact = run_locally(model, x, labels, torch.float64)
    in_torch = [run_locally(model, x, labels, torch.float32, threads, memory_format)
                for threads in (1, 2)
                for memory_format in (torch.contiguous_format, torch.channels_last)]
    net = make_remote(model)
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(),
                                                 model.state_dict().values()))
    x.requires_grad_()
    outputs = net(x)
    losses_of(outputs, labels).backward()
    found = tensors_of(outputs, x, net.gradients())
    assert found.keys() == exact.keys()
    # Excludes gradients that are zero in theory, e.g. of biases before a batch_norm.
    is_zero = {n for n, t in exact.items() if t.abs().max() <= 1e-12}
    assert all(n.endswith(".bias") for n in is_zero)
    ratios = {n: error(found[n], t) / max(error(other[n], t) for other in in_torch)
              for n, t in exact.items() if n not in is_zero}
    # Limits the ratio of a tensor that is exact by chance.
    geomean = float(torch.tensor(list(ratios.values())).double().clamp(0.01).log().mean().exp())
    worst = max(ratios, key=lambda n: ratios[n])
    print(f"{name}: {len(ratios)} tensors, geomean {geomean:.2f}, worst {ratios[worst]:.2f} "
          f"({worst}), left out {len(is_zero)}")
    assert ratios[worst] <= MOST and geomean <= MOST_ON_AVERAGE
