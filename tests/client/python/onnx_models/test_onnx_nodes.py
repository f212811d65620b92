"""Runs onnx's own node tests of all operators in the table: right, or refused by name."""

import collections
import itertools
import pathlib
import re
import warnings

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

import convgrad.onnx
from convgrad.onnx.operators.table import OPERATORS

PAGE = pathlib.Path(__file__).parents[4] / "client/python/onnx.md"
# At least so many of them are computed.
RIGHT = 700
# Operators with a test that must be computed.
COMPUTED = OPERATORS.keys() - {
    "CastLike", "CumSum", "Erf", "SequenceAt", "SplitToSequence", "Trilu", "Xor"}


@pytest.fixture(scope="module")
def cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, for tests of overflow
        return [case for case in collect_testcases(None) if case.data_sets is not None
                and any(node.op_type in OPERATORS for node in case.model.graph.node)
                and all(one.domain or one.version >= 13 for one in case.model.opset_import)]


def array_of(data):
    return numpy_helper.to_array(data) if isinstance(data, onnx.TensorProto) else np.asarray(
        data)


def variant_of(case, takes_all, is_first):
    """Returns the model, its inputs and outputs. Operands behind the first one are inputs, or
    constants, unless `takes_all`; outputs behind the first one are left out if `is_first`.
    Masks become numbers."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    inputs, outputs = case.data_sets[0]
    feeds = {}
    for i, (info, data) in enumerate(zip(list(model.graph.input), inputs)):
        if not info.type.HasField("tensor_type"):
            continue
        array = array_of(data)
        if i and (not takes_all or array.dtype.kind in "ib" or array.dtype == np.float64):
            model.graph.initializer.append(numpy_helper.from_array(array, info.name))
        else:
            feeds[info.name] = array
    if is_first:
        del model.graph.output[1:]
        outputs = outputs[:1]
    for one in model.graph.output:
        kind = one.type.tensor_type
        if kind.elem_type == onnx.TensorProto.BOOL:
            model.graph.node.append(helper.make_node(
                "Cast", [one.name], [f"{one.name}_"], to=onnx.TensorProto.FLOAT))
            one.name, kind.elem_type = f"{one.name}_", onnx.TensorProto.FLOAT
    return model, feeds, outputs


def kind_of(session, case, variant, name):
    """Returns "right" or "refused". Fails if a result is wrong."""
    model, feeds, outputs = variant
    try:
        network = convgrad.onnx.load(model)
        network.put(session, name)
        found = network.predict(session, name=name, **{
            key: feeds[key] for key in network.inputs})
    except convgrad.onnx.Refused as error:
        assert error.refusals
        return "refused"
    session.drop_programs(name)
    assert len(found) == len(outputs), case.name
    for one, data in zip(found.values(), outputs):
        expected = array_of(data)
        half = expected.dtype.itemsize < 4
        assert one.shape == expected.shape, case.name
        np.testing.assert_allclose(
            one.astype(np.float64), expected.astype(np.float64), err_msg=case.name,
            rtol=1e-2 if half else max(1e-5, case.rtol or 0), atol=1e-2 if half else 1e-5)
    return "right"


def test_each_node_test_is_computed_right_or_refused(client, cases):
    counts, computed = collections.Counter(), set()
    with client.session() as session:
        for i, case in enumerate(cases):
            kinds = {kind_of(session, case, variant_of(case, *how), f"case{i}")
                     for how in itertools.product((True, False), repeat=2)}
            counts["right" if "right" in kinds else "refused"] += 1
            if "right" in kinds:
                computed.update(node.op_type for node in case.model.graph.node)
    print(f"{len(cases)} node tests: {dict(counts)}")
    assert counts["right"] >= RIGHT
    assert computed >= COMPUTED


def test_the_page_lists_the_operators():
    rows = re.findall(r"^\| \w+ \| ([A-Z][\w, ]+) \|$", PAGE.read_text(), re.MULTILINE)
    listed = [name for row in rows for name in row.split(", ")]
    assert sorted(listed) == sorted(OPERATORS)
