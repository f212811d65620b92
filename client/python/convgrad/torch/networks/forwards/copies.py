"""Copies models, so that torch.export follows a copy and not the model itself."""

from __future__ import annotations

import copy
import functools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

# Untyped, because types are checked with PyTorch 1.13, which lacks some of its functions.
_TORCH: Any = torch


def copy_without_values(model: nn.Module) -> nn.Module:
    """Returns a copy of the model, with memory that isn't written in place of its values."""
    memo: dict[int, Any] = {}
    with _TORCH.inference_mode(False):
        for parameter in model.parameters():
            memo[id(parameter)] = nn.Parameter(
                torch.empty(parameter.shape, dtype=parameter.dtype), parameter.requires_grad)
        for buffer in model.buffers():
            memo[id(buffer)] = torch.empty(buffer.shape, dtype=buffer.dtype)
        copied = copy.deepcopy(model, memo)
    for module in copied.modules():
        if isinstance(module, _BatchNorm) and type(module).forward is _BatchNorm.forward:
            vars(module)["forward"] = functools.partial(_batch_norm, module)
    return copied


def _batch_norm(m: Any, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """BatchNorm's forward, also for momentum=None, whose factor torch computes from a buffer's
    value: then NaN stands for it."""
    m._check_input_dim(input)
    # Statistics that track_running_stats=False has left behind are for evaluation alone.
    uses = not m.training or m.track_running_stats
    counts = m.training and m.track_running_stats and m.num_batches_tracked is not None
    if counts:
        m.num_batches_tracked.add_(1)
    momentum = m.momentum
    if momentum is None:
        momentum = math.nan if counts else 0.0
    return F.batch_norm(
        input, m.running_mean if uses else None, m.running_var if uses else None, m.weight,
        m.bias, m.training or m.running_mean is None and m.running_var is None, momentum, m.eps)
