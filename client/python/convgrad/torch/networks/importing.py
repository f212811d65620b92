"""Makes a program of a model."""

from __future__ import annotations

import contextlib
import functools
import numbers
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from convgrad.errors import ConvgradError, invalid
from convgrad.importers.steps import WITHOUT_GRADIENT
from convgrad.programs import Attribute, Program
from convgrad.torch.networks.forwards.effects import Asked, Call
from convgrad.torch.networks.forwards.exporting import Output, Shape, again_of, export
from convgrad.torch.networks.forwards.graphs import mapped
from convgrad.torch.networks.importer import Importer
from convgrad.torch.networks.operators.given import Prelude
from convgrad.torch.networks.operators.values import text_of
from convgrad.torch.networks.refusals import refuse


def filled(structure: Any, outputs: Sequence[Any]) -> Any:
    """Returns what a forward returns, with outputs for what stands for them."""
    if isinstance(structure, Output):
        y = outputs[structure.index]
        return y if structure.rank >= 2 else y.reshape(y.shape[2 - structure.rank:])
    if not isinstance(structure, (dict, tuple, list)):
        return structure
    return mapped(lambda one: filled(one, outputs), structure)


# Parses the path of StepPath in backends/core/program/program.cc.
_STEP = re.compile(r"steps\[\d+\] \(([^)]*)\)")


