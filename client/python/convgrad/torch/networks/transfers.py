"""Transfers many tensors to and from a session, in messages of moderate size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from convgrad.errors import FailedPrecondition, message_of
from convgrad.torch.networks.pipeline import Pipeline
from convgrad.torch.tensors import to_array, to_tensor

# Limit on the tensors in one message, unless a single tensor is larger.
_CHUNK_BYTES = 32 * 2**20


def fetch(pipeline: Pipeline, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Returns kept tensors by name, as of all changes sent so far.

    Errors: FailedPrecondition for a tensor that the session lacks, as after the restore of a
    snapshot of an earlier model.
    """
    session = pipeline.session
    kept = pipeline.call(session.tensors)
    lacking = [name for name in names if name not in kept]
    if lacking:
        raise FailedPrecondition(message_of(
            "session", f"no tensor '{lacking[0]}', which the model has",
            "a state of the model as it is now, or the modules of the snapshot that was "
            "restored"))
    futures = [pipeline.submit(session.get, chunk)
               for chunk in _chunks({name: kept[name].kept_bytes for name in names})]
    return {name: to_tensor(array, torch.empty(0)) for future in futures
            for name, array in future.result().items()}


def put(pipeline: Pipeline, tensors: Mapping[str, torch.Tensor]) -> None:
    """Puts tensors under these names, and waits."""
    arrays = {name: np.asarray(to_array(tensor), order="C")
              for name, tensor in tensors.items()}
    futures = [pipeline.submit(pipeline.session.put, {name: arrays[name] for name in chunk})
               for chunk in _chunks({name: a.nbytes for name, a in arrays.items()})]
    for future in futures:
        future.result()


def _chunks(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yields lists of names whose tensors together fit a message of moderate size."""
    chunk: list[str] = []
    total = 0
    for name, size in sizes.items():
        if chunk and total + size > _CHUNK_BYTES:
            yield chunk
            chunk, total = [], 0
        chunk.append(name)
        total += size
    if chunk:
        yield chunk
