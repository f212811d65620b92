"""A training in a durable session, as a program that a test kills and starts again.

    durable_training.py TARGET FOLDER MODE STEPS [NETWORK]

TARGET: as of a client. NETWORK: one of durable_programs.py. MODE: "loss"
computes the loss on the server, "own" here, from tapes; "ahead" is "loss" with ten steps in
flight; "saving" is "loss" with snapshots without a pause, so that kills come within them. The
program prints each step that is done, and FOLDER/final.npz is all that the session keeps at the
end. FOLDER/session has the session's id: if the program is killed, the next one goes on where
the server's snapshot is.
"""

from __future__ import annotations

import collections
import logging
import os
import pathlib
import sys
import threading
import time
from typing import Any

import numpy as np
from durable_programs import BATCH, NETWORKS, Network

import convgrad

# About the time in which a trainer reads a batch.
LOADING_SECONDS = 0.01
AHEAD = 10


def with_own_loss(session: convgrad.Session, net: Network, step: int, state: bytes) -> None:
    given = net.batch(step)
    scores = session.run("net", given, fetched=["y"], tape="tape").values["y"]
    odds = np.exp(scores - scores.max(1, keepdims=True))
    gradient = odds / odds.sum(1, keepdims=True)
    gradient[np.arange(BATCH), given["target"]] -= 1
    session.backward("tape", {"y": (gradient / BATCH).astype(np.float32)})
    session.update(net.update(), trainer_state=state)


def begin(client: convgrad.Client, id_file: pathlib.Path, net: Network) -> convgrad.Session:
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
    session.put(net.tensors)
    session.load_program("net", net.program)
    session.put({}, trainer_state=b"0")
    return session


def save_always(session: convgrad.Session) -> None:
    """Asks for one snapshot after another, until the program ends."""
    while True:
        try:
            session.save_state()
        except convgrad.ConvgradError:
            time.sleep(LOADING_SECONDS)  # the server was killed, or the session has ended


def train(target: str, folder: pathlib.Path, mode: str, steps: int,
          net: Network, **settings: Any) -> None:
    with convgrad.Client(target, **settings) as client:
        session = begin(client, folder / "session", net)
        first = int(session.trainer_state or b"0")
        print("begin", first, flush=True)
        if mode == "saving":
            threading.Thread(target=save_always, args=(session,), daemon=True).start()
        sent: collections.deque = collections.deque()
        for step in range(first, steps):
            time.sleep(LOADING_SECONDS)
            state = b"%d" % (step + 1)
            if mode == "own":
                with_own_loss(session, net, step, state)
            else:
                sent.append(session.submit(
                    session.run, "net", net.batch(step), fetched=["loss"],
                    backward=convgrad.Backward(), update=net.update(),
                    trainer_state=state))
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
    train(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]),
          NETWORKS[(*sys.argv, "small")[5]]())
