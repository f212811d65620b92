"""Makes networks of random layers, branches, calls in place and outputs."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from random_layers import CONVOLUTIONS, NORMS, Layers, elements
from torch import nn

_MOST_ELEMENTS = 30_000  # of a sample's value


class _Halved(torch.autograd.Function):
    """Returns the same values, with half the gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 0.5


def _add_in_place(x, y):
    x += y
    return x


def _chain(x, y):
    x.add_(y).relu_()
    return x


def _chain_of_three(x, y):
    x.add_(y).add_(y).relu_()
    return x


def _result_of_chain(x, y):
    return x.add_(y).relu_()


def _contiguous(x):
    y = x.contiguous()
    y.relu_()
    return x


def _without_gradient(x):
    with torch.no_grad():
        return F.relu(x)


CALLS = {
    "add": lambda x, y: x + y, "mul": lambda x, y: x * y,
    "concat": lambda *values: torch.cat(values, 1), "relu": F.relu,
    "relu_": lambda x: F.relu(x, inplace=True), "add_": _add_in_place, "chain": _chain,
    "chain_of_three": _chain_of_three,
    "result_of_chain": _result_of_chain, "contiguous": _contiguous,
    "halved": _Halved.apply, "no_grad": _without_gradient,
    "detached": lambda x: x.detach() + x,
}
# Features that a client may refuse by name.
MAY_BE_REFUSED = ("contiguous", "halved", "counts", "calls", "chance")


@dataclass(frozen=True)
class Step:
    """`what` is the number of a module, or the name of one of CALLS."""

    result: int
    what: int | str
    operands: tuple[int, ...]


class Net(nn.Module):
    """Computes the steps. Value 0 is `x`, -1 is `z`."""

    def __init__(self, modules, steps, outputs, traits):
        super().__init__()
        self.layers = nn.ModuleList(modules)
        self.steps, self.outputs, self.traits = tuple(steps), tuple(outputs), traits
        self.calls = 0
        if "counts" in traits:
            self.register_buffer("n", torch.zeros((), dtype=torch.int64))

    def forward(self, x, z=None):
        values = {0: x, -1: z}
        if "counts" in self.traits:
            self.n += 1
        if "calls" in self.traits:
            self.calls += 1
        for step in self.steps:
            function = (self.layers[step.what] if isinstance(step.what, int)
                        else CALLS[step.what])
            values[step.result] = function(*(values[i] for i in step.operands))
        results = [values[i] for i in self.outputs]
        if "calls" in self.traits and self.calls % 2 or (
                "chance" in self.traits and random.random() < 0.5):
            results[0] = F.relu(results[0])
        return results[0] if len(results) == 1 else tuple(results)


@dataclass
class Drawn:
    """A network and its inputs' descriptions."""

    net: Net
    shapes: dict[str, tuple[int, ...]]
    """The shape of one sample of each input."""
    options: set[str] = field(default_factory=set)
    """The elements of MAY_BE_REFUSED that the network has."""


def draw(seed: str) -> Drawn:
    """Returns a network that torch can train."""
    for attempt in range(20):
        found = _Generator(random.Random(f"{seed}/{attempt}"), attempt < 8).draw()
        if found is not None and _can_be_trained(found):
            return found
    raise AssertionError(f"seed {seed}: no network")


def inputs_of(drawn: Drawn, batch: int, generator=None) -> dict[str, torch.Tensor]:
    return {name: torch.randn(batch, *shape, generator=generator)
            for name, shape in drawn.shapes.items()}


def _can_be_trained(drawn: Drawn) -> bool:
    """Returns false if torch refuses the backward, because values were changed in place."""
    if not list(drawn.net.parameters()):
        return False
    net = copy.deepcopy(drawn.net)
    try:
        outputs = net(**{k: v.requires_grad_() for k, v in inputs_of(drawn, 2).items()})
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        sum(y.sum() for y in outputs).backward()
    except (RuntimeError, ValueError):
        return False
    return True


