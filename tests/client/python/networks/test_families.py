"""Compares small networks of many families on the server with PyTorch: "Whole network" in
proto/correctness.md, "Networks", and some steps of AdamW with moving averages."""

import copy
import math
import os
import pathlib
import re
import warnings

import pytest
import torch
from families import BLOCKS, FAMILIES, TORCHVISION, make

from convgrad.torch import optim

pytestmark = pytest.mark.remote
PAGE = pathlib.Path(__file__).parents[4] / "client/python/networks.md"
MOST, MOST_ON_AVERAGE = 4.0, 1.25
# Minimum of PyTorch's error relative to a tensor's norm: few elements may be exact by chance.
LEAST_ERROR = {torch.float32: 2**-22, torch.bfloat16: 2**-13}
LAYOUTS = (torch.contiguous_format, torch.channels_last)
LR, STEPS, DECAY = 1e-4, 5, 0.75
# Errors of single models differ by chance: all gradients of a small model have the errors of
# its few outputs, and in bf16 a ReLU may take another side.
DRAWS = 4
IN_BF16 = FAMILIES if os.environ.get("CONVGRAD_FULL") else FAMILIES[::8]


def made_or_skip(family, seed=0):
    made = make(family, seed)
    if made is None:
        pytest.skip("could not import torchvision")
    made[0].train()
    return made


def tensors_of(outputs):
    return list(outputs.values()) if isinstance(outputs, dict) else [outputs]


def loss_of(outputs):
    return sum(y.square().mean() for y in tensors_of(outputs))


def found_by(model, x, gradients_of, autocast=False):
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        outputs = model(x)
    loss_of({i: y if y.dtype == torch.float64 else y.float()
             for i, y in enumerate(tensors_of(outputs))}).backward()
    named = {f"output {i}": y.detach() for i, y in enumerate(tensors_of(outputs))}
    return named | {"input": x.grad} | gradients_of(model)


def laid_out(model, x, dtype, layout):
    """Returns a copy, in the memory format if it is one of the input."""
    return copy.deepcopy(model).to(dtype).to(
        memory_format=layout if x.dim() == 4 else torch.contiguous_format)


def of_torch(model, x, dtype, layout=torch.contiguous_format, autocast=False):
    return found_by(laid_out(model, x, dtype, layout), x.to(dtype), lambda m: {
        name: p.grad for name, p in m.named_parameters() if p.grad is not None}, autocast)


def settings_of_torch(model, x, dtype):
    """Returns the results of PyTorch's four settings."""
    threads, autocast = torch.get_num_threads(), dtype == torch.bfloat16
    found = []
    for count in (1, 2):
        torch.set_num_threads(count)
        found += [of_torch(model, x, torch.float32 if autocast else dtype, layout, autocast)
                  for layout in LAYOUTS]
    torch.set_num_threads(threads)
    return found


def error(found, exact):
    return float((found.double() - exact.double()).norm())


class Ratios:
    """Divides the errors of several draws, as a root of their squares, by PyTorch's worst."""

    def __init__(self, dtype):
        self.least_error = LEAST_ERROR[dtype]
        self.norms, self.ours, self.theirs = {}, {}, {}

    def add(self, found, in_torch, exact):
        assert found.keys() == exact.keys()
        largest = max(float(t.norm()) for t in exact.values())
        for name, t in exact.items():
            # A gradient may be zero in theory, e.g. of a bias before a batch_norm.
            if float(t.norm()) < 1e-10 * largest:
                assert float(found[name].norm()) < 2**7 * self.least_error * largest
                continue
            # PyTorch's library leaves some bf16 gradients of 3-D weights unwritten.
            if not all(other[name].isfinite().all() for other in in_torch):
                assert found[name].isfinite().all()
                continue
            self._square(self.norms, name, float(t.norm()))
            self._square(self.ours, name, error(found[name], t))
            for i, other in enumerate(in_torch):
                self._square(self.theirs.setdefault(i, {}), name, error(other[name], t))

    def _square(self, sums, name, number):
        sums[name] = sums.get(name, 0.0) + number**2

    def check(self, what):
        ratios = {name: math.sqrt(ours / max(
            self.least_error**2 * self.norms[name],
            *(theirs[name] for theirs in self.theirs.values())))
            for name, ours in self.ours.items()}
        geomean = math.exp(sum(math.log(max(r, 0.01)) for r in ratios.values()) / len(ratios))
        worst = max(ratios, key=lambda name: ratios[name])
        print(f"{what}: {len(ratios)} tensors, geomean {geomean:.2f}, worst "
              f"{ratios[worst]:.2f} ({worst})")
        assert ratios[worst] <= MOST and geomean <= MOST_ON_AVERAGE


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family(make_remote, family):
    ratios = Ratios(torch.float32)
    for seed in reversed(range(DRAWS)):
        model, x = made_or_skip(family, seed)
        exact = of_torch(model, x, torch.float64)
        in_torch = settings_of_torch(model, x, torch.float32)
        net = make_remote(copy.deepcopy(model))
        assert_states(net, model.state_dict())
        ratios.add(found_by(net, x, lambda n: n.gradients()), in_torch, exact)
        if seed:
            net.session.close()
    ratios.check(family)
    change_state(net)
    net.load_state_dict(model.state_dict())
    follow_adamw(net, model, x)


