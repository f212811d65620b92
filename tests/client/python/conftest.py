import numpy as np
import pytest
from server_process import ServerProcess

import convgrad


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