@dataclass(frozen=True)
class Variant:
    """A model's forward as a program, for one setting of the model's modules and parameters."""

    program: Program
    returned: Any
    """What the forward returns, with Output for each tensor."""
    trainable: tuple[str, ...]
    """Parameters whose gradients a backward gives."""
    sources: Mapping[str, frozenset[str]]
    """By output of the program, the inputs, parameters and outputs that it depends on."""
    places: Mapping[str, str]
    """By the step's name, the module and the line of a forward that it comes from."""
    constants: Mapping[str, torch.Tensor]
    """Values of parameters that the model doesn't have, by name."""
    keeps: bool
    """Whether modules keep tensors of the first call, which may follow from its sizes."""
    asks: bool
    """Whether the forward has asked about its call, so that the program is for such calls."""
    prelude: Prelude
    """Computes those inputs that aren't arguments."""
    is_of_batches: bool = False
    """Whether the forward depends on its batches, so that the program is for these alone."""
    target: str = ""
    """The input that the loss compares with; none without a loss."""

    @functools.cached_property
    def name(self) -> str:
        """The program's name in a session, which follows from its content."""
        return f"program-{self.program.digest()[:32]}"

    @functools.cached_property
    def inputs(self) -> tuple[str, ...]:
        """The arguments that the outputs depend on, and inputs that the prelude computes."""
        return tuple(entry.name for entry in self.program.message.inputs)

    @functools.cached_property
    def images(self) -> frozenset[str]:
        """Inputs that only convolutions read."""
        return self.program.images

    @functools.cached_property
    def indices(self) -> frozenset[str]:
        """Inputs that have indices."""
        return frozenset(one.name for one in self.program.message.inputs if one.is_index)

    def used(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Returns the inputs that the program has, with those that the client computes."""
        return {**{name: x for name, x in inputs.items() if name in self.inputs},
                **self.prelude(inputs)}

    def sources_of(self, outputs: Iterable[str]) -> set[str]:
        """Returns the inputs, parameters and outputs that the outputs depend on."""
        return set().union(*(self.sources[name] for name in outputs))

    @contextlib.contextmanager
    def naming_steps(self) -> Iterator[None]:
        """Adds module and line to errors of the block that name a step."""
        try:
            yield
        except ConvgradError as error:
            self.name_step(error)
            raise

    def name_step(self, error: BaseException) -> None:
        """Adds module and line to the error if it names a step of the program."""
        step = _STEP.match(error.field) if isinstance(error, ConvgradError) else None
        place = self.places.get(step[1]) if step else None
        if isinstance(error, ConvgradError) and place:
            error.message += f"; the step comes from {place}"


@dataclass(frozen=True)
class Loss:
    """A loss at a program's end: "cross_entropy" or "mse", with its attributes."""

    operator: str
    attributes: tuple[tuple[str, Attribute], ...] = ()
    is_index: bool = False
    """Whether the target has class indices, not numbers."""
    weight: tuple[float, ...] = ()
    """A factor for each class of a cross_entropy; none: 1."""


_NO_INDICES = (torch.bool, torch.complex32, torch.complex64, torch.complex128)
_LOSSES = ("cross_entropy", "mse", "l1", "smooth_l1", "binary_cross_entropy_with_logits")


def loss_of(operator: str, keywords: Mapping[str, Any], target: torch.Tensor) -> Loss:
    """Returns the loss with these keywords for such a target. Errors: InvalidArgument."""
    if operator not in _LOSSES:
        raise invalid("INVALID_ENUM", "loss", operator, " or ".join(_LOSSES))
    is_index = operator == "cross_entropy" and not torch.is_floating_point(target)
    if operator == "cross_entropy" and (
            target.dtype in _NO_INDICES if is_index else target.dim() < 2):
        raise invalid("DTYPE_MISMATCH", "target", f"{target.dtype} of {tuple(target.shape)}",
                      "class indices in torch.int64, or probabilities shaped like the logits")
    attributes = dict(keywords)
    weight = attributes.pop("weight", None)
    if weight is not None and operator != "cross_entropy":
        raise invalid("INVALID_ENUM", "weight", f"one of {operator}", "one of cross_entropy")
    for name, value in attributes.items():
        if not isinstance(value, (numbers.Real, str)):
            raise invalid("INVALID_ENUM", name, value, "a number or a word")
    return Loss(operator, tuple(attributes.items()), is_index, _numbers("weight", weight))


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    """Returns what a tensor of one axis or a sequence has; none of None."""
    if values is None:
        return ()
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        tensor = torch.tensor(float("nan"))
    if tensor.dim() != 1 or not len(tensor) or tensor.is_complex() or not (
            tensor.double().isfinite().all()):
        raise invalid("OUT_OF_RANGE", name, values, "a finite number for each class")
    return tuple(tensor.double().tolist())


def import_model(model: nn.Module, inputs: Mapping[str, Shape], constants: Mapping[str, Any],
                 loss: Loss | None = None, call: Call | None = None) -> Variant:
    """Takes the model apart. With `loss` its result is the first output.
    `call` is what the forward is told if it asks.

    Errors: Unimplemented naming modules and operators, all that programs don't have.
    """
    try:
        return _import(model, inputs, constants, loss, call)
    except ConvgradError:  # perhaps since the forward depends on the batch
        fixed = {name: shape.fixed() for name, shape in inputs.items()}
    return replace(_import(model, fixed, constants, loss, call), is_of_batches=True)


def _import(model: nn.Module, inputs: Mapping[str, Shape], constants: Mapping[str, Any],
            loss: Loss | None, call: Call | None) -> Variant:
    asks = False
    try:
        exported = export(model, inputs, constants, None)
    except Asked:
        asks = True
        exported = export(model, inputs, constants, call or Call())
    importer = Importer(model, exported)
    results = importer.follow()
    program = importer.program
    if exported.change is not None:
        results = _first_call(program.message, inputs, results)
        if not results or program.is_training:  # a kept tensor has one mask of a dropout
            raise exported.change
    found, target = list[str](), ""
    if loss is not None:
        if not isinstance(exported.outputs, Output):
            raise refuse("forward", "several outputs",
                         f"one, for the server to compute {loss.operator} of")
        target = program.input(program.free_name("target"), is_index=loss.is_index)
        if len(results[0].shape) < 2:
            raise refuse("forward", f"a result of {text_of(results[0].shape)}",
                         f"two axes at least, for the server to compute {loss.operator} of")
        operands = [results[0].name, target]
        if loss.weight:
            weight = torch.tensor(loss.weight, dtype=torch.float32)
            operands.append(importer.constant(weight).name)
        found.append(program.step(loss.operator, *operands, name="loss",
                                  attributes=dict(loss.attributes)))
    returned: Any = exported.nodes[-1].args[0]
    for value, node in zip(results, returned):
        dtype = node.meta["val"].dtype
        if not dtype.is_floating_point:
            raise refuse("forward", f"{dtype} among what it returns", "torch.float32")
        if value.kind not in ("a result", "a loss"):
            raise refuse("forward", f"{value.kind}, {value.name}, among what it returns",
                         "only results of operators: the caller has its inputs")
        if value.name not in found:
            found.append(value.name)
    structure = filled(exported.outputs, [
        Output(found.index(value.name), min(len(value.shape), 2)) for value in results])
    program.output(*found)
    counted = set(importer.counted)
    program.prune()
    message = program.message
    _check_indices(message)
    lost = counted.difference(step.result for step in message.steps)
    if lost:
        raise refuse(min(lost), "running statistics of what no output depends on",
                     "its eval mode, or a forward that uses it")
    sources = _sources_of(message)
    reached = frozenset().union(*sources.values())
    for parameter in message.parameters:
        parameter.fixed = parameter.fixed or parameter.name not in reached
    return Variant(program, structure,
                   tuple(p.name for p in message.parameters if not p.fixed),
                   sources, importer.places,
                   {p.name: importer.constants[p.name] for p in message.parameters
                    if p.name in importer.constants}, exported.change is not None, asks,
                   importer.prelude, target=target)


def _check_indices(message: Any) -> None:
    """Raises Unimplemented if a step takes the numbers of an input that has indices."""
    indices = {entry.name for entry in message.inputs if entry.is_index}
    for step in message.steps:
        taking = step.operator in ("index_select", "cross_entropy")
        for name in indices.intersection(step.operands[:1] if taking else step.operands):
            raise refuse("forward", f"{name}, an input, as indices and as numbers",
                         "one of them, or indices in the shape that the input has")


def _first_call(message: Any, inputs: Mapping[str, Shape], results: list[Any]) -> list[Any]:
    """Returns the first one's results of two calls, none if the second one's are other
    functions of its own inputs."""
    numbers: dict[Any, int] = {}

    def functions(first: Sequence[str], second: Sequence[str]) -> dict[str, int]:
        """Returns numbers that are equal for equal functions of the first names."""
        own = {name: ("an input", i) for i, name in enumerate(first)}
        found = {one.name: numbers.setdefault((one.name,), len(numbers))
                 for one in message.parameters}
        found |= {name: numbers.setdefault(own.get(name, "another's"), len(numbers))
                  for name in (*first, *second)}
        for step in message.steps:
            what = (step.operator, *(found.get(name, -1) for name in step.operands), *(
                one.SerializeToString(deterministic=True) for one in step.attributes))
            found[step.result] = numbers.setdefault(what, len(numbers))
        return found

    again = [again_of(name) for name in inputs]
    half = len(results) // 2
    one, other = functions(list(inputs), again), functions(again, list(inputs))
    is_same = [one[y.name] for y in results[:half]] == [other[y.name] for y in results[half:]]
    return results[:half] if is_same else []


def _sources_of(message: Any) -> dict[str, frozenset[str]]:
    names = [*(one.name for one in (*message.inputs, *message.parameters)), *message.outputs]
    bits = {name: 1 << i for i, name in enumerate(names)}
    found = dict(bits)  # sets as bits, because a deep network has a large one for each step
    for step in message.steps:
        found[step.result] = bits.get(step.result, 0)
        if step.operator not in WITHOUT_GRADIENT:
            for name in filter(None, step.operands):
                found[step.result] |= found[name]
    return {output: frozenset(name for name in names if found[output] & bits[name])
            for output in message.outputs}
