"""Makes optimizers with random settings, on the server and in torch."""

from __future__ import annotations

import copy

import torch

from convgrad.torch import optim


class Optimizers:
    """The optimizers of one training, for its network in float64, in float32 and on the server.
    """

    def __init__(self, training) -> None:
        self._training = training
        self._rng = training.rng
        kind, settings = self._drawn()
        groups = training.chance(0.25)
        self._clip = self._rng.choice((0, 0, 0.5))
        training.tell(f"{kind} {settings}, two groups {groups}, clip {self._clip}")
        self.double, self.single, self.remote = (
            getattr(library, kind)(self._groups(network, groups), **settings, **more)
            for network, library, more in (
                (training.double, torch.optim, {}), (training.single, torch.optim, {}),
                (training.net, optim, {"clip_grad_norm": self._clip})))
        self._parameters = {name: (p, dict(training.single.named_parameters())[name])
                            for name, p in training.double.named_parameters()}
        self._saved = None
        if training.chance(0.3):
            self.save()

    def step(self, on_server: bool = False) -> None:
        """Steps all optimizers and compares. `on_server`: the server's has stepped already."""
        training = self._training
        for i, optimizer in enumerate((self.double, self.single)):
            if self._clip:
                torch.nn.utils.clip_grad_norm_(
                    [pair[i] for pair in self._parameters.values()], self._clip)
            optimizer.step()
        if not on_server:
            self.remote.step()
        # Drops gradients after clipping, because torch's clipping scales the kept gradients.
        if on_server or self._clip or training.chance(0.8):
            self.double.zero_grad(set_to_none=True)
            self.single.zero_grad(set_to_none=True)
            if not on_server:
                self.remote.zero_grad()
        training.comparison.state(training.net.state_dict(), training.double.state_dict(),
                                  training.single.state_dict())
        self._compare_states()
        if training.chance(0.3):
            self.save()

    def save(self) -> None:
        self._saved = [copy.deepcopy(o.state_dict()) for o in self._all()]

    def load(self) -> None:
        """Loads the last saved state."""
        if self._saved is not None:
            for optimizer, state in zip(self._all(), self._saved):
                optimizer.load_state_dict(copy.deepcopy(state))

    def go_on_from_equal_values(self) -> None:
        found = self.remote.state_dict()["state"]
        for optimizer in (self.double, self.single):
            for i, name in enumerate(self._order(optimizer)):
                for key, value in optimizer.state.get(name, {}).items():
                    if isinstance(value, torch.Tensor):
                        value.copy_(found[i][key])

    def _all(self):
        return self.double, self.single, self.remote

    def _compare_states(self) -> None:
        compare = self._training.comparison
        double, single, found = (_tensors(o.state_dict()["state"]) for o in self._all())
        compare.equal("optimizer's state", sorted(found), sorted(double))
        for key in found.keys() & double.keys():
            compare.tensor(f"optimizer's state {key}", found[key], double[key], single[key])

    @staticmethod
    def _order(optimizer):
        return [p for group in optimizer.param_groups for p in group["params"]]

    @staticmethod
    def _groups(network, two: bool):
        parameters = list(network.parameters())
        if not two or len(parameters) < 2:
            return parameters
        return [{"params": parameters[::2]}, {"params": parameters[1::2], "lr": 0.03}]

    def _drawn(self):
        rng, chance = self._rng, self._training.chance
        kind = rng.choice(("SGD", "Adam", "AdamW"))
        common = dict(maximize=chance(0.15))
        if kind == "SGD":
            momentum = rng.choice((0, 0.9, 0.5))
            settings = dict(lr=rng.choice((0.01, 0.1)), momentum=momentum,
                            weight_decay=rng.choice((0, 0.01, 0.1)))
            if momentum and chance(0.4):
                settings["nesterov"] = True
            else:
                settings["dampening"] = rng.choice((0, 0, 0.3))
        else:
            # With a small eps, gradients that are zero in theory would cause large steps.
            settings = dict(lr=rng.choice((1e-3, 0.01)), eps=1e-2,
                            betas=rng.choice(((0.9, 0.999), (0.5, 0.9), (0.0, 0.99))),
                            weight_decay=rng.choice((0, 0.01, 0.3)))
        return kind, settings | common


def _tensors(state) -> dict[tuple[int, str], torch.Tensor]:
    return {(i, key): torch.as_tensor(value, dtype=(
        torch.float32 if key == "step" else value.dtype))
        for i, entries in state.items() for key, value in entries.items()
        if value is not None}
