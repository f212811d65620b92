"""Tests a training that goes on in a session of another server."""

import pytest
import torch
from server_process import ServerProcess
from torch import nn

import convgrad
import convgrad.torch


def network(session, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                          nn.Dropout(), nn.Conv2d(8, 2, 1))
    net = convgrad.torch.remote(model, session, put=not settings)
    return net, convgrad.torch.optim.Adam(net.parameters(), ema_decay=0.9, **settings)


def train(net, optimizer, first, last):
    for step in range(first, last):
        torch.manual_seed(step)  # also of the dropout's masks
        net.train_step(torch.randn(4, 1, 8, 8), torch.randint(2, (4, 8, 8)),
                       optimizer=optimizer)


@pytest.mark.remote
def test_a_moved_training_has_the_same_bits(client, tmp_path):
    process = ServerProcess()
    with convgrad.Client(process.address, timeout=60) as there, client.session() as session, \
            there.session() as moved:
        net, optimizer = network(session)
        train(net, optimizer, 0, 3)
        convgrad.export_session(session, tmp_path / "x")
        train(net, optimizer, 3, 6)
        convgrad.import_session(moved, tmp_path / "x")
        other, its_optimizer = network(moved, resume=True)
        train(other, its_optimizer, 3, 6)
        for found, expected in ((other.state_dict(), net.state_dict()),
                                (other.averaged_state_dict(), net.averaged_state_dict())):
            assert found.keys() == expected.keys()
            for name, tensor in expected.items():
                assert torch.equal(found[name], tensor), name
    process.kill()
