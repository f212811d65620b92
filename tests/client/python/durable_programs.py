"""Makes the networks that durable_training.py trains: a small one, and one like ResNet-18."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

import convgrad
from convgrad.programs import RANDOMNESS

BATCH = 4
# Blocks of ResNet-18 in each of its four stages, and the channels of the first one.
RESNET_BLOCKS, RESNET_CHANNELS = 2, 64


@dataclass
class Network:
    """A program that is being built, with the tensors that it begins with."""

    size: int
    classes: int
    optimizer: tuple[str, dict[str, float]]
    program: convgrad.Program = field(default_factory=convgrad.Program)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    trained: list[str] = field(default_factory=list)
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def weight(self, name: str, shape: tuple[int, ...]) -> str:
        self.trained.append(name)
        scale = (2 / np.prod(shape[1:])) ** 0.5
        self.tensors[name] = (scale * self._rng.normal(size=shape)).astype(np.float32)
        return self.program.parameter(name, shape)

    def conv_bn(self, x: str, name: str, shape: tuple[int, ...], stride: int = 1) -> str:
        """Adds a convolution with the padding that keeps the size, and a batch_norm."""
        x = self.program.step("conv", x, self.weight(name, shape), None, name=f"{name}.c",
                              attributes={"padding": shape[-1] // 2, "stride": stride})
        operands = []
        for part, value in (("weight", 1), ("bias", 0), ("mean", 0), ("var", 1)):
            is_fixed = part in ("mean", "var")
            if not is_fixed:
                self.trained.append(f"{name}.{part}")
            self.tensors[f"{name}.{part}"] = np.full(shape[0], value, np.float32)
            operands.append(self.program.parameter(f"{name}.{part}", shape[:1], fixed=is_fixed))
        self.tensors[f"{name}.count"] = np.array(0, np.int64)
        count = self.program.parameter(f"{name}.count", (), dtype="i64", fixed=True)
        return self.program.step("batch_norm", x, *operands, count, name=f"{name}.b",
                                 attributes={"training": True, "momentum": 0.1})

    def finish(self, x: str, channels: int) -> Network:
        """Adds the classifier "y" and the loss."""
        x = self.program.step("adaptive_avg_pool", x, name="a",
                              attributes={"output_size": [1, 1]})
        x = self.program.step("reshape", x, name="f", attributes={"shape": [-1, channels]})
        weight = self.weight("fc", (self.classes, channels))
        y = self.program.step("linear", x, weight, None, name="y")
        target = self.program.input("target", is_index=True)
        self.program.output(
            self.program.step("cross_entropy", y, target, name="loss"), y)
        return self

    def batch(self, step: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(step)
        return {"x": rng.normal(size=(BATCH, 3, self.size, self.size)).astype(np.float32),
                "target": rng.integers(0, self.classes, BATCH)}

    def update(self) -> convgrad.Update:
        algorithm, settings = self.optimizer
        return convgrad.Update(algorithm,
                               [convgrad.ParameterGroup(self.trained, **settings)])


def small() -> Network:
    """Two convolutions with a dropout behind them, trained by Adam."""
    net = Network(10, 4, ("adam", {"learning_rate": 0.01}))
    x = net.program.input("x")
    for i, channels in enumerate((3, 8)):
        x = net.program.step("relu", net.conv_bn(x, f"conv{i}", (8, channels, 3, 3)),
                             name=f"r{i}")
    net.tensors[RANDOMNESS] = np.array([7, 0], np.int64)
    x = net.program.step("dropout", x, name="d", attributes={"p": 0.2, "training": True})
    return net.finish(x, 8)


def resnet18() -> Network:
    """ResNet-18 for images of 32x32, trained by SGD with momentum."""
    net = Network(32, 1000, ("sgd", {"learning_rate": 0.01, "momentum": 0.9}))
    step = net.program.step
    channels = RESNET_CHANNELS
    x = step("relu", net.conv_bn(net.program.input("x"), "stem", (channels, 3, 7, 7), 2))
    x = step("max_pool", x, attributes={"kernel_size": [3, 3], "stride": 2, "padding": 1})
    for stage in range(4):
        out = RESNET_CHANNELS << stage
        for block in range(RESNET_BLOCKS):
            name, stride = f"{stage}.{block}", 2 if out != channels else 1
            y = step("relu", net.conv_bn(x, f"{name}.1", (out, channels, 3, 3), stride))
            y = net.conv_bn(y, f"{name}.2", (out, out, 3, 3))
            if out != channels:
                x = net.conv_bn(x, f"{name}.down", (out, channels, 1, 1), stride)
            x = step("relu", step("add", y, x))
            channels = out
    return net.finish(x, channels)


NETWORKS = {"small": small, "resnet18": resnet18}
