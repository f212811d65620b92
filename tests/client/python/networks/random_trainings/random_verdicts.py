"""Decides whether a training that differs from torch's is wrong.

An activation may be within rounding of a ReLU's zero, so that float32 and float64 are on
different sides. The same training from other values decides: a fault differs again.
"""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass

from random_trainings import Training

_OTHER_VALUES = 4
# Number of repeated trainings that must differ.
_LEAST = 2


@dataclass
class Verdict:
    """The outcome of a seed."""

    seed: int
    is_fault: bool = False
    text: str = "same"


def judge(seed: int, client) -> Verdict:
    first = Training(seed, client)
    text = first.run()
    if not first.comparison.differences:
        return Verdict(seed, text=text)
    again = Training(seed, client)
    again.run()
    text = "\n  ".join([f"seed {seed}:", *first.comparison.differences[:6],
                        "after: " + "; ".join(first.story)])
    if again.comparison.differences != first.comparison.differences:
        return Verdict(seed, True, f"{text}\n  differs otherwise when it is repeated: "
                       f"{again.comparison.differences[:2]}")
    others = [Training(seed, client, data) for data in range(1, _OTHER_VALUES + 1)]
    for other in others:
        other.run()
    differing = sum(bool(other.comparison.differences) for other in others)
    return Verdict(seed, differing >= _LEAST,
                   f"{text}\n  {differing} of {_OTHER_VALUES} other values differ")


def judge_beside(seeds: list[int], client) -> list[Verdict]:
    """Judges the seeds at the same time, each in its own thread."""
    # Draws on this thread, because all draws use one generator of torch.
    trainings = [Training(seed, client) for seed in seeds]
    with concurrent.futures.ThreadPoolExecutor(len(trainings)) as pool:
        list(pool.map(Training.run, trainings))
    # Judges trainings that differ again, one at a time.
    return [judge(t.seed, client) if t.comparison.differences else Verdict(t.seed)
            for t in trainings]
