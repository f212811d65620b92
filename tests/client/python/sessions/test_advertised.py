"""Sessions of two real servers behind one name, each of which advertises its own address."""

import contextlib
import socket

import numpy as np
import pytest
from certificates import make_certificates
from replicas import Replicas
from server_process import ServerProcess, free_port

import convgrad

NAME = "trainer.test"
TOKEN = "b9c1f0c5a5e24e0a"


@pytest.fixture
def make_replicas(tmp_path):
    with contextlib.ExitStack() as stack:
        def make(*flags, **keywords):
            replicas = Replicas(tmp_path, "--snapshot_interval=1h", *flags, **keywords)
            stack.callback(replicas.kill)
            return replicas

        yield make


def address_of(session):
    """Returns the address at which the client calls the session."""
    return session._opened.target


def open_at_both(client, replicas):
    """Returns a durable session for each server, by its address."""
    found = {}
    for _ in range(20):
        session = client.session(durable=True)
        found.setdefault(address_of(session), session)
        if len(found) == 2:
            break
    assert found.keys() == replicas.servers.keys()
    return found


def test_sessions_opened_at_any_replica_stay_with_it(make_replicas):
    replicas = make_replicas()
    with convgrad.Client(replicas.target) as client:
        sessions = open_at_both(client, replicas)
        for number, (address, session) in enumerate(sessions.items()):
            for _ in range(6):  # in turn they would go to both servers
                session.put("w", np.full(3, number, np.float32))
            with convgrad.Client(address) as direct:
                np.testing.assert_array_equal(
                    direct.attach(session.id).get("w"), np.full(3, number))
        for number, session in enumerate(sessions.values()):
            np.testing.assert_array_equal(session.get("w"), np.full(3, number))


def test_a_session_waits_for_the_restart_of_its_own_server(make_replicas):
    replicas = make_replicas()
    with convgrad.Client(replicas.target) as client:
        for kill in ("terminate", "kill"):
            for address, session in open_at_both(client, replicas).items():
                session.put("w", np.zeros(3, np.float32))
                session.save_state()
                session.put("w", np.ones(3, np.float32))  # only the client has it after a kill
                getattr(replicas.servers[address], kill)()
                behind = session.submit(session.put, "v", np.ones(2, np.float32))
                assert not behind.done()
                replicas.servers[address].restart()
                behind.result(timeout=60)
                np.testing.assert_array_equal(session.get("w"), np.ones(3))
                assert session.number == 3 and address_of(session) == address


@pytest.fixture
def secure(make_replicas, tmp_path, monkeypatch):
    """Replicas with TLS and tokens behind a name, which only Python's sockets know."""
    pki = make_certificates(tmp_path, f"DNS:{NAME},IP:127.0.0.1,IP:127.0.0.2")
    (tmp_path / "tokens").write_text(f"alice train {TOKEN}\n")
    replicas = make_replicas(f"--tls_cert={pki}/server.pem", f"--tls_key={pki}/server.key",
                             f"--token_file={tmp_path}/tokens")
    real = socket.getaddrinfo

    def resolve(host, port, *arguments, **keywords):
        if host != NAME:
            return real(host, port, *arguments, **keywords)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one.split(":")[0], port))
                for one in replicas.servers]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    replicas.settings = {"tls": convgrad.Tls(ca=pki / "ca.pem"), "token": TOKEN}
    replicas.name = f"{NAME}:{replicas.port}"
    return replicas


def test_resuming_by_name_asks_each_replica_of_a_target(secure):
    for number, address in enumerate(secure.servers):
        with convgrad.Client(address, **secure.settings) as client:
            with client.session(f"run {number}", durable=True, keep_open=True) as session:
                session.put("w", np.full(3, number, np.float32), trainer_state=b"state")
    with convgrad.Client(secure.name, **secure.settings) as client:
        assert {one.name for one in client.sessions()} == {"run 0", "run 1"}
        for number, address in enumerate(secure.servers):
            session = client.session(f"run {number}", resume=True)
            assert address_of(session) == address and session.trainer_state == b"state"
            session.put("v", np.ones(1, np.float32))
            np.testing.assert_array_equal(session.get("w"), np.full(3, number))
            reader = client.attach(session.id)
            np.testing.assert_array_equal(reader.get("w"), np.full(3, number))
            session.close()
        with pytest.raises(convgrad.SessionExpired):
            client.session("run 0", resume=True)


def test_resuming_waits_for_a_replica_that_is_away(secure):
    *_, address = secure.servers
    with convgrad.Client(address, **secure.settings) as client:
        client.session("run", durable=True, keep_open=True).put("w", np.ones(3, np.float32),
                                                               trainer_state=b"state")
    assert secure.servers[address].terminate() == 0
    with convgrad.Client(secure.name, **secure.settings) as client:
        future = client.submit(client.session, "run", resume=True)
        with pytest.raises(TimeoutError):
            future.result(timeout=3)  # one replica doesn't have it, the other isn't there
        secure.servers[address].restart()
        np.testing.assert_array_equal(future.result(timeout=60).get("w"), np.ones(3))


def test_the_certificate_must_have_the_advertised_name(tmp_path):
    pki = make_certificates(tmp_path, "IP:127.0.0.1")
    port = free_port("127.0.0.1", "127.0.0.2")
    server = ServerProcess(f"--listen=127.0.0.1:{port},127.0.0.2:{port}",
                           f"--advertise=127.0.0.2:{port}", f"--tls_cert={pki}/server.pem",
                           f"--tls_key={pki}/server.key")
    with convgrad.Client(f"127.0.0.1:{port}", tls=convgrad.Tls(ca=pki / "ca.pem")) as client:
        with pytest.raises(convgrad.Unavailable) as caught:
            client.session()
    assert f"a certificate of 127.0.0.2:{port} that isn't valid" in caught.value.found
    named = convgrad.Tls(ca=pki / "ca.pem", server_name="127.0.0.1")
    with convgrad.Client(f"127.0.0.1:{port}", tls=named) as client:
        assert address_of(client.session()) == f"127.0.0.2:{port}"
    server.kill()


def test_an_address_of_another_server_is_named(make_replicas):
    replicas = make_replicas(advertise="127.0.0.1:{1}")
    wrong = list(replicas.servers)[1]
    with convgrad.Client(wrong) as client:
        for _ in range(2):  # the first one doesn't stay open under the name
            with pytest.raises(convgrad.FailedPrecondition) as caught:
                client.session("run")
        assert not client.sessions()
    assert f"where the server at {wrong} doesn't have its sessions" in caught.value.message
    assert "expected --advertise with" in caught.value.message
