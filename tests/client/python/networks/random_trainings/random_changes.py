"""Makes random changes between the calls of a training: modes, attributes, modules, optimizers.
"""

from __future__ import annotations

import copy

import torch
from random_layers import NORMS
from random_optimizers import Optimizers
from torch import nn


def _modes(training) -> None:
    for i, module in enumerate(training.drawn.net.layers):
        if isinstance(module, (*NORMS, nn.Dropout)):
            mode = training.chance(0.7)
            for model in training.models:
                model.layers[i].train(mode)


def _requires_grad(training) -> None:
    names = [name for name, _ in training.double.named_parameters()]
    wanted = {name: training.chance(0.85) for name in names}
    for model in training.models[:2]:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(wanted[name])
    for handle in training.net.parameters():
        handle.requires_grad_(wanted[handle.name])


def _new_optimizer(training) -> None:
    training.optimizers = Optimizers(training)


def _load_optimizer(training) -> None:
    training.optimizers.load()


def _load_values(training) -> None:
    state = {name: tensor * 1.25 if tensor.is_floating_point() else tensor
             for name, tensor in training.single.state_dict().items()}
    for model in (training.double, training.single, training.net):
        model.load_state_dict(state)


def _attributes(training) -> None:
    """Changes attributes of one layer. A client may refuse them."""
    rng = training.rng
    found = [(i, name, values) for i, module in enumerate(training.drawn.net.layers)
             for kind, name, values in (
                 (NORMS, "momentum", (0.2, 0.9, None)), (NORMS, "eps", (1e-2, 1e-4)),
                 (nn.LeakyReLU, "negative_slope", (0.3, 0.05)))
             if isinstance(module, kind)]
    if found:
        i, name, values = rng.choice(found)
        value = rng.choice(values)
        training.may_refuse.add(f"{name} = {value}")
        for model in training.models:
            setattr(model.layers[i], name, value)


def _statistics_off(training) -> None:
    for i, module in enumerate(training.drawn.net.layers):
        if isinstance(module, NORMS):
            training.may_refuse.add("track_running_stats")
            for model in training.models:
                model.layers[i].track_running_stats = False
            return


def _another_head(training) -> None:
    for i, module in enumerate(training.drawn.net.layers):
        if isinstance(module, nn.Linear):
            training.may_refuse.add("another head")
            head = nn.Linear(module.in_features, module.out_features)
            training.double.layers[i] = copy.deepcopy(head).double()
            training.single.layers[i] = copy.deepcopy(head)
            training.net.model.layers[i] = copy.deepcopy(head)
            training.optimizers = Optimizers(training)
            return


def _write(training) -> None:
    """Writes in place to a parameter that is on the server."""
    name = training.rng.choice([n for n, _ in training.drawn.net.named_parameters()])
    training.may_refuse.add("a write")
    with torch.no_grad():
        for model in training.models:
            dict(model.named_parameters())[name].mul_(0.5)


def _hook(training) -> None:
    i = training.rng.randrange(len(training.drawn.net.layers))
    training.may_refuse.add("a hook")
    for model in training.models:
        model.layers[i].register_forward_hook(lambda module, given, y: torch.relu(y))


CHANGES = {
    "modes": (0.3, _modes), "requires_grad": (0.15, _requires_grad),
    "another optimizer": (0.15, _new_optimizer),
    "the optimizer's state": (0.1, _load_optimizer),
    "load_state_dict": (0.1, _load_values), "attributes": (0.1, _attributes),
    "track_running_stats": (0.02, _statistics_off), "another head": (0.03, _another_head),
    "a write": (0.03, _write), "a hook": (0.02, _hook),
}
