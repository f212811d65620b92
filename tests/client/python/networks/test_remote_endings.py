"""Tests the end of a remote network's session after the network is collected, and the parts of
a network that can't be saved."""

import contextlib
import gc
import io
import threading
import weakref

import pytest
import torch
from server_process import ServerProcess
from shared_steps import python, sessions_of, wait_until
from small_networks import OfIntegers, integers
from torch import nn

import convgrad
from convgrad.torch import optim, remote

X = integers(3, 2, 6, 6, most=2)


@pytest.fixture(scope="module")
def server():
    """A server whose sessions are only those of these tests."""
    process = ServerProcess()
    yield process
    process.kill()


@pytest.fixture
def client(server):
    with convgrad.Client(server.address, timeout=60) as client:
        yield client
        wait_until(lambda: not sessions_of(client))


@contextlib.contextmanager
def without_collector():
    """Disables the collector, so that only the end of references frees objects."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def train(net):
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    net(X).sum().backward()
    optimizer.step()
    return optimizer


def test_networks_that_are_rebound(client):
    with without_collector():
        for _ in range(3):
            net = remote(OfIntegers(), client)
            train(net)
        wait_until(lambda: len(sessions_of(client)) == 1)
        del net


def test_a_network_in_a_cycle(client):
    net = remote(OfIntegers(), client)
    net.itself = [net]
    del net
    gc.collect()


def test_a_graph_or_an_optimizer_keeps_it(client):
    with without_collector():
        net = remote(OfIntegers(), client)
        loss = net(X).sum()
        handle = next(net.parameters())
        assert next(net.parameters()) is handle
        optimizer = optim.SGD(net.parameters(), lr=0.1)
        session = net.session
        del net
        loss.backward()
        del loss
        optimizer.step()
        handle.network.wait()
        assert not session.is_lost
        del optimizer
        wait_until(lambda: session.is_lost)
        with pytest.raises(convgrad.FailedPrecondition, match="network that was freed"):
            handle.grad  # noqa: B018


def test_changes_under_way_come_to_their_end(client):
    with without_collector():
        net = remote(nn.Sequential(nn.Flatten(), nn.Linear(72, 2)), client)
        future = net.submit_train_step(X, torch.tensor([0, 1, 0]),
                                       optimizer=optim.SGD(net.parameters(), lr=0.1))
        del net
        assert future.result() > 0


def test_a_session_of_the_users_stays(client):
    with without_collector(), client.session() as session:
        before = set(threading.enumerate())  # including threads of other tests
        train(remote(OfIntegers(), session))
        assert sessions_of(client)[0].tensors and not session.is_lost
        wait_until(lambda: "convgrad-network" not in {
            thread.name for thread in set(threading.enumerate()) - before})
        assert "convgrad-session" in {thread.name for thread in threading.enumerate()}
        session.put("x", X.numpy())


def test_close_ends_what_keep_open_kept(client):
    with client.session(keep_open=True) as session:
        pass
    assert len(sessions_of(client)) == 1
    client.session(resume=session.id).close()
    assert not sessions_of(client)
    client.session(keep_open=True).close()
    assert not sessions_of(client)


@pytest.mark.parametrize("kept", ["net", "", "net, net.itself"])
@pytest.mark.parametrize("transport", ["native", "python"])
def test_at_the_interpreters_end(server, client, transport, kept):
    """Tests a network that still exists, one that was just freed, and one in a cycle."""
    found = python(f"""
import sys, convgrad, torch
from convgrad.torch import remote
client = convgrad.Client(sys.argv[1])
def main():
    net = remote(torch.nn.Linear(2, 2), client)
    net.itself = net if "itself" in {kept!r} else None
    net(torch.ones(1, 2)).sum().backward()
    return {kept or None}
there = main()
""", transport, arguments=[server.address])
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


# A process that is killed leaves its session to the lease.
@pytest.mark.parametrize("end", [
    "1 / 0", "sys.exit(1)", "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"])
def test_a_training_that_is_broken_off(server, client, end):
    found = python(f"""
import os, signal, sys, time, convgrad, torch
# A shell has background jobs ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
net = convgrad.torch.remote(torch.nn.Linear(2, 2), convgrad.Client(sys.argv[1]))
optimizer = convgrad.torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(1, 2)).sum().backward()
optimizer.step()
{end}
""", arguments=[server.address])
    assert found.returncode and not sessions_of(client)


@pytest.mark.parametrize("given", ["client", "session"])
def test_a_forked_process_has_nothing_to_end(server, client, given):
    """Its exit would wait for a thread that only its parent has."""
    found = python(f"""
import os, sys, convgrad, torch
from convgrad.torch.networks import endings
client = convgrad.Client(sys.argv[1])
session = client.session()
net = convgrad.torch.remote(torch.nn.Linear(2, 2), {given})
pid = os.fork()
if pid == 0:
    del net
    os._exit(len(endings._under_way))
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
session.close()
""", arguments=[server.address])
    assert (found.returncode, found.stderr) == (0, "")


def test_a_call_in_a_forked_process_is_refused(server, client):
    """Also if another thread dropped tapes at that moment."""
    found = python("""
import os, sys, convgrad, torch
net = convgrad.torch.remote(torch.nn.Linear(2, 2), convgrad.Client(sys.argv[1]))
net(torch.ones(1, 2))
with net.tapes._dropping:
    pid = os.fork()
    if pid == 0:
        try:
            net(torch.ones(1, 2))
        except convgrad.FailedPrecondition:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
""", arguments=[server.address])
    assert (found.returncode, found.stderr) == (0, "")


def test_a_server_that_is_gone_holds_no_interpreter():
    server = ServerProcess()
    found = python(f"""
import os, signal, sys, convgrad, torch
from convgrad.torch import remote
client = convgrad.Client(sys.argv[1])
net = remote(torch.nn.Linear(2, 2), client)
net(torch.ones(1, 2)).sum().backward()
os.kill({server.process.pid}, signal.SIGKILL)
""", arguments=[server.address])
    server.kill()
    assert (found.returncode, found.stdout) == (0, "")


def test_a_network_whose_call_has_failed_is_kept_by_nobody():
    """Neither the error nor an answer after the session's end keeps the network alive."""
    server = ServerProcess()
    policy = convgrad.RetryPolicy(max_attempts=3)
    with convgrad.Client(server.address, retry=policy) as client:
        net = remote(OfIntegers(), client)
        server.kill()
        with pytest.raises(convgrad.Unavailable) as caught, net:
            net(X)
        gone = weakref.ref(net)
        del net, caught

        def is_gone():
            gc.collect()
            return gone() is None

        wait_until(is_gone, seconds=10)


def test_what_has_no_values_is_not_saved(client):
    with remote(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), client) as net:
        model = net.model
        for saved in (model, model.state_dict(), model[0].weight, model[1].running_mean,
                      [model[0].weight.detach()]):
            with pytest.raises(convgrad.Unimplemented, match=r"net\.state_dict\(\)"):
                torch.save(saved, io.BytesIO())
        torch.save(net.state_dict(), io.BytesIO())
        assert net.load_state_dict(net.state_dict()).missing_keys == []
