"""Durable sessions of a real server that is killed: the same bits as undisturbed."""

import numpy as np
import pytest
from durable_kills import KilledTraining, kill_at_random

STEPS = 60
# Snapshots often enough that kills come within them.
FLAGS = ("--snapshot_interval=100ms",)
MODES = ("loss", "own", "ahead", "saving")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a session keeps after a training in which nothing was killed, by mode."""
    found = {}
    for mode in MODES:
        training = KilledTraining(tmp_path_factory.mktemp(mode), mode, STEPS, *FLAGS)
        found[mode] = training.finish()
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("whom", ["server", "client", "both"])
def test_a_training_that_is_killed_ends_with_the_same_bits(tmp_path, undisturbed, mode, whom):
    training = KilledTraining(tmp_path, mode, STEPS, *FLAGS)
    seed = MODES.index(mode) * 10 + len(whom)
    kill_at_random(training, STEPS, 2, seed, (whom,))
    found = training.finish()
    assert found.keys() == undisturbed[mode].keys()
    assert any(name.endswith("#exp_avg") for name in found)
    for name, expected in undisturbed[mode].items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name, strict=True)
    if whom != "client":
        assert training.figures.server_kills
