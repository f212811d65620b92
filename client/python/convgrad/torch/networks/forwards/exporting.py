"""Exports a model's forward as a graph, by torch.export in its training IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx
from torch import nn

from convgrad.errors import ConvgradError
from convgrad.torch.networks.forwards import effects
from convgrad.torch.networks.forwards.copies import copy_without_values
from convgrad.torch.networks.forwards.failures import Raised, failed, quiet
from convgrad.torch.networks.forwards.graphs import MODEL, calls_of_one, mapped
from convgrad.torch.networks.forwards.watching import Watch
from convgrad.torch.networks.operators.implicit import expand
from convgrad.torch.networks.operators.values import Constant
from convgrad.torch.networks.refusals import refuse
from convgrad.torch.networks.tracing import bound_again, check_version

# Untyped, because types are checked with PyTorch 1.13, which lacks some of its functions.
_TORCH: Any = torch
DROPOUT = "torch.nn.Dropout, whose numbers are drawn in each call"
# First extents of the example inputs: one for each group of inputs with equal batches.
_BATCHES = (5, 7, 11, 13, 17, 19, 23, 29)


@dataclass(frozen=True)
class Output:
    """Stands for one of a program's outputs where a forward returns it."""

    index: int
    rank: int = 2
    """The tensor's, where it is less than 2, as no program's value has."""


@dataclass(frozen=True)
class Shape:
    """An input's shape and dtype. Its batch is any above 1, or 1, or fixed."""

    group: int
    """Equal for inputs of equal batches; -1 for a batch of 1, -1 - n for a fixed one of n."""
    rest: tuple[int, ...] | None
    """None: a scalar."""
    dtype: torch.dtype
    """torch.float32 for all floating ones, which the server computes alike."""
    batch: int = field(default=1, compare=False)
    """The batch of the call."""

    def fixed(self) -> Shape:
        """Returns the shape with the call's batch alone."""
        return replace(self, group=-1 - self.batch)


def shapes_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, Shape]:
    """Returns the shapes, equal for inputs that differ in their batch alone, if it isn't 1."""
    known: dict[int, int] = {1: -1}
    found = {}
    for name, tensor in tensors.items():
        dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
        if not tensor.dim():
            found[name] = Shape(-1, None, dtype)
            continue
        group = known.setdefault(tensor.shape[0], len(known) - 1)
        found[name] = Shape(group, tuple(tensor.shape[1:]), dtype, tensor.shape[0])
    return found


@dataclass(frozen=True)
class Exported:
    """A forward's graph, and what its placeholders and results are."""

    nodes: Sequence[torch.fx.Node]
    root: nn.Module
    """The module that holds the graphs of regions, such as those of autocast."""
    tensors: Mapping[str, str]
    """By placeholder, the parameter or buffer."""
    constants: Mapping[str, Constant]
    """By placeholder, a tensor of the forward's that is neither."""
    inputs: Mapping[str, str]
    """By placeholder, the input."""
    outputs: Any
    """What the forward returns, with Output for each tensor."""
    change: ConvgradError | None
    """None: the graph is one call. Otherwise it is two, each with inputs and results of its
    own: the first one has changed attributes of modules, and the second one nothing more. The
    error is for what differs between them."""


def export(model: nn.Module, inputs: Mapping[str, Shape], constants: Mapping[str, Any],
           call: effects.Call | None) -> Exported:
    """Returns the graph of the model's forward, in the modes that its modules are in.

    `constants` are arguments of the forward that aren't tensors, by name. The graph for a batch
    of 1 is the one for any batch if both make the same calls. The graph holds for calls like
    `call`; None: for all.
    Errors: Asked if `call` is None and matters; Unimplemented or InvalidArgument naming the
    module whose forward can't be followed.
    """
    check_version()
    exported = _of_calls(model, inputs, constants, call)
    any_batch = {name: shape if shape.rest is None else replace(shape, group=0)
                 for name, shape in inputs.items()}
    if any_batch == inputs or any(shape.group != -1 for shape in inputs.values()):
        return exported
    try:
        other = _of_calls(model, any_batch, constants, call)
    except ConvgradError:  # which the graph for a batch of 1 doesn't have
        return exported
    return other if _are_equal(exported, other) else exported


def _are_equal(one: Exported, other: Exported) -> bool:
    """Returns whether the graphs make the same calls for a batch of 1."""
    def described(exported: Exported) -> str:
        return repr((exported.tensors, exported.inputs, exported.outputs, exported.change,
                     calls_of_one(exported.nodes, exported.root)))

    def have_equal(name: str) -> bool:
        mine, its = one.constants[name].tensor, other.constants[name].tensor
        return mine is not None and its is not None and mine.dtype == its.dtype and (
            torch.equal(mine, its))

    return described(one) == described(other) and all(map(have_equal, one.constants))


def _of_calls(model: nn.Module, inputs: Mapping[str, Shape], constants: Mapping[str, Any],
              call: effects.Call | None) -> Exported:
    """Follows one call, or two if the first one adds tensors to modules."""
    try:
        return _export(model, inputs, constants, call, None)
    except effects.Changed as changed:
        change = changed.error
    last = max((shape.group for shape in inputs.values()), default=0)
    again = {again_of(name): replace(shape, group=last + 1 + shape.group) if shape.group >= 0
             else shape for name, shape in inputs.items()}
    try:
        return _export(model, {**inputs, **again}, constants, call, change)
    except (ConvgradError, effects.Changed):  # of the second call, where the first one has none
        raise change from None