class _Generator:
    """Draws one network."""

    def __init__(self, rng: random.Random, in_place: bool) -> None:
        self._rng = rng
        self._in_place = in_place
        self._axes = rng.choice((1, 2, 2, 2, 2, 3))
        self._layers = Layers(rng, self._axes)
        self._modules: list[nn.Module] = []
        self._steps: list[Step] = []
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._last = 0

    def draw(self) -> Drawn | None:
        rng = self._rng
        limit = {1: 20, 2: 14, 3: 7}[self._axes]
        shape = (rng.choice((1, 2, 3, 3, 4, 5, 8, 16, 17)),
                 *(rng.randint(max(3, limit // 2), limit) for _ in range(self._axes)))
        self._shapes[0] = shape
        inputs = {"x": shape}
        if self._layers.chance(0.25):
            self._shapes[-1] = inputs["z"] = shape
            # Uses the second input, so that at least one output depends on it.
            self._call(rng.choice(("add", "concat")), 0, -1) if self._layers.chance(
                0.5) else self._layer(self._layers.conv(shape[0]), -1)
        for _ in range(rng.randint(2, 9)):
            self._step()
        outputs = [self._head() if self._layers.chance(0.6) else self._last]
        others = [i for i in self._shapes if i > 0 and i != outputs[0]]
        while others and self._layers.chance(0.3):
            outputs.append(others.pop(rng.randrange(len(others))))
        traits = {t for t in ("counts", "calls", "chance") if self._layers.chance(0.02)}
        if outputs[0] <= 0:
            return None
        net = Net(self._modules, self._steps, outputs, traits)
        return Drawn(net, inputs, traits | {
            step.what for step in self._steps if step.what in MAY_BE_REFUSED})

    def _step(self) -> None:
        kinds = dict(conv=5, conv_transpose=1, norm=3, activation=3, max_pool=1, average_pool=1,
                     adaptive_pool=1, upsample=1, skip=2, gate=1, concat=1, branch=1,
                     nothing=1, tied=1, in_place=2, special=0.15)
        kind = self._rng.choices(list(kinds), list(kinds.values()))[0]
        if len(self._shapes[self._last]) == self._axes + 1:
            getattr(self, f"_{kind}_step")(self._last, self._shapes[self._last])

    # The methods below append one kind of step each. Its result is the last value.

    def _conv_step(self, of, shape):
        self._layer(self._layers.conv(shape[0]), of)

    def _conv_transpose_step(self, of, shape):
        self._layer(self._layers.conv_transpose(shape[0]), of)

    def _norm_step(self, of, shape):
        if elements(shape[1:]) > 1:
            self._layer(self._layers.norm(shape[0]), of)

    def _activation_step(self, of, shape):
        layer = self._layers.activation()
        if of > 0 and self._in_place or not getattr(layer, "inplace", False):
            self._layer(layer, of)

    def _max_pool_step(self, of, shape):
        self._layer(self._layers.max_pool(), of)

    def _average_pool_step(self, of, shape):
        self._layer(self._layers.average_pool(), of)

    def _adaptive_pool_step(self, of, shape):
        self._layer(self._layers.adaptive_pool(), of)

    def _upsample_step(self, of, shape):
        self._layer(self._layers.upsample(), of)

    def _nothing_step(self, of, shape):
        layer = self._layers.nothing()
        if of > 0 or not getattr(layer, "inplace", False):
            self._layer(layer, of)

    def _skip_step(self, of, shape):
        same = [i for i, s in self._shapes.items() if s == shape and i != 0]
        self._call(self._rng.choice(("add", "add", "mul")), of,
                   self._rng.choice(same) if same else of)
        if self._layers.chance(0.6):
            self._call("relu", self._last)

    def _branch_step(self, of, shape):
        """Appends a residual block's branch."""
        branch = self._layer(self._layers.same_conv(shape[0]), of)
        if branch is None:
            return
        if elements(shape[1:]) > 1:
            branch = self._layer(self._layers.plain_norm(shape[0]), branch)
        if self._layers.chance(0.5):
            self._call("add", of, branch)
        else:
            self._call("add_" if self._in_place and self._layers.chance(0.5) else "add",
                       branch, of)
        if self._layers.chance(0.7):
            self._layer(nn.ReLU(), self._last)

    def _gate_step(self, of, shape):
        """Appends a squeeze-and-excite block's gate."""
        gate = self._layer(self._layers.adaptive_pool(1), of)
        gate = self._layer(self._layers.pointwise(shape[0]), gate)
        gate = self._layer(nn.Sigmoid(), gate)
        operands = (of, gate) if self._layers.chance(0.5) else (gate, of)
        self._call(self._rng.choice(("mul", "mul", "add")), *operands)

    def _concat_step(self, of, shape):
        same = [i for i, s in self._shapes.items()
                if s[1:] == shape[1:] and len(s) == len(shape)]
        values = [of, *self._rng.choices(same, k=self._rng.randint(1, 2))]
        self._rng.shuffle(values)
        self._call("concat", *values)

    def _tied_step(self, of, shape):
        """Uses a layer once more."""
        kinds = (*CONVOLUTIONS, *NORMS)
        fitting = [i for i, m in enumerate(self._modules) if isinstance(m, kinds) and (
            getattr(m, "in_channels", None) or m.num_features) == shape[0]]
        if fitting and elements(shape[1:]) > 1:
            self._again(self._rng.choice(fitting), of)

    def _in_place_step(self, of, shape):
        """Changes a convolution's result in place; PyTorch's backward doesn't need it."""
        fresh = self._layer(self._layers.same_conv(shape[0]), of) if self._in_place else None
        if fresh is None:
            return
        name = self._rng.choice(("relu_", "contiguous", "chain", "chain_of_three",
                                 "result_of_chain", "add_"))
        same = [i for i, s in self._shapes.items() if s == shape and i != fresh]
        others = (self._rng.choice(same),) if name not in ("relu_", "contiguous") else ()
        self._call(name, fresh, *others)

    def _special_step(self, of, shape):
        if of > 0:
            self._call(self._rng.choice(("halved", "no_grad", "detached")), of)

    def _head(self) -> int:
        layers, rng = self._layers, self._rng
        if len(self._shapes[self._last]) == self._axes + 1:
            if elements(self._shapes[self._last]) > 2000 or layers.chance(0.5):
                self._layer(layers.adaptive_pool(1), self._last)
            self._layer(nn.Flatten(), self._last)
        if layers.chance(0.4):
            self._linear(layers.channels())
            if layers.chance(0.5):
                self._layer(nn.BatchNorm1d(self._shapes[self._last][0],
                                           momentum=rng.choice((0.1, None))), self._last)
            self._layer(layers.head_activation(), self._last)
        self._linear(rng.choice((2, 3, 5, 10, 17)))
        return self._last

    def _linear(self, out: int) -> None:
        self._layer(nn.Linear(self._shapes[self._last][0], out, bias=self._layers.chance(0.8)),
                    self._last)

    def _layer(self, module: nn.Module, of: int) -> int | None:
        """Adds a module if torch accepts it; returns its result."""
        self._modules.append(module)
        found = self._again(len(self._modules) - 1, of)
        if found is None:
            self._modules.pop()
        return found

    def _again(self, index: int, of: int) -> int | None:
        module = self._modules[index]
        was_training = module.training
        try:
            with torch.no_grad():
                shape = module.eval()(torch.zeros(1, *self._shapes[of])).shape[1:]
        except (RuntimeError, ValueError):
            return None
        finally:
            module.train(was_training)
        if elements(shape) > _MOST_ELEMENTS or not elements(shape):
            return None
        return self._add(index, (of,), tuple(shape))

    def _call(self, name: str, *operands: int) -> int:
        shapes = [self._shapes[i] for i in operands]
        shape = max(shapes, key=elements)
        if name == "concat":
            shape = (sum(s[0] for s in shapes), *shape[1:])
        return self._add(name, operands, shape)

    def _add(self, what, operands, shape) -> int:
        self._last = max(self._shapes) + 1
        self._steps.append(Step(self._last, what, tuple(operands)))
        self._shapes[self._last] = shape
        return self._last
