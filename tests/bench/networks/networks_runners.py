"""Runs a network's training steps and inference, on the server and in PyTorch."""

import contextlib
import os

# How long GNU's OpenMP waits by default. Without a setting, the client has PyTorch's threads sleep
# for the sake of a server on the same host, which would make eager PyTorch slower here.
os.environ.setdefault("GOMP_SPINCOUNT", "300000")

import torch
from networks_models import make
from torch.nn import functional as F

import convgrad.torch

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
LAYOUTS = {"first": torch.contiguous_format, "last": torch.channels_last}


class InProcess:
    """Runs PyTorch in this process: eager, or compiled by inductor."""

    def __init__(self, name, dtype, layout, is_compiled=False):
        self._layout = LAYOUTS[layout]
        self._dtype = dtype
        self.model = make(name).to(memory_format=self._layout)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self._run = torch.compile(self.model) if is_compiled else self.model

    def _precision(self):
        if self._dtype == "f32":
            return contextlib.nullcontext()
        return torch.autocast("cpu", DTYPES[self._dtype])

    def train(self, images, labels, steps):
        """Returns the loss of each step."""
        images = images.contiguous(memory_format=self._layout)
        losses = []
        for _ in range(steps):
            self._optimizer.zero_grad()
            with self._precision():
                loss = F.cross_entropy(self._run(images), labels)
            loss.backward()
            self._optimizer.step()
            losses.append(loss.item())
        return losses

    def infer(self, images, steps):
        """Returns the outputs."""
        images = images.contiguous(memory_format=self._layout)
        with torch.no_grad(), self._precision():
            for _ in range(steps):
                outputs = self._run(images)
        return outputs

    def eval(self):
        self.model.eval()

    def close(self):
        pass


class OnServer:
    """Runs the network on the server. Submits training steps without waiting."""

    def __init__(self, name, dtype, client, fast=False):
        self._net = convgrad.torch.remote(make(name), client, dtype=DTYPES[dtype], fast=fast)
        self._optimizer = convgrad.torch.optim.SGD(self._net.parameters(), lr=0.01,
                                                   momentum=0.9)

    def submit(self, images, labels):
        """Sends a training step, and returns a future of its loss."""
        return self._net.submit_train_step(images, labels, optimizer=self._optimizer)

    def train(self, images, labels, steps):
        """Returns the loss of each step, after the last update."""
        losses = [self.submit(images, labels) for _ in range(steps)]
        self._net.wait()
        return [loss.result() for loss in losses]

    def infer(self, images, steps):
        """Returns the outputs."""
        with torch.no_grad():
            for _ in range(steps):
                outputs = self._net(images)
        return outputs

    def eval(self):
        self._net.eval()

    def close(self):
        self._net.close()