def again_of(name: str) -> str:
    """Returns what a second call calls an input."""
    return f"{name} again"


def _export(model: nn.Module, inputs: Mapping[str, Shape], constants: Mapping[str, Any],
            call: effects.Call | None, change: ConvgradError | None) -> Exported:
    """Follows one call, or two if the first one makes this `change`."""
    copied = copy_without_values(model)
    watch = Watch(copied, model, call)
    wrapper = _Wrapper(copied, tuple(inputs), constants, watch, change)
    auto = {0: _TORCH.export.Dim.AUTO}
    dims = tuple(auto if shape.group >= 0 else None for shape in inputs.values())
    with effects.no_functions(watch.checkpointed), effects.for_this_thread(), \
            _TORCH.inference_mode(False), torch.enable_grad(), \
            torch.autocast("cpu", enabled=False), \
            torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is):
        before = effects.random_states()
        trained = call.trained if call else ()
        examples = tuple(_example(shape).requires_grad_(name.split()[0] in trained)
                         for name, shape in inputs.items())  # "x", or "x again"
        try:
            with quiet():
                program = _TORCH.export.export(wrapper, examples, strict=False,
                                              dynamic_shapes={"tensors": dims})
        except (ConvgradError, effects.Changed, effects.Asked):
            raise
        except Exception as error:
            watch.check()
            cause = (error.__cause__ if isinstance(error, Raised) else None) or error
            raise failed(copied, watch, cause) from cause
        exported = _exported(program, inputs, watch.returned, change)
        if effects.draws_numbers(before, lambda: effects.rerun(wrapper, examples)):
            raise refuse("forward", "random numbers of Python or NumPy", DROPOUT)
    watch.check()
    return exported


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    """Saves a tensor in place of hooks from around the network, as a checkpoint's."""
    return tensor


def _exported(program: Any, inputs: Mapping[str, Shape], outputs: Any,
              change: ConvgradError | None) -> Exported:
    expand(program.graph_module)
    signature = program.graph_signature
    tensors = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    given = iter(inputs)
    start = len(MODEL) + 1
    return Exported(
        list(program.graph.nodes), program.graph_module,
        {name: target[start:] for name, target in tensors.items()},
        {spec.arg.name: Constant(str(spec.target or "a constant").removeprefix(f"{MODEL}."),
                                 program.constants.get(spec.target))
         for spec in signature.input_specs if spec.kind.name == "CONSTANT_TENSOR"},
        {spec.arg.name: next(given)
         for spec in signature.input_specs if spec.kind.name == "USER_INPUT"},
        outputs, change)


class _Wrapper(nn.Module):
    """Takes the inputs as one tuple, and returns the results' tensors as one.

    The watch is told what the model's forward returns, since torch.export restores attributes.
    """

    def __init__(self, model: nn.Module, names: Sequence[str], constants: Mapping[str, Any],
                 watch: Watch, change: ConvgradError | None) -> None:
        super().__init__()
        self.model = model
        self._names, self._constants = names, constants
        self._watch, self._change = watch, change

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = attributes = effects.Attributes(self.model)
        try:
            if self._change is None:
                found, self._watch.returned = self._call(tensors)
                attributes.check()
                return tuple(found)
            half = len(tensors) // 2
            found, self._watch.returned = self._call(tensors[:half])
            attributes = effects.Attributes(self.model)
            versions = effects.versions_of_kept(self.model)
            more, returned = self._call(tensors[half:])
            attributes.check()
            if (returned, effects.versions_of_kept(self.model)) != (
                    self._watch.returned, versions):
                raise self._change
            return (*found, *more)
        except (ConvgradError, effects.Changed, effects.Asked):
            raise
        except Exception as error:  # whatever a forward does
            raise Raised from error
        finally:
            before.restore()

    def _call(self, tensors: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], Any]:
        given = {**dict(zip(self._names, tensors)), **self._constants}
        bound = bound_again(self.model, given)
        batches = [tensor.shape[0] for tensor in tensors if tensor.dim()]
        with self._watch.following(batches, _Wrapper._call.__code__):
            returned = self.model(*bound.args, **bound.kwargs)
        found: list[torch.Tensor] = []
        return found, _with_outputs(returned, found)


def _with_outputs(value: Any, found: list[torch.Tensor]) -> Any:
    """Returns the structure with Output for each tensor, and collects the tensors."""
    if isinstance(value, torch.Tensor):
        found.append(value)
        return Output(len(found) - 1)
    if isinstance(value, (_TORCH.SymInt, _TORCH.SymFloat, _TORCH.SymBool)):
        raise refuse("forward", "a size that depends on the batch among what it returns",
                     "tensors")
    if not isinstance(value, (dict, tuple, list)):
        attributes = getattr(value, "__dict__", {}).values()
        if any(isinstance(one, torch.Tensor) for one in attributes):
            raise refuse("forward", f"a {type(value).__name__} among what it returns",
                         "tensors, and tuples, lists and dicts of them")
        return value
    return mapped(lambda one: _with_outputs(one, found), value)


def _example(shape: Shape) -> torch.Tensor:
    """Returns a tensor whose values nobody reads."""
    if shape.rest is None:
        return torch.zeros((), dtype=shape.dtype)  # which is an index of any axis
    batch = shape.batch if shape.group < 0 else _BATCHES[shape.group % len(_BATCHES)]
    return torch.empty(batch, *shape.rest, dtype=shape.dtype)
