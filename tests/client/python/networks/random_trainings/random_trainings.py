"""Trains a random network on a server and, for comparison, in torch.

The seed determines layers, settings, optimizers and changes between calls; `data` gives the
same training other numbers.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import math
import random

import torch
import torch.nn.functional as F
from random_changes import CHANGES
from random_comparison import Comparison
from random_networks import draw
from random_optimizers import Optimizers
from torch.utils.checkpoint import checkpoint

import convgrad
from convgrad.torch import remote

# Errors of a client that doesn't support a feature of torch.
REFUSALS = (convgrad.Unimplemented, convgrad.InvalidArgument, convgrad.FailedPrecondition)
_MANNERS = {"plain": 0.75, "no_grad": 0.08, "checkpoint": 0.05, "twice": 0.04, "thread": 0.04,
            "frozen": 0.02, "empty": 0.02}


class Training:
    """Draws everything in the constructor. Another thread may call run()."""

    def __init__(self, seed: int, client, data: int = 0) -> None:
        self.seed = seed
        self.rng = random.Random(f"training {seed}")
        self.generator = torch.Generator().manual_seed(seed * 1000 + data)
        torch.manual_seed(seed * 1000 + data)
        self._client = client
        self.drawn = draw(str(seed))
        self.may_refuse = set(self.drawn.options)
        """Features in use that the client may refuse."""
        self.comparison = Comparison()
        self.story: list[str] = []
        for parameter in self.drawn.net.parameters():
            if self.chance(0.12):
                parameter.requires_grad_(False)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def run(self) -> str:
        """Returns "same", or "refused: ..." if the client may refuse the training. `comparison`
        collects the differences."""
        self.double = copy.deepcopy(self.drawn.net).double()
        self.single = copy.deepcopy(self.drawn.net)
        try:
            with remote(self.drawn.net, self._client, recompute=self.chance(0.3)) as net:
                self.net = net
                self._train()
        except REFUSALS as error:
            # If dropout does nothing, a network may have no layer at all.
            if not self.may_refuse and "found an input" not in str(error):
                self.comparison.fault(f"refused: {error}")
            return f"refused: {sorted(self.may_refuse)}: {error}"
        return "same"

    @property
    def models(self):
        """Returns the modules whose attributes the next call uses."""
        return self.double, self.single, self.net.model

    def tell(self, text: str) -> None:
        self.story.append(text)
        self.comparison.where = f"step {len(self.story)}, {text}"

    def _train(self) -> None:
        self.optimizers = Optimizers(self)
        for _ in range(self.rng.randint(1, 4)):
            for name, (probability, change) in CHANGES.items():
                if self.chance(probability):
                    self.tell(name)
                    change(self)
            if self._has_logits() and self.chance(0.15):
                self._step_on_the_server()
            else:
                self._step()
            if self.comparison.differences:
                return
            self._go_on_from_equal_values()

    def _step(self) -> None:
        for _ in range(self.rng.choice((1, 1, 2))):
            self._run(self.rng.choices(list(_MANNERS), list(_MANNERS.values()))[0])
        self.comparison.gradients(self.net, self.double, self.single)
        if not self.comparison.differences:
            self.optimizers.step()

    def _has_logits(self) -> bool:
        net = self.drawn.net
        last = next((step for step in net.steps if step.result == net.outputs[0]), None)
        return len(net.outputs) == 1 and not self.may_refuse and last is not None and (
            isinstance(last.what, int) and isinstance(net.layers[last.what], torch.nn.Linear))

    def _step_on_the_server(self) -> None:
        self.tell("train_step")
        inputs = self._inputs(self.rng.randint(2, 5), False)
        logits = [model(**{name: x.to(dtype) for name, x in inputs.items()})
                  for model, dtype in ((self.double, torch.double), (self.single, None))]
        target = torch.randint(logits[0].shape[1], logits[0].shape[:1],
                               generator=self.generator)
        if not logits[0].requires_grad:
            return
        losses = [F.cross_entropy(y, target) for y in logits]
        for loss in losses:
            loss.backward()
        found = self.net.train_step(*inputs.values(), target,
                                    optimizer=self.optimizers.remote)
        self.comparison.tensor("loss", torch.tensor(found), *losses)
        self.optimizers.step(on_server=True)

    def _inputs(self, batch: int, laid_out: bool = True) -> dict[str, torch.Tensor]:
        scale = self.rng.choice((1, 1, 3))
        return {name: self._laid_out(scale * torch.randn(
            batch, *shape, generator=self.generator), laid_out)
            for name, shape in self.drawn.shapes.items()}

    def _laid_out(self, x: torch.Tensor, wanted: bool) -> torch.Tensor:
        """Returns the values, perhaps in another layout."""
        kind = self.rng.random() if wanted else 1
        if kind < 0.2 and x.dim() == 4:
            return x.to(memory_format=torch.channels_last)
        if kind < 0.35:
            order = list(reversed(range(x.dim())))
            return x.permute(*order).contiguous().permute(*order)
        if kind < 0.4:
            return x.repeat_interleave(2, -1)[..., ::2]
        return x

    def _run(self, manner: str) -> None:
        self.tell(manner)
        batch = 0 if manner == "empty" else self.rng.randint(2, 6)
        inputs = self._inputs(batch)
        needs = {name: self.chance(0.5) for name in inputs}
        own = [{name: x.detach().to(dtype).clone(memory_format=torch.preserve_format)
                .requires_grad_(needs[name]) for name, x in inputs.items()}
               for dtype in (torch.double, torch.float, torch.float)]
        outputs, draws = [], self.rng.random()
        with self._allowing("empty", manner == "empty"):
            try:
                for model, given in zip((self.double, self.single, self.net), own):
                    random.seed(draws)  # because a forward may use Python's generator
                    outputs.append(self._forward(model, given, manner))
            except (RuntimeError, ValueError, IndexError) as error:
                if manner != "empty" or isinstance(error, convgrad.ConvgradError):
                    raise
                return  # torch accepts no such batch
            self._compare_outputs(outputs)
            if manner != "no_grad" and not self.comparison.differences:
                self._backward(outputs, own, manner)

    def _forward(self, model, given, manner):
        def call():
            if manner == "no_grad":
                with torch.no_grad():
                    return model(**given)
            if manner == "checkpoint":
                return checkpoint(model, *given.values(), use_reentrant=False)
            return model(**given)

        if manner == "thread":
            with concurrent.futures.ThreadPoolExecutor(1) as another:
                found = another.submit(call).result()
        else:
            found = call()
        return found if isinstance(found, tuple) else (found,)

    def _compare_outputs(self, outputs) -> None:
        for i, (double, single, found) in enumerate(zip(*outputs)):
            self.comparison.tensor(f"output {i}", found, double, single)
            self.comparison.equal(f"output {i}: requires_grad", found.requires_grad,
                                  double.requires_grad)

    def _backward(self, outputs, own, manner) -> None:
        used = [i for i, y in enumerate(outputs[0]) if y.requires_grad]
        if len(used) > 1 and self.chance(0.5):
            used = self.rng.sample(used, self.rng.randint(1, len(used) - 1))
        if not used:
            return
        self.tell(f"backward of outputs {used} of {len(outputs[0])}, {manner}")
        scale, is_square = self.rng.choice((1, 0.1)), self.chance(0.5)
        wanted = [scale * torch.randn(y.shape, generator=self.generator) for y in outputs[1]]
        if manner == "frozen":
            self.may_refuse.add("frozen")
            for model in self.models:
                model.requires_grad_(False)
        for results in outputs:
            loss = sum(_loss(results[i], wanted[i].to(results[i].dtype), is_square)
                       for i in used)
            if manner == "twice":
                loss.backward(retain_graph=True)
            loss.backward()
        if manner == "frozen":
            for model in self.models:
                model.requires_grad_(True)
        for name in own[0]:
            self.comparison.gradient(f"input {name}", own[2][name].grad, own[0][name].grad,
                                     own[1][name].grad)

    @contextlib.contextmanager
    def _allowing(self, option: str, wanted: bool):
        """Allows the client to refuse `option` inside the block, if `wanted`."""
        if wanted:
            self.may_refuse.add(option)
        yield
        self.may_refuse.discard(option)

    def _go_on_from_equal_values(self) -> None:
        """Resets all networks to equal values, because accumulated rounding would at some point
        cross a ReLU's zero."""
        state = self.net.state_dict()
        for model in (self.double, self.single):
            with torch.no_grad():
                for name, tensor in model.state_dict().items():
                    tensor.copy_(state[name])
        gradients = self.net.gradients()
        for model in (self.double, self.single):
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    parameter.grad.copy_(gradients[name])
        self.optimizers.go_on_from_equal_values()


def _loss(y, wanted, is_square):
    terms = (y - wanted) ** 2 if is_square else y * wanted
    return terms.sum() / math.sqrt(max(y.numel(), 1))
