"""A training in a durable session, as a program that a test kills and starts again.

    durable_training.py ADDRESS FOLDER MODE STEPS

MODE: "loss" computes the loss on the server, "own" here, from tapes; "ahead" is "loss" with ten
steps in flight; "saving" is "loss" with snapshots without a pause, so that kills come within
them. The program prints each step that is done, and FOLDER/final.npz is all that the session
keeps at the end. FOLDER/session has the session's id: if the program is killed, the next one
goes on where the server's snapshot is.
"""

from __future__ import annotations

import collections
import logging
import os
import pathlib
import sys
import threading
import time

import numpy as np

import convgrad

CLASSES, CHANNELS, SIZE, BATCH = 4, 3, 10, 4
# About the time in which a trainer reads a batch.
LOADING_SECONDS = 0.01
AHEAD = 10


def make_program() -> convgrad.Program:
    program = convgrad.Program()
    x = program.input("x")
    target = program.input("target", is_index=True)
    for i, (channels, out) in enumerate(((CHANNELS, 8), (8, 8))):
        weight = program.parameter(f"conv{i}", (out, channels, 3, 3))
        x = program.step("conv", x, weight, None, name=f"c{i}", attributes={"padding": 1})
        state = [program.parameter(f"bn{i}.{name}", (out,), fixed=name in ("mean", "var"))
                 for name in ("weight", "bias", "mean", "var")]
        count = program.parameter(f"bn{i}.count", (), dtype="i64", fixed=True)
        x = program.step("batch_norm", x, *state, count, name=f"b{i}",
                         attributes={"training": True, "momentum": 0.1})
        x = program.step("relu", x, name=f"r{i}")
    x = program.step("dropout", x, name="d", attributes={"p": 0.2, "training": True})
    x = program.step("adaptive_avg_pool", x, name="a", attributes={"output_size": [1, 1]})
    x = program.step("reshape", x, name="f", attributes={"shape": [-1, 8]})
    y = program.step("linear", x, program.parameter("fc", (CLASSES, 8)), None, name="y")
    program.output(program.step("cross_entropy", y, target, name="loss"), y)
    return program


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {"conv0": rng.normal(size=(8, CHANNELS, 3, 3)) / 5,
             "conv1": rng.normal(size=(8, 8, 3, 3)) / 8, "fc": rng.normal(size=(CLASSES, 8))}
    for i in range(2):
        for name, value in (("weight", 1), ("bias", 0), ("mean", 0), ("var", 1)):
            found[f"bn{i}.{name}"] = np.full(8, value)
    return {name: value.astype(np.float32) for name, value in found.items()}


def batch(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    return {"x": rng.normal(size=(BATCH, CHANNELS, SIZE, SIZE)).astype(np.float32),
            "target": rng.integers(0, CLASSES, BATCH)}


UPDATE = convgrad.Update("adam", [convgrad.ParameterGroup(
    ["conv0", "conv1", "fc", *(f"bn{i}.{name}" for i in range(2)
                               for name in ("weight", "bias"))], 0.01)])


def with_own_loss(session: convgrad.Session, step: int, state: bytes) -> None:
    given = batch(step)
    scores = session.run("net", given, fetched=["y"], tape="tape").values["y"]
    odds = np.exp(scores - scores.max(1, keepdims=True))
    gradient = odds / odds.sum(1, keepdims=True)
    gradient[np.arange(BATCH), given["target"]] -= 1
    session.backward("tape", {"y": (gradient / BATCH).astype(np.float32)})
    session.update(UPDATE, trainer_state=state)


def begin(client: convgrad.Client, id_file: pathlib.Path) -> convgrad.Session:
    """Resumes the training, or begins it."""
    if id_file.exists():
        session = client.session(resume=id_file.read_bytes(), keep_open=True)
        if session.trainer_state:
            return session
        session.close()  # killed before it was put
    session = client.session(durable=True, keep_open=True)
    written = id_file.with_suffix(".new")
    written.write_bytes(session.id)
    written.rename(id_file)
    session.put({**weights(), **{f"bn{i}.count": np.array(0, np.int64) for i in range(2)},
                 "#randomness": np.array([7, 0], np.int64)})
    session.load_program("net", make_program())
    session.put({}, trainer_state=b"0")
    return session


def save_always(session: convgrad.Session) -> None:
    """Asks for one snapshot after another, until the program ends."""
    while True:
        try:
            session.save_state()
        except convgrad.ConvgradError:
            time.sleep(LOADING_SECONDS)  # the server was killed, or the session has ended


def train(address: str, folder: pathlib.Path, mode: str, steps: int) -> None:
    with convgrad.Client(address) as client:
        session = begin(client, folder / "session")
        first = int(session.trainer_state or b"0")
        print("begin", first, flush=True)
        if mode == "saving":
            threading.Thread(target=save_always, args=(session,), daemon=True).start()
        sent: collections.deque = collections.deque()
        for step in range(first, steps):
            time.sleep(LOADING_SECONDS)
            state = b"%d" % (step + 1)
            if mode == "own":
                with_own_loss(session, step, state)
            else:
                sent.append(session.submit(
                    session.run, "net", batch(step), fetched=["loss"],
                    backward=convgrad.Backward(), update=UPDATE, trainer_state=state))
                while len(sent) > (AHEAD if mode == "ahead" else 0):
                    sent.popleft().result()
            print("step", step + 1, flush=True)
        for future in sent:
            future.result()
        kept = session.tensors()
        np.savez(folder / "new.npz", **session.get(list(kept)))
        os.replace(folder / "new.npz", folder / "final.npz")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    train(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