@pytest.mark.parametrize("family", IN_BF16)
def test_a_family_in_bf16(make_remote, family):
    ratios = Ratios(torch.bfloat16)
    for seed in range(DRAWS):
        model, x = made_or_skip(family, seed)
        exact = of_torch(model, x, torch.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of autocast
            in_torch = settings_of_torch(model, x, torch.bfloat16)
        net = make_remote(model, dtype=torch.bfloat16)
        ratios.add(found_by(net, x, lambda n: n.gradients()), in_torch, exact)
        net.session.close()
    ratios.check(f"{family} in bf16")


def assert_states(net, expected):
    """Expects the same names, in order, and the same bits."""
    found = net.state_dict()
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


def change_state(net):
    """Loads other numbers, and fetches them."""
    torch.manual_seed(1)
    other = net.state_dict()
    for name, tensor in other.items():
        if tensor.is_floating_point():
            tensor.normal_()
        elif name.endswith("num_batches_tracked"):
            tensor += 3
    net.load_state_dict(other)
    assert_states(net, other)


def follow_adamw(net, model, x):
    """Trains the network and PyTorch's models, and compares their errors."""
    keywords = dict(lr=LR, weight_decay=0.05, eps=1e-3)
    exact, *in_torch = (
        trained(one, torch.optim.AdamW(one.parameters(), **keywords), x.to(dtype))
        for dtype, layout in ((torch.float64, torch.contiguous_format), *(
            (torch.float32, layout) for layout in LAYOUTS))
        for one in [laid_out(model, x, dtype, layout)])
    found = trained(net, optim.AdamW(net.parameters(), ema_decay=DECAY, **keywords), x)
    assert found.keys() == exact.keys()
    ratios = {}
    for kind in ("loss", "state", "evaluated", "average", "by averages"):
        ours, *theirs = (difference(one, exact, kind) for one in (found, *in_torch))
        norm = math.sqrt(sum(float(t.double().square().sum()) for name, t in exact.items()
                             if name.startswith(kind)))
        ratios[kind] = ours / max(*theirs, 4 * LEAST_ERROR[torch.float32] * norm)
    print(f"after {STEPS} steps:", ", ".join(f"{kind} {r:.2f}" for kind, r in ratios.items()))
    assert max(ratios.values()) <= MOST


def trained(model, optimizer, x):
    """Returns losses, parameters, statistics, their moving averages, and the outputs in eval
    mode by both."""
    is_remote = hasattr(model, "averaged_state_dict")
    found, averages = {}, {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model(x))
        loss.backward()
        optimizer.step()
        found[f"loss {step}"] = loss.detach()
        if not is_remote:
            averages = averaged(averages, model.state_dict())
    found |= {f"state {name}": tensor.clone() for name, tensor in model.state_dict().items()}
    if is_remote:
        averages = model.averaged_state_dict()
    found |= {f"average {name}": tensor for name, tensor in averages.items()}
    with torch.no_grad():
        found |= {f"evaluated {i}": y for i, y in enumerate(tensors_of(model.eval()(x)))}
        if is_remote:
            with model.averaged():
                outputs = model(x)
        else:
            for name, tensor in model.state_dict().items():
                tensor.copy_(averages[name])
            outputs = model(x)
    return found | {f"by averages {i}": y for i, y in enumerate(tensors_of(outputs))}


def averaged(averages, state):
    """Returns the moving averages after a step. Counts aren't averaged."""
    return {name: DECAY * averages[name] + (1 - DECAY) * tensor
            if averages and tensor.is_floating_point() else tensor.clone()
            for name, tensor in state.items()}


def difference(found, exact, kind):
    """Returns the norm of the differences of one kind of tensors."""
    return math.sqrt(sum(error(tensor, exact[name]) ** 2 for name, tensor in found.items()
                         if name.startswith(kind)))


def test_the_page_has_the_families():
    found = dict(re.findall(r"^\| (torchvision's classes|small blocks) \| (.*) \|$",
                            PAGE.read_text(), re.MULTILINE))
    assert found == {"torchvision's classes": ", ".join(TORCHVISION),
                     "small blocks": ", ".join(BLOCKS)}
