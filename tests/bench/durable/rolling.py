#!/usr/bin/env python3
"""Restarts two replicas in turn, under two durable trainings.

    rolling.py [--rounds=5] [--steps=400] [--network=small] [--interval=1s]

CONVGRAD_BUILD_DIR has the server. The replicas are behind one name, and each advertises its own
address. One training (loss on the server) is on one of them, the other one (the trainer's own
loss) on the other. In each round both replicas stop at SIGTERM and start again, one after the
other. Prints a Markdown table, and ends with 1 if a training's final weights, optimizer state
or statistics differ in a bit from those of an undisturbed one.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "client" / "python"))

from durable_kills import KilledTraining, Training
from replicas import Replicas

import convgrad

MODES = ("loss", "own")


def home_of(training: Training, replicas: Replicas) -> str:
    """Returns the address of the server that has the training's session."""
    training.wait_for(1)
    for address in replicas.servers:
        with convgrad.Client(address) as client:
            try:
                client.attach((training.folder / "session").read_bytes())
                return address
            except convgrad.SessionExpired:
                continue
    raise AssertionError("no server has the session")


def start_apart(replicas: Replicas, folder: pathlib.Path,
                arguments: argparse.Namespace) -> dict[str, Training]:
    """Returns a training on each server, by the server's address."""
    found: dict[str, Training] = {}
    for number in range(20):
        (folder / str(number)).mkdir()
        training = Training(replicas.target, folder / str(number), MODES[len(found)],
                            arguments.steps, arguments.network)
        home = home_of(training, replicas)
        if home in found:
            training.kill_client()
            continue
        found[home] = training
        if len(found) == len(MODES):
            return found
    raise AssertionError("all sessions are at one server")


def restart(replicas: Replicas, address: str, trainings: dict[str, Training]) -> float:
    """Restarts a server, and returns the seconds until its training's next step."""
    step, begin = trainings[address].step, time.monotonic()
    assert replicas.servers[address].terminate() == 0
    replicas.servers[address].restart()
    trainings[address].wait_for(step + 2)  # the first one may have been in flight
    return time.monotonic() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--network", default="small", help="of durable_programs.py")
    parser.add_argument("--interval", default="1s", help="of the server's snapshots")
    arguments = parser.parse_args()
    flag = f"--snapshot_interval={arguments.interval}"
    expected = {}
    for mode in MODES:
        with tempfile.TemporaryDirectory() as folder:
            expected[mode] = KilledTraining(pathlib.Path(folder), mode, arguments.steps, flag,
                                            network=arguments.network).finish()
    with tempfile.TemporaryDirectory() as folder:
        replicas = Replicas(pathlib.Path(folder), flag)
        trainings = start_apart(replicas, pathlib.Path(folder), arguments)
        seconds: dict[str, list[float]] = {address: [] for address in trainings}
        for _ in range(arguments.rounds):
            for address in trainings:
                seconds[address].append(restart(replicas, address, trainings))
        final = {address: one.finish() for address, one in trainings.items()}
        replicas.kill()
    print("| training | server | restarts | changes repeated | "
          "seconds to be back: median, most | bits |\n|---|---|--:|--:|--:|---|")
    status = 0
    for mode, (address, training) in zip(MODES, trainings.items()):
        is_same = final[address].keys() == expected[mode].keys() and all(
            final[address][name].tobytes() == value.tobytes()
            for name, value in expected[mode].items())
        print(f"| {mode}, {arguments.steps} steps | {address} | {len(seconds[address])} | "
              f"{training.figures.repeated_changes} | "
              f"{statistics.median(seconds[address]):.1f}, {max(seconds[address]):.1f} | "
              f"{'the same' if is_same else 'DIFFERENT'} |")
        status |= not is_same
    return status


if __name__ == "__main__":
    raise SystemExit(main())
