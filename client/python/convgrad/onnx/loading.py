"""Reads ONNX models: from a file, its bytes, or a ModelProto."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convgrad.errors import InvalidArgument, invalid, unimplemented
from convgrad.onnx.network import Network
from convgrad.onnx.values import OWN_DOMAINS
from convgrad.tracebacks import short_traceback

LEAST_OPSET = 13
NEWEST_OPSET = 28
"""The newest one that the operators' rows were compared with."""

_REMEDY = 'pip install "onnx>=1.19"'


@short_traceback
def load(model: str | os.PathLike[str] | bytes | Any, *,
         shapes: Mapping[str, Sequence[int | None]] | None = None) -> Network:
    """Makes a network of an ONNX model: programs, and its initializers as their parameters.

        network = convgrad.onnx.load("model.onnx")
        network = convgrad.onnx.load("model.onnx", shapes={"images": (None, 3, 224, 224)})

    Takes a path, a model's bytes, or an onnx.ModelProto of opset 13 or newer. A first axis
    without a fixed extent is the batch, which stays open. `shapes` replaces the declared shapes
    of inputs; None is the batch.

    float16 and bfloat16 initializers become float32, exactly, and everything is computed in
    float32. float64 is refused.

    Data outside of the model's file must lie in files of its folder or below.
    Errors: Refused (an Unimplemented), which lists everything that programs don't have.
    InvalidArgument for what is no valid model. ImportError without the package `onnx`.
    """
    onnx = _package()
    found = _model_of(onnx, model)
    _check_versions(onnx, found)
    from convgrad.onnx.importer import Importer  # needs the package `onnx`

    return Network(Importer(found, training=False).follow(shapes or {}),
                   Importer(found, training=True).follow(shapes or {}))


def _check_versions(onnx: Any, model: Any) -> None:
    """Raises an error unless the operators of ONNX itself have one meaning, which is known."""
    opsets = {one.version for one in model.opset_import if one.domain in OWN_DOMAINS}
    newest = min(NEWEST_OPSET, onnx.defs.onnx_opset_version())
    if len(opsets) != 1 or not LEAST_OPSET <= min(opsets) <= newest:
        raise invalid("UNSUPPORTED", "model.opset_import", ", ".join(
            map(str, sorted(opsets))) or "none", f"one opset, {LEAST_OPSET} to {newest}; "
            "onnx.version_converter converts")
    own = [one.name for one in model.functions if one.domain in OWN_DOMAINS]
    if own:
        raise unimplemented("model.functions", f"a function {own[0]}, an operator of ONNX",
                            "functions of other domains")
    if not model.graph.output:
        raise invalid("MISSING", "model.graph.output", "none", "one output at least")


def _package() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise ImportError(f"convgrad.onnx needs the package onnx: {_REMEDY}") from error
    # Older versions give the elements of bfloat16 and of smaller floats as integers.
    if [int(one) for one in onnx.__version__.split(".")[:2]] < [1, 19]:
        raise ImportError(f"convgrad.onnx needs onnx 1.19 or newer, found {onnx.__version__}: "
                          f"{_REMEDY}")
    return onnx


def _model_of(onnx: Any, model: Any) -> Any:
    """Returns the model, checked, with all of its data in memory."""
    try:
        if isinstance(model, (str, os.PathLike)):
            folder = str(Path(model).parent)
            found = onnx.load(os.fspath(model), format="protobuf",
                              load_external_data=False)
            _check_locations(onnx, found, Path(folder))
            onnx.checker.check_model(os.fspath(model))
            onnx.load_external_data_for_model(found, folder)
            return found
        found = onnx.load_model_from_string(model) if isinstance(model, bytes) else model
        if not isinstance(found, onnx.ModelProto):
            raise invalid("INVALID_ENUM", "model", type(model).__name__,
                          "a path, bytes or an onnx.ModelProto")
        if any(onnx.external_data_helper.uses_external_data(tensor)
               for tensor in _tensors_of(onnx, found)):
            raise invalid("MISSING", "model", "data outside of the model",
                          "a path, beside which the data lies")
        onnx.checker.check_model(found)
        return found
    except (InvalidArgument, OSError):
        raise
    except Exception as error:  # of onnx, protobuf and C++; a model may come from anywhere
        said = str(error).strip().split("\n")[0][:500]
        raise invalid("MALFORMED", "model", said, "a valid ONNX model") from error


def _tensors_of(onnx: Any, model: Any) -> Any:
    return onnx.external_data_helper._get_all_tensors(model)


def _check_locations(onnx: Any, model: Any, folder: Path) -> None:
    """Raises InvalidArgument unless all data is in regular files of the folder or below. Older
    versions of onnx don't check links, offsets and lengths."""
    base = folder.resolve()
    for tensor in _tensors_of(onnx, model):
        if not onnx.external_data_helper.uses_external_data(tensor):
            continue
        info = onnx.external_data_helper.ExternalDataInfo(tensor)
        location, field = info.location, f"model.{tensor.name}"
        path = Path(os.path.abspath(base / location))
        if not location or os.path.isabs(location) or base not in path.parents or (
                path.resolve() != path or not os.path.isfile(path) or path.stat().st_nlink > 1):
            raise invalid("OUT_OF_RANGE", field, f"its data in '{location}'",
                          "a file in the model's folder or below, and no link")
        first, length, size = info.offset or 0, info.length or 0, path.stat().st_size
        if min(first, length) < 0 or first + length > size:
            raise invalid("OUT_OF_RANGE", field, f"{length} bytes from byte {first} on",
                          f"bytes of '{location}', which has {size}")
