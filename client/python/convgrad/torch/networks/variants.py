"""Imports and loads a network's programs, one for each setting of its modules and parameters.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from convgrad.importers import extremes
from convgrad.torch.layers.functional import autocast_dtype
from convgrad.torch.networks.forwards.effects import Call, call_of
from convgrad.torch.networks.forwards.exporting import Shape, shapes_of
from convgrad.torch.networks.importing import Loss, Variant, import_model
from convgrad.torch.networks.pipeline import Pipeline
from convgrad.torch.networks.refusals import refuse
from convgrad.torch.networks.settings import MANY, Settings, frozen
from convgrad.torch.networks.tracing import check_model, without_values
from convgrad.torch.tensors import to_array

_LOG = logging.getLogger("convgrad")
# The names of a key's parts for warnings. Settings warns about the model's own part.
_PARTS = ("inputs of other shapes or dtypes", "other arguments that are no tensors",
          "another dtype of autocast", "", "another loss or other keywords of it")
# The call that a program for other processes is for.
PREDICTION = Call(enables_grad=False)


def predicting(model: nn.Module, inputs: Mapping[str, Shape],
               constants: Mapping[str, Any]) -> Variant:
    """Returns the program of a model's eval mode, in which no parameter is trained. Different
    processes with the same model get the same program and name, whatever they train."""
    quiet = without_values(model).eval().requires_grad_(False)
    check_model(quiet)
    return import_model(quiet, inputs, constants, call=PREDICTION)


def for_dtype(variant: Variant, compute_dtype: str) -> Variant:
    """Returns the variant for runs in this dtype. Numbers such as torch.finfo(x.dtype).max are
    those of float32, in which a forward is exported."""
    program = extremes.for_dtype(variant.program, compute_dtype)
    if compute_dtype != "bf16":
        return replace(variant, program=program)
    program, constants = extremes.with_constants(
        program, {name: to_array(tensor) for name, tensor in variant.constants.items()})
    return replace(variant, program=program, constants={
        name: torch.from_numpy(array) for name, array in constants.items()})


def key_of(shapes: Mapping[str, Shape], constants: Mapping[str, Any],
           settings: Settings) -> tuple[Any, ...]:
    """Returns a key that differs where an export may give another program."""
    return (tuple(shapes.items()), frozen(dict(constants)), autocast_dtype(torch.empty(0)),
            settings.key)


def of_batches(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the key for the call's batches alone."""
    return (tuple((name, shape.fixed()) for name, shape in key[0]), *key[1:])


def check_kept(variant: Variant, key: tuple[Any, ...],
                variants: Mapping[Any, Variant]) -> None:
    """Raises Unimplemented if modules keep tensors that may follow from other sizes, arguments
    or kinds of calls. The keys begin as those of key_of(), and may end with a Call."""
    def given(key: tuple[Any, ...]) -> list[Any]:
        return [*key[:2], *(one for one in key[-1:] if isinstance(one, Call))]

    if variant.keeps and any(
            other.keeps and given(other_key) != given(key)
            and other.name != variant.name for other_key, other in variants.items()):
        raise refuse("forward", "inputs of other sizes, other arguments or another kind of "
                     "call than before, and tensors that modules keep since", "the same ones")


class Variants:
    """Imports and loads programs on first use. Owned by one thread."""

    def __init__(self, model: nn.Module, settings: Settings, pipeline: Pipeline) -> None:
        self._model = model
        self._settings = settings
        self._pipeline = pipeline
        self._variants: dict[Any, Variant] = {}
        self._exports = collections.Counter[str]()
        self._last: tuple[Any, ...] = ()
        self._loaded: set[str] = set()
        self._constants: dict[str, torch.Tensor] = {}

    def find(self, inputs: Mapping[str, torch.Tensor], constants: Mapping[str, Any],
             compute_dtype: str, loss: Loss | None = None) -> Variant:
        """Returns the program for the settings at the last look and these inputs' shapes, with
        any batch size above 1 unless the forward depends on it. Requires: `compute_dtype`
        differs between two calls only if autocast does."""
        shapes = shapes_of(inputs)
        key = (*key_of(shapes, constants, self._settings), loss)
        call = call_of(inputs)
        if loss is not None:
            call = replace(call, enables_grad=True, is_inference=False)
        for asked in (None, call):
            full = (*key, asked)
            variant = self._variants.get(full) or self._variants.get(of_batches(full))
            if variant is not None:
                return variant
        self._count(of_batches(key))
        check_model(self._model)
        variant = for_dtype(import_model(self._model, shapes, constants, loss, call),
                            compute_dtype)
        full = (*key, call if variant.asks else None)
        if variant.is_of_batches:
            full = of_batches(full)
        check_kept(variant, full, self._variants)
        if variant.name not in self._loaded:
            self.load(variant)
            self._loaded.add(variant.name)
        self._variants[full] = variant
        return variant

    def _count(self, key: tuple[Any, ...]) -> None:
        """Warns once about what often makes another export."""
        for part, now, before in zip(_PARTS, key, self._last):
            self._exports[part] += now != before
            if part and now != before and self._exports[part] == MANY:
                _LOG.warning("the network has exported its model %d times for %s, and each "
                             "export takes time", MANY, part)
        self._last = key

    def load(self, variant: Variant) -> None:
        """Loads a program and its constants. Puts each constant only once, because another put
        would end the tapes that use it."""
        self._pipeline.put({name: tensor for name, tensor in variant.constants.items()
                            if name not in self._constants})
        self._constants.update(variant.constants)
        with variant.naming_steps():
            self._pipeline.call(self._pipeline.session.load_program, variant.name,
                                variant.program)

    def put_again(self) -> None:
        """Puts the constants that the session has lost. It keeps its programs."""
        kept = self._pipeline.call(self._pipeline.session.tensors)
        self._pipeline.put({name: tensor for name, tensor in self._constants.items()
                            if name not in kept})
