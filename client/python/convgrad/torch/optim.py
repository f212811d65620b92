"""Provides the optimizers SGD, Adam, AdamW, RMSprop and Lamb for parameters on a server.

For schedulers they are torch's Optimizers. They step on the server: step() sends the step and
doesn't wait.
"""

from __future__ import annotations

from typing import Any

from convgrad.errors import invalid
from convgrad.torch.remote_optimizer import Parameters, RemoteOptimizer


class SGD(RemoteOptimizer):
    """The same as torch.optim.SGD."""

    algorithm = "sgd"
    states = ("momentum_buffer",)

    def __init__(self, params: Parameters, lr: float = 1e-3, momentum: float = 0.0,
                 dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False,
                 *, maximize: bool = False, **settings: Any) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise invalid("OUT_OF_RANGE", "nesterov", nesterov,
                          "False, or a momentum without dampening beside it")
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening,
                                      weight_decay=weight_decay, nesterov=nesterov,
                                      maximize=maximize), **settings)


class Adam(RemoteOptimizer):
    """The same as torch.optim.Adam."""

    algorithm = "adam"
    states = ("step", "exp_avg", "exp_avg_sq")

    def __init__(self, params: Parameters, lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, amsgrad: bool = False, *,
                 maximize: bool = False, **settings: Any) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                                      amsgrad=amsgrad, maximize=maximize), **settings)


class AdamW(Adam):
    """The same as torch.optim.AdamW."""

    algorithm = "adamw"

    def __init__(self, params: Parameters, lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, **settings: Any) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, **settings)


class RMSprop(RemoteOptimizer):
    """The same as torch.optim.RMSprop."""

    algorithm = "rmsprop"
    states = ("step", "square_avg", "momentum_buffer", "grad_avg")

    def __init__(self, params: Parameters, lr: float = 1e-2, alpha: float = 0.99,
                 eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0,
                 centered: bool = False, *, maximize: bool = False, **settings: Any) -> None:
        super().__init__(params, dict(lr=lr, momentum=momentum, alpha=alpha, eps=eps,
                                      centered=centered, weight_decay=weight_decay,
                                      maximize=maximize), **settings)


class Lamb(Adam):
    """The same as timm.optim.Lamb with its defaults, but for the limit of the norm: that one
    is `clip_grad_norm`, and adds 1e-6 to the norm as torch does."""

    algorithm = "lamb"

    def __init__(self, params: Parameters, lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6,
                 weight_decay: float = 1e-2, *, clip_grad_norm: float = 1.0,
                 **settings: Any) -> None:
        super().__init__(params, lr, betas, eps, weight_decay,
                         clip_grad_norm=clip_grad_norm, **settings)
