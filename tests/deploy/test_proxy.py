"""Tests haproxy as deploy/haproxy/run starts it, in front of a server at a UNIX socket, as in
compose.yml and in the pods of deploy/kubernetes."""
import contextlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

import deployed
import floods

grpc = pytest.importorskip("grpc")
yaml = pytest.importorskip("yaml")

RUN = deployed.HAPROXY.parent / "run"
PRIVATE_CA = deployed.ROOT / "deploy" / "kubernetes" / "private-ca"
SMALL = "conv2d_n1_c4_o4_i8_k3_p1"
GOAWAY = 7


def make_certificate(folder):
    subprocess.run([PRIVATE_CA, folder, "server", "127.0.0.1"], check=True,
                   stdout=subprocess.DEVNULL)
    return folder / "server"


@contextlib.contextmanager
def proxied(folder, *flags, stderr=None, **variables):
    """Yields the address of a proxy, its process, and the server behind it."""
    deployed.need("haproxy", "openssl")
    path = folder / "socket"
    address = f"127.0.0.1:{deployed.free_port()}"
    with deployed.server(f"--listen=unix:{path}", *flags) as server, deployed.running(
            RUN, stderr=stderr, env={**os.environ, "LISTEN": address,
                                     "REPLICA_1": f"unix@{path}", **variables}) as proxy:
        try:
            deployed.wait_until(lambda: deployed.accepts(address), "haproxy that listens")
            yield address, proxy, server
        finally:  # a kill would end only the script, not haproxy
            proxy.send_signal(signal.SIGTERM)
            proxy.wait(60)


def served(address):
    """Returns the certificate of new connections; None if they fail."""
    host, port = address.rsplit(":", 1)
    with contextlib.suppress(OSError):
        return ssl.get_server_certificate((host, int(port))).strip()
    return None


def test_a_renewed_certificate_is_served_without_a_restart(tmp_path):
    own = make_certificate(tmp_path / "pki")
    with proxied(tmp_path, PEM=str(own / "tls.crt")) as (address, _, _):
        before = (own / "tls.crt").read_text().strip()
        deployed.wait_until(lambda: served(address) == before, "the first certificate")
        make_certificate(tmp_path / "pki")
        after = (own / "tls.crt").read_text().strip()
        assert after != before
        deployed.wait_until(lambda: served(address) == after, "the new certificate")
        deployed.convgrad(address, "backward", SMALL, f"--ca={own / 'ca.crt'}")


def test_a_key_that_comes_after_its_certificate_is_served(tmp_path):
    own = make_certificate(tmp_path / "pki")
    copies = tmp_path / "copies"
    copies.mkdir()
    for name in ("tls.crt", "tls.key"):
        shutil.copy(own / name, copies)
    with proxied(tmp_path, PEM=str(copies / "tls.crt")) as (address, _, _):
        before = served(address)
        make_certificate(tmp_path / "pki")
        shutil.copy(own / "tls.crt", copies)
        time.sleep(3)  # the proxy looks each second, and refuses the pair
        assert served(address) == before
        shutil.copy(own / "tls.key", copies)
        after = (own / "tls.crt").read_text().strip()
        deployed.wait_until(lambda: served(address) == after, "the new certificate")


def test_a_stop_lets_calls_finish(tmp_path):
    with proxied(tmp_path, DRAIN_SECONDS="1") as (address, proxy, _), \
            grpc.insecure_channel(address) as channel:
        watch = channel.unary_stream(floods.HEALTH.decode())(b"", timeout=60)
        next(watch)
        proxy.send_signal(signal.SIGTERM)
        deployed.wait_until(lambda: not deployed.accepts(address), "no new connections")
        with pytest.raises(subprocess.TimeoutExpired):
            proxy.wait(2)  # a call is in flight
        assert watch.is_active()
        watch.cancel()
        assert proxy.wait(60) == 0


