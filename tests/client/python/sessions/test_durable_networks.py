"""Networks in durable sessions: what the trainer keeps, and kills of the server."""

import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from server_process import ServerProcess
from torch import nn

import convgrad
import convgrad.torch
from convgrad.torch.networks.trainer_state import decode, encode

pytestmark = pytest.mark.remote

STEPS = 12


@pytest.fixture
def durable(tmp_path):
    server = ServerProcess(f"--state_dir={tmp_path / 'state'}", "--snapshot_interval=100ms")
    yield server
    server.kill()


def make_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2),
                         nn.Flatten(), nn.Linear(4 * 36, 3))


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return (torch.randn(4, 2, 8, 8, generator=generator),
            torch.randint(3, (4,), generator=generator))


def step_with_own_loss(net, optimizer, step):
    images, labels = batch(step)
    optimizer.zero_grad()
    F.cross_entropy(net(images), labels).backward()
    optimizer.step()
    net.save({"step": step + 1, "rng": torch.get_rng_state()})


def step_on_server(net, optimizer, step):
    net.train_step(*batch(step), optimizer=optimizer, trainer_state=lambda: {
        "step": step + 1, "rng": torch.get_rng_state()})


def make_optimizer(net, **keywords):
    return convgrad.torch.optim.Adam(net.parameters(), lr=1e-2, **keywords)


def expected_state(client, train):
    """What a training without kills ends with."""
    net = convgrad.torch.remote(make_model(), client)
    optimizer = make_optimizer(net)
    torch.manual_seed(2)
    for step in range(STEPS):
        train(net, optimizer, step)
    found = net.state_dict(), optimizer.state_dict()["state"]
    net.close()
    return found


def check_same(net, optimizer, expected):
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, expected[0][name]), name
    for i, entries in optimizer.state_dict()["state"].items():
        for key, value in entries.items():
            assert torch.equal(value, expected[1][i][key]), (i, key)


@pytest.mark.parametrize("train", [step_on_server, step_with_own_loss])
def test_a_server_that_is_killed_between_any_two_steps(durable, client, train):
    expected = expected_state(client, train)
    with convgrad.Client(durable.address) as near, \
            convgrad.torch.remote(make_model(), near, durable=True) as net:
        optimizer = make_optimizer(net)
        torch.manual_seed(2)
        for step in range(STEPS):
            if step % 4 == 3:
                durable.kill()
                durable.restart()
            train(net, optimizer, step)
        check_same(net, optimizer, expected)


def test_a_server_that_is_killed_between_forward_and_backward(durable, client):
    expected = expected_state(client, step_with_own_loss)
    with convgrad.Client(durable.address) as near, \
            convgrad.torch.remote(make_model(), near, durable=True) as net:
        optimizer = make_optimizer(net)
        torch.manual_seed(2)
        for step in range(STEPS):
            images, labels = batch(step)
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images), labels)
            if step == 5:
                durable.kill()
                durable.restart()
            loss.backward()
            optimizer.step(trainer_state={"step": step + 1})
        check_same(net, optimizer, expected)


@pytest.mark.parametrize("train", [step_on_server, step_with_own_loss])
def test_a_trainer_that_is_gone_goes_on_where_its_state_says(durable, client, train):
    """It is gone in the middle of a step, behind the forward."""
    expected = expected_state(client, train)
    with convgrad.Client(durable.address) as near:
        session = near.session(durable=True, keep_open=True)
        net = convgrad.torch.remote(make_model(), session)
        optimizer = make_optimizer(net)
        torch.manual_seed(2)
        for step in range(5):
            train(net, optimizer, step)
        optimizer.zero_grad()
        F.cross_entropy(net(batch(5)[0]), batch(5)[1]).backward()
        net.wait()
    with convgrad.Client(durable.address) as near, \
            near.session(resume=session.id, durable=True) as second:
        net = convgrad.torch.remote(make_model(), second, put=False)
        optimizer = make_optimizer(net, resume=True)
        assert net.trainer_state["step"] == 5
        torch.set_rng_state(net.trainer_state["rng"])
        for step in range(5, STEPS):
            train(net, optimizer, step)
        check_same(net, optimizer, expected)


