"""Programs in sessions, with NumPy alone."""

import numpy as np
import pytest

import convgrad


def test_programs_names_and_attributes():
    program = convgrad.Program()
    x = program.input("x")
    one, two = program.step("relu", x), program.step("relu", x)
    assert (one, two) == ("relu", "relu_2")
    with pytest.raises(convgrad.InvalidArgument, match="the name 'x' twice"):
        program.parameter("x", (3,))
    with pytest.raises(convgrad.InvalidArgument, match="parameters.w.dtype: found bf16"):
        program.parameter("w", (3,), dtype="bf16")
    with pytest.raises(convgrad.InvalidArgument, match="attributes.p: found"):
        program.step("dropout", x, attributes={"p": ["a"]})


def test_a_programs_calls_without_torch(client):
    program = convgrad.Program()
    x = program.input("x")
    w = program.parameter("w", (2, 3))
    y = program.step("linear", x, w, None, name="y")
    target = program.input("target", is_index=True)
    program.output(program.step("cross_entropy", y, target, name="loss",
                                attributes={"reduction": "sum"}), y)
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    with client.session() as session:
        session.put({"w": np.ones((2, 3), np.float32), "labels": np.array([0, 1, 1, 1])})
        session.load_program("net", program)
        session.load_program("net", program)
        found = session.run("net", {"x": rows, "target": "labels"})
        assert list(found.values) == ["loss", "y"] and found.report.backend
        np.testing.assert_array_equal(found.values["y"], rows.sum(1)[:, None].repeat(2, 1))
        np.testing.assert_allclose(found.values["loss"], 4 * np.log(2), rtol=1e-6)
        trained = session.run("net", {"x": rows, "target": "labels"}, fetched=["loss"],
                              backward=convgrad.Backward(input_gradients=["x"]))
        assert list(trained.values) == ["loss", "x#gradient"]
        gradient = session.get("w#gradient")
        expected = np.array([-0.5, 0.5])[:, None] * (rows[1:].sum(0) - rows[0])
        np.testing.assert_allclose(gradient, -expected, rtol=1e-6)
        session.run("net", {"x": rows, "target": "labels"}, tape="tape")
        session.backward("tape", {"y": np.ones((4, 2), np.float32)}, retain=True)
        back = session.backward("tape", {"y": np.ones((4, 2), np.float32)},
                                input_gradients=["x"], leave_parameters=True)
        np.testing.assert_array_equal(back.values["x#gradient"], np.full((4, 3), 2))
        np.testing.assert_allclose(session.get("w#gradient"), gradient + rows.sum(0))
        with pytest.raises(convgrad.NotFound, match="tape"):
            session.backward("tape", {"y": np.ones((4, 2), np.float32)})
        session.put("w#gradient", np.ones((2, 3), np.float32))
        session.update(convgrad.Update("sgd", [convgrad.ParameterGroup(["w"], 0.5)]))
        np.testing.assert_array_equal(session.get("w"), np.full((2, 3), 0.5))
        np.testing.assert_array_equal(session.get("labels"), [0, 1, 1, 1])
        assert session.tensors().keys() == {"w", "labels"}
        session.drop_programs("net", tapes=["tape"])
        with pytest.raises(convgrad.NotFound, match="net"):
            session.run("net", {"x": rows, "target": "labels"})