def test_a_stop_while_a_worker_starts(tmp_path):
    """Without the script, haproxy would lose a signal that comes at this time."""
    for round_ in range(2):
        folder = tmp_path / str(round_)
        folder.mkdir()
        with proxied(folder, MAX_AGE="1", stderr=subprocess.PIPE) as (_, proxy, _):
            assert any(b"Reloading" in line for line in proxy.stderr)
            proxy.send_signal(signal.SIGTERM)
            proxy.communicate(timeout=60)
            assert proxy.returncode == 0


def awaits_goaway(connection):
    """Reads until the server sends GOAWAY. Returns False if it closes first."""
    stream = connection.makefile("rb")
    while head := stream.read(9):
        stream.read(int.from_bytes(head[:3], "big"))
        if head[3] == GOAWAY:
            return True
    return False


def test_clients_are_sent_away_now_and_then_to_look_for_replicas(tmp_path):
    with proxied(tmp_path, MAX_AGE="1") as (address, _, _):
        host, port = address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(floods.PREFACE + floods.frame(floods.SETTINGS, 0, 0))
            assert awaits_goaway(connection)
        face = floods.Face(address)
        deployed.wait_until(face.call, "an answer")


def compose():
    """Returns the services of compose.yml that calls go through."""
    services = yaml.safe_load((deployed.ROOT / "deploy" / "compose.yml").read_text())[
        "services"]
    return services["convgrad"], services["proxy"]


def test_strangers_get_to_haproxy_alone_in_compose():
    server, proxy = compose()
    assert "ports" not in server and "--insecure" not in server["command"]
    assert proxy["ports"] == ["127.0.0.1:7070:7070"]
    listen, = (flag for flag in server["command"] if flag.startswith("--listen="))
    path = proxy["environment"]["REPLICA_1"].removeprefix("unix@")
    assert f"unix:{path}" in re.split("[=,]", listen)
    folders, shared = ({volume.split(":")[1] for volume in service["volumes"]}
                       for service in (server, proxy))
    state, = (flag.partition("=")[2] for flag in server["command"]
              if flag.startswith("--state_dir="))
    assert shared == {os.path.dirname(path)}
    assert folders == {*shared, state}


@pytest.mark.parametrize("name", ["CONTINUATION, small fields",
                                  "CONTINUATION, large fields"])
def test_what_compose_starts_holds_headers_without_end_off(tmp_path, name):
    server, proxy = compose()
    flags = [flag for flag in server["command"] if "listen" not in flag]
    variables = {key: str(value) for key, value in proxy["environment"].items()
                 if key not in ("LISTEN", "REPLICA_1")}
    with proxied(tmp_path, *flags, **variables) as (address, _, behind):
        face = floods.Face(address)
        deployed.wait_until(face.call, "an answer")
        cost = floods.measure(floods.FLOODS[name], face, [behind.process.pid],
                              "127.0.0.2", seconds=2)
        print(f"| {name} | {cost.row()} |")
        assert cost.failed == 0
        assert cost.peak[0] <= 1.1 * 256, name


def test_calls_go_on_while_the_certificate_is_renewed(tmp_path):
    own = make_certificate(tmp_path / "pki")
    # In 10 s a fast machine makes more calls than the proxy allows by default.
    with proxied(tmp_path, PEM=str(own / "tls.crt"), MAX_CALLS="1000000") as (address, _, _):
        face = floods.Face(address, own / "ca.crt")
        deployed.wait_until(face.call, "an answer")
        stops, failed = threading.Event(), []

        def call():
            while not stops.is_set():
                if not face.call():
                    failed.append(True)

        thread = threading.Thread(target=call)
        thread.start()
        for _ in range(3):
            make_certificate(tmp_path / "pki")
            after = (own / "tls.crt").read_text().strip()
            deployed.wait_until(lambda wanted=after: served(address) == wanted, "renewed")
        stops.set()
        thread.join()
        assert not failed
