"""Defines what load() returns: programs of a model, and their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from convgrad import layouts
from convgrad.errors import NotFound, invalid
from convgrad.importers.extremes import for_dtype
from convgrad.layouts import Array
from convgrad.networks import COMPUTE_DTYPES
from convgrad.onnx.emission import Imported
from convgrad.onnx.extents import Batch, Extent, Shape, text_of
from convgrad.programs import Program


class Network:
    """An ONNX model as a program, and its initializers as parameters.

        network.put(session)
        values = network.predict(session, images)    # by the outputs' names

    Names are the model's. Characters that programs don't have become "_", and "/" becomes ".".
    A weight that the model transposes, or multiplies from the right, is kept as `linear` has
    it: (outputs, inputs).
    """

    def __init__(self, predicting: Imported, training: Imported) -> None:
        self._predicting = predicting
        self._training = training

    @property
    def program(self) -> Program:
        """The program that predicts."""
        return self._predicting.program

    @property
    def parameters(self) -> dict[str, Array]:
        """Initial values of the parameters of both programs, by name."""
        return self._predicting.parameters | self._training.parameters

    @property
    def trainable(self) -> list[str]:
        """Names of the parameters that a backward gives gradients: the initializers of floats
        that are no running statistics and no single number."""
        return self._training.trainable

    @property
    def inputs(self) -> dict[str, Shape]:
        """The shapes of the inputs that the outputs need, by name; N is the batch."""
        return self._predicting.inputs

    @property
    def outputs(self) -> dict[str, Shape]:
        """The shapes of the outputs, by name."""
        return self._predicting.outputs

    def training_program(self) -> Program:
        """Returns a new program in which BatchNormalization and Dropout train. It has no
        outputs: add a loss as the first one.

            program = network.training_program()
            program.output(program.step("cross_entropy", "logits",
                                        program.input("labels", is_index=True)))

        Running statistics are updated as PyTorch does, with unbiased variances.
        """
        program = self._training.program.copy()
        del program.message.outputs[:]
        return program

    def put(self, session: Any, name: str = "onnx") -> None:
        """Puts the parameters into the session, and loads `program` under this name. Loads
        another one for bf16 if a mask has numbers that bf16 lacks; its name follows from its
        content, so that no other program has it."""
        session.put(self.parameters)
        programs = {self._name(name, dtype): for_dtype(self.program, dtype)
                    for dtype in COMPUTE_DTYPES}
        for own, program in programs.items():
            session.load_program(own, program)

    def predict(self, session: Any, *inputs: npt.ArrayLike, name: str = "onnx",
                compute_dtype: npt.DTypeLike = "f32",
                **named: npt.ArrayLike) -> dict[str, Array]:
        """Returns the outputs, by name, with the model's shapes.

        `session` is a session after put(), or what Client.attach() returns. Inputs are given in
        their order or by name.
        Errors: InvalidArgument for inputs of other shapes than the model's.
        """
        given = dict(zip(self.inputs, inputs)) | named
        if len(inputs) + len(named) != len(self.inputs) or given.keys() != self.inputs.keys():
            raise invalid("MISSING", "inputs", ", ".join([
                *map(str, range(1, len(inputs) + 1)), *named]) or "none",
                          ", ".join(self.inputs) or "none")
        arrays = {key: np.asarray(array) for key, array in given.items()}
        batch = self._batch_of(arrays)
        dtype = layouts.name_of_dtype(compute_dtype, "compute_dtype", COMPUTE_DTYPES)
        are_indices = {one.name: one.is_index for one in self.program.message.inputs}
        values = {
            key: _indices_of(key, array) if are_indices[key] else
            _numbers_of(key, array, dtype).reshape([*[1] * (2 - array.ndim), *array.shape])
            for key, array in arrays.items()}
        own = self._name(name, dtype)
        try:
            run = session.run(own, values, compute_dtype=dtype)
        except NotFound:
            if own == name:
                raise
            # Only `program` was loaded, and not by put().
            run = session.run(name, values, compute_dtype=dtype)
        return {key: run.values[key].reshape([_size(n, batch) for n in shape])
                for key, shape in self.outputs.items()}

    def _name(self, name: str, dtype: str) -> str:
        """Returns the name of the program for runs in this dtype."""
        program = for_dtype(self.program, dtype)
        return name if program is self.program else f"{dtype}-{program.digest()[:32]}"

    def _batch_of(self, arrays: Mapping[str, Array]) -> int:
        """Returns the number of items. Raises InvalidArgument if a shape doesn't fit."""
        batch = next((array.shape[0] for key, array in arrays.items()
                      if self.inputs[key][:1] == (Batch(),) and array.ndim), 1)
        for key, array in arrays.items():
            if array.shape != tuple(_size(n, batch) for n in self.inputs[key]):
                raise invalid("SHAPE_MISMATCH", f"inputs.{key}", text_of(array.shape),
                              f"{text_of(self.inputs[key])}, of one batch N")
        return batch


def _indices_of(name: str, array: Array) -> Array:
    if array.dtype.kind not in "iu":
        raise invalid("INVALID_TYPE", f"inputs.{name}", array.dtype, "integers")
    return array.astype(np.int64)


def _numbers_of(name: str, array: Array, dtype: str) -> Array:
    """Returns integers and booleans in float32."""
    if array.dtype.kind not in "iub" or array.dtype in (np.uint8, np.uint16):
        return array
    rounded = array.astype(layouts.DTYPES[dtype]).astype(np.float32)
    if (rounded.astype(array.dtype) != array).any():
        raise invalid("OUT_OF_RANGE", f"inputs.{name}", f"integers from {array.min()} to "
                      f"{array.max()}", f"integers that {dtype} has exactly")
    return rounded


def _size(extent: Extent, batch: int) -> int:
    return extent.factor * batch if isinstance(extent, Batch) else extent
