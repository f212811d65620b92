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


@pytest.fixture
def rng():
    return np.random.default_rng(7)
