"""Defines a network that predicts with weights that another process trains."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from convgrad.attached import Attached, refuse, refused
from convgrad.errors import FailedPrecondition, NotFound, SessionExpired
from convgrad.torch.networks import variants
from convgrad.torch.networks.absent import names_of_state, saved
from convgrad.torch.networks.forwards.effects import call_of
from convgrad.torch.networks.forwards.exporting import Shape, shapes_of
from convgrad.torch.networks.importing import Variant, filled
from convgrad.torch.networks.module import RemoteModule, signed
from convgrad.torch.networks.refusals import refuse as refuse_model
from convgrad.torch.networks.run import compute_dtype_of, inputs_of, taken
from convgrad.torch.networks.settings import Settings
from convgrad.torch.networks.tracing import bind, without_values
from convgrad.torch.tensors import to_tensor


class AttachedNetwork(RemoteModule):
    """Predicts with the newest committed weights of a session that another process trains.

    Takes the arguments of the model's forward and computes in eval mode. Each call uses the
    weights and buffers as one committed change has left them, and neither sends nor fetches
    weights. `state_dict()` fetches such a set. Methods that would train raise
    FailedPrecondition; `train()` has no effect.

    Requires: the process that trains has called RemoteNetwork.prepare(), which loads the
    program. Thread-safe, except for changes of `model`.
    """

    load_state_dict = refused("load_state_dict", "network")
    named_parameters = refused("named_parameters", "network")

    def __init__(self, model: nn.Module, attached: Attached, dtype: torch.dtype) -> None:
        """Only remote() calls this."""
        super().__init__(without_values(model).eval().requires_grad_(False))
        self.session = attached
        self._dtype = dtype
        self._settings = Settings(self.model)
        self._is_other = False
        self._variants: dict[Any, Variant] = {}
        self._lock = threading.Lock()
        self._finish()

    @signed
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inputs, constants = bind(self.model, args, kwargs)
        for name, tensor in inputs.items():
            if tensor.requires_grad and torch.is_grad_enabled():
                raise FailedPrecondition.of(
                    name, "an input that requires a gradient, for an attached network",
                    "torch.no_grad(), or the network of the process that trains")
        dtype = compute_dtype_of(inputs, self._dtype)
        variant = self._variant(shapes_of(inputs), constants, dtype)
        if variant.asks and call_of(inputs) != variants.PREDICTION:
            raise refuse_model("forward", "a question about its call, for an attached network",
                               "calls under torch.no_grad() whose inputs need no gradient")
        used = variant.used(inputs)
        try:
            run = self.session.run(
                variant.name, inputs_of(variant, used, dtype, self.session.client),
                compute_dtype=dtype)
        except NotFound as error:
            if isinstance(error, SessionExpired) or error.field != "program":
                raise
            raise FailedPrecondition.of(
                "network", "a session without the program of this model's eval mode",
                "net.prepare(*inputs) of the same model in the process that trains") from None
        like = next(iter(used.values()), torch.empty(0))
        return filled(variant.returned,
                      [taken(run, name, like) for name in variant.sources])

    @property
    def _parameters(self) -> Any:
        """Hides the parameters from a module around this one, which may train its own."""
        return {}

    @_parameters.setter
    def _parameters(self, _none: Any) -> None:
        """Does nothing; nn.Module's constructor sets the attribute."""

    def requires_grad_(self, requires_grad: bool = True) -> AttachedNetwork:
        if requires_grad:
            refuse("requires_grad_", "network")
        return self

    def train(self, mode: bool = True) -> AttachedNetwork:
        """Stays in eval mode, so that a module that contains this one can train."""
        self.model.eval()
        return self

    def _load_from_state_dict(self, *_arguments: Any) -> None:
        """Loads nothing when a module that contains this one is loaded, because the weights
        belong to another process."""

    def close(self) -> None:
        """Ends the attachment; the session stays open."""
        self.session.close()

    def __enter__(self) -> AttachedNetwork:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _variant(self, inputs: Mapping[str, Shape], constants: Mapping[str, Any],
                 compute_dtype: str) -> Variant:
        """Returns the program for the model's current settings."""
        with self._lock:
            self._is_other |= self._settings.look()
            if self._is_other:
                raise refuse_model("modules", "other modules or tensors than remote() got",
                                   "convgrad.torch.remote(model, attached) of the new model")
            if any(module.training for module in self.model.modules()):
                refuse("train", "network")
            key = variants.key_of(inputs, constants, self._settings)
            variant = self._variants.get(key) or self._variants.get(variants.of_batches(key))
            if variant is None:
                variant = variants.for_dtype(
                    variants.predicting(self.model, inputs, constants), compute_dtype)
                key = variants.of_batches(key) if variant.is_of_batches else key
                variants.check_kept(variant, key, self._variants)
                self._variants[key] = variant
            return variant

    def _fetched_state(self) -> Any:
        """Fetches parameters and buffers, all as of one change."""
        found = self.session.get(dict.fromkeys(names_of_state(self.model).values()))
        return saved(without_values(self.model), {
            name: to_tensor(array, torch.empty(0)) for name, array in found.items()})


for _name in ("forward_backward", "submit_forward_backward", "train_step", "submit_train_step",
              "gradients", "zero_grad", "clip_grad_norm_", "put", "prepare", "parameters"):
    setattr(AttachedNetwork, _name, refused(_name, "network"))