def test_durable_needs_a_session_of_the_networks_own(client):
    with client.session() as session, pytest.raises(convgrad.InvalidArgument, match="durable"):
        convgrad.torch.remote(make_model(), session, durable=True)


def test_a_server_without_a_folder_refuses(client):
    with pytest.raises(convgrad.FailedPrecondition, match="state_dir"):
        convgrad.torch.remote(make_model(), client, durable=True)


def test_a_trainers_state_comes_back():
    state = {"step": 3, "rng": torch.get_rng_state(), "rates": [0.1, 0.2], "name": "a"}
    found = decode(encode(state))
    assert torch.equal(found.pop("rng"), state.pop("rng")) and found == state
    assert decode(encode(lambda: {"step": 4})) == {"step": 4}
    assert decode(b"") == {}


def test_a_state_that_couldnt_be_read_is_refused_at_once():
    with pytest.raises(convgrad.InvalidArgument, match="trainer_state"):
        encode({"model": nn.Linear(1, 1)})


def test_a_later_state_that_couldnt_be_read_is_refused_at_once(client):
    with convgrad.torch.remote(make_model(), client) as net:
        net.save({"loss": 0.5})
        with pytest.raises(convgrad.InvalidArgument, match="trainer_state"):
            net.save({"loss": np.float64(0.5)})


def test_a_state_runs_no_code():
    with pytest.raises(pickle.UnpicklingError):
        decode(pickle.dumps(print))


@pytest.mark.parametrize("train", [step_on_server, step_with_own_loss])
def test_a_network_that_goes_back_trains_to_the_same_bits(durable, client, train):
    expected = expected_state(client, train)
    with convgrad.Client(durable.address) as near, \
            convgrad.torch.remote(make_model(), near, durable=True) as net:
        optimizer = make_optimizer(net)
        torch.manual_seed(2)
        for step in range(STEPS // 2):
            train(net, optimizer, step)
        net.session.save_state("half")
        for step in (20, 21, 22):  # a detour
            train(net, optimizer, step)
        net.eval()
        net(batch(0)[0])  # a program that the snapshot lacks
        net.train()
        state = net.restore_state("half")
        assert state["step"] == STEPS // 2
        torch.set_rng_state(state["rng"])
        durable.kill()
        durable.restart()
        for step in range(STEPS // 2, STEPS):
            train(net, optimizer, step)
        check_same(net, optimizer, expected)
        net.eval()
        net(batch(0)[0])


class Masked(nn.Module):
    """Has a constant, which its program keeps in the session."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        mask = torch.ones(4)
        mask[2:] = 0.25
        return self.fc(x) * mask


def test_constants_of_programs_that_are_younger_than_what_is_restored(durable):
    x = torch.arange(8.0).reshape(2, 4)
    with convgrad.Client(durable.address) as near, \
            convgrad.torch.remote(Masked(), near, durable=True) as net:
        net.save({"step": 0})
        net.session.save_state("first")
        expected = net(x)
        for _ in range(2):
            assert net.restore_state("first") == {"step": 0}
            assert torch.equal(net(x), expected)
            net(x).sum().backward()
        assert net.gradients().keys() == {"fc.weight", "fc.bias"}


def test_a_snapshot_of_an_earlier_model(durable):
    with convgrad.Client(durable.address) as near, \
            convgrad.torch.remote(Masked(), near, durable=True) as net:
        net.session.save_state("first")
        net.model.more = nn.Linear(4, 2)
        assert len(net.state_dict()) == 4
        net.restore_state("first")
        with pytest.raises(convgrad.FailedPrecondition, match=r"no tensor 'more\.weight'"):
            net.state_dict()
        del net.more
        assert len(net.state_dict()) == 2
