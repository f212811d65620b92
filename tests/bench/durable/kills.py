#!/usr/bin/env python3
"""Kills durable trainings at random moments, and says what each kill costs.

    kills.py [--kills=200] [--seed=0] [--interval=100ms] [--network=small] [--steps=N]
             [--seconds=N]

CONVGRAD_BUILD_DIR has the server. Each training of tests/client/python/durable_training.py
(loss on the server, the trainer's own loss, ten steps ahead, snapshots without a pause) gets a
quarter of the kills: of its server, its client, or both. After --seconds no more are killed.
Prints a Markdown table, and ends with 1 if a training's final weights, optimizer state or
statistics differ in a bit from those of an undisturbed one.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "client" / "python"))

from durable_kills import KilledTraining, kill_at_random

MODES = ("loss", "own", "ahead", "saving")
STEPS_PER_KILL = 6


def trained(arguments: argparse.Namespace, mode: str, steps: int, kills: int,
            seed: int) -> KilledTraining:
    with tempfile.TemporaryDirectory() as folder:
        training = KilledTraining(pathlib.Path(folder), mode, steps,
                                  f"--snapshot_interval={arguments.interval}",
                                  network=arguments.network)
        kill_at_random(training, steps, kills, seed, seconds=arguments.seconds / len(MODES))
        training.final = training.finish()
    return training


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--interval", default="100ms", help="of the server's snapshots")
    parser.add_argument("--network", default="small", help="of durable_programs.py")
    parser.add_argument("--steps", type=int, default=0,
                        help=f"of each training; 0: {STEPS_PER_KILL} for each kill")
    parser.add_argument("--seconds", type=float, default=float("inf"),
                        help="after which no more are killed")
    arguments = parser.parse_args()
    print("| training | kills of server, client | within a write | steps repeated | "
          "changes repeated | replies from the store | "
          "seconds to be back: median, most | bits |\n"
          "|---|--:|--:|--:|--:|--:|--:|---|")
    status = 0
    for i, mode in enumerate(MODES):
        kills = arguments.kills // len(MODES) + (i < arguments.kills % len(MODES))
        steps = arguments.steps or STEPS_PER_KILL * kills
        expected = trained(arguments, mode, steps, 0, 0).final
        killed = trained(arguments, mode, steps, kills, arguments.seed + i)
        is_same = killed.final.keys() == expected.keys() and all(
            killed.final[name].tobytes() == expected[name].tobytes() for name in expected)
        figures = killed.figures
        print(f"| {mode}, {steps} steps | {figures.server_kills}, {figures.client_kills} | "
              f"{figures.kills_in_writes} | "
              f"{figures.repeated_steps} | {figures.repeated_changes} | "
              f"{figures.stored_replies} | {statistics.median(figures.seconds):.1f}, "
              f"{max(figures.seconds):.1f} | {'the same' if is_same else 'DIFFERENT'} |",
              flush=True)
        status |= not is_same
    return status


if __name__ == "__main__":
    raise SystemExit(main())
