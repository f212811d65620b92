"""Tests Gather by indices that follow from the batch, as PyTorch exports a pooling."""

import numpy as np
import pytest
from onnx_graphs import Builder, assert_same, make_model

import convgrad.onnx


def gathered(offsets, step=6, operator="Add", axes=(1, 2), limit="batch"):
    """A model that reads elements `step` * item + `offsets` of a flattened (N, 6)."""
    b = Builder()
    batch = b.add("Squeeze", b.add("Shape", "x", start=0, end=1))
    b.arrays |= {"zero": np.array(0), "one": np.array(1), "step": np.array(step),
                 "limit": np.array(2), "offsets": np.asarray(offsets)}
    rows = b.add("Range", "zero", batch if limit == "batch" else limit, "one")
    rows = b.add("Unsqueeze", b.add("Mul", rows, "step"), b.ints(*axes))
    flat = b.add("Reshape", "x", b.ints(-1))
    b.add("Gather", flat, b.add(operator, rows, "offsets"), name="y")
    return make_model(b.nodes, {"x": ["N", 6]}, {"y": ["N", "a", "b"]}, b.arrays)


@pytest.mark.parametrize("offsets", [np.arange(6).reshape(1, 3, 2), np.arange(6).reshape(3, 2),
                                     np.array([[[5, 0], [2, 2]]]), np.array(3)])
def test_parts_of_each_item_are_gathered(client, offsets):
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    assert_same(client, gathered(offsets), x=x)


@pytest.mark.parametrize("change", [
    dict(offsets=[[[6]]]), dict(offsets=[[[-1]]]), dict(offsets=[[[0]]], step=3),
    dict(offsets=[[[0]], [[1]]]), dict(offsets=[[[[0]]]]), dict(offsets=[[[0]]], axes=(0, 1)),
    dict(offsets=[[[0]]], operator="Sub"), dict(offsets=[[[0]]], step=0)])
def test_indices_beyond_an_item_are_refused(change):
    with pytest.raises(convgrad.onnx.Refused, match="that follow from the batch"):
        convgrad.onnx.load(gathered(**change))


def test_a_range_of_numbers_is_a_constant():
    with pytest.raises(convgrad.onnx.Refused, match="another axis than the batch"):
        convgrad.onnx.load(gathered([[[0]]], limit="limit"))


def test_an_axis_of_the_batch_alone(client):
    """A program has (N,) as (1, N), and expands only its first axis to the batch."""
    b = Builder()
    batch = b.add("Shape", "x", start=0, end=1)
    means = [b.add("Expand", b.add("ReduceMean", one, keepdims=0), batch)
             for one in ("x", b.add("Neg", "x"))]
    b.arrays["one"] = np.array(1)
    b.add("Concat", *means, name="y", axis=0)
    b.add("Add", means[0], b.add("Gather", "x", "one", axis=1), name="z")
    model = make_model(b.nodes, {"x": ["N", 6]}, {"y": ["a"], "z": ["N"]}, b.arrays)
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    assert_same(client, model, x=x)
