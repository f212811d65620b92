import importlib.util
import re

import numpy as np
import pytest
from server_process import ServerProcess

import convgrad

# Tests of convgrad.torch.remote in files of other things.
REMOTE = ("test_attached_network.py", "test_train_remote", "test_annotate",
          "test_segment_shapes", "test_a_network_trains_where_no_client_is_named",
          "test_nobody_listens[remote]",
          "test_a_network_whose_server_was_started_again", "test_trainings_")


def pytest_collection_modifyitems(items):
    if importlib.util.find_spec("torch") is None:
        return
    import torch
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) >= (2, 6):
        return
    skip = pytest.mark.skip(reason="convgrad.torch.remote needs PyTorch 2.6's torch.export")
    for item in items:
        if (item.path.name.startswith("test_remote") or item.path.name in REMOTE
                or item.name.startswith(REMOTE) or "make_remote" in item.fixturenames):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def server():
    process = ServerProcess()
    yield process
    process.kill()


@pytest.fixture(scope="session")
def client(server):
    with convgrad.Client(server.address, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def sharing(tmp_path_factory):
    """A server that shares memory."""
    process = ServerProcess(f"--regions_listen=unix:{tmp_path_factory.mktemp('side')}/regions",
                            "--max_region_bytes=256MiB")
    yield process
    process.kill()


@pytest.fixture
def near(sharing):
    with convgrad.Client(sharing.address, timeout=60) as client:
        yield client


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def make_remote(client):
    """Returns convgrad.torch.remote with the client; the networks end with the test."""
    made = []

    def make_one(model, **keywords):
        made.append(convgrad.torch.remote(model, client, **keywords))
        return made[-1]

    yield make_one
    for net in made:
        net.session.close()
