"""Starts programs as an operator does, for the tests of this folder."""
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CONVGRAD_BUILD_DIR",
                                    ROOT / "build" / "release"))
SERVER = BUILD / "server" / "convgrad-server"
HAPROXY = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
CLIENT = BUILD / "client" / "cpp" / "convgrad"
# kubectl and Kubernetes' schemas, installed by `deploy/dependencies test`.
KUBERNETES = ROOT / ".cache" / "kubernetes"


def need(*programs):
    """Skips the test unless all `programs` are installed."""
    for program in programs:
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") is None:
            pytest.skip(f"{program} isn't installed: deploy/dependencies test")


def free_port():
    """Returns a port that was free a moment ago, for programs that can't report the port
    that they selected."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def accepts(address):
    """Returns whether a program listens at HOST:PORT."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def wait_until(true, what, seconds=60):
    """Waits until `true()` returns true; fails the test after `seconds`."""
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, f"never: {what}"
        time.sleep(0.05)


@contextlib.contextmanager
def running(*command, **options):
    """Runs a program, and kills it at the end."""
    process = subprocess.Popen([str(part) for part in command], **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Server:
    """A convgrad-server on its own ports."""

    def __init__(self, process):
        self.process = process
        self.metrics = None
        self.health = None
        self.address = None
        while self.address is None:
            line = process.stdout.readline()
            assert line, "convgrad-server didn't start"
            for name, mark in (("metrics", "metrics on port "),
                               ("health", "health at "),
                               ("address", "listening on ")):
                if mark in line:
                    setattr(self, name, line.split(mark)[1].strip())


@contextlib.contextmanager
def server(*flags):
    with running(SERVER, "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                 "--memory_budget_bytes=268435456", "--threads_per_worker=1",
                 "--backends=onednn,reference", *flags, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                 text=True) as process:
        yield Server(process)


def try_convgrad(address, *arguments):
    """Runs the command line tool and returns the finished process."""
    return subprocess.run([CLIENT, *arguments, f"--server={address}"],
                          capture_output=True, text=True, check=False)


def convgrad(address, *arguments):
    """Runs the command line tool; fails the test if it fails."""
    done = try_convgrad(address, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def is_ready(health):
    return subprocess.run([SERVER, "--healthcheck", f"--health_listen={health}"],
                          capture_output=True, check=False).returncode == 0


def certificate(folder):
    """Makes a certificate for 127.0.0.1. Returns the paths of the certificate and its key."""
    paths = folder / "cert", folder / "key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj",
         "/CN=convgrad", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
         paths[1], "-out", paths[0]], check=True, capture_output=True)
    return paths


class Proxy:
    """A haproxy that speaks TLS."""

    def __init__(self, process, address, ca):
        self.process = process
        self.address = address
        self.ca = ca

    def channel(self):
        import grpc  # pylint: disable=import-outside-toplevel
        return grpc.secure_channel(
            self.address, grpc.ssl_channel_credentials(self.ca.read_bytes()))


@contextlib.contextmanager
def haproxy(replicas, folder, **variables):
    """Runs the haproxy of deploy/ in front of one or two servers. Skips the test if haproxy
    isn't installed. `variables` are further environment variables."""
    need("haproxy", "openssl")
    cert, key = certificate(folder)
    pem = folder / "pem"
    pem.write_bytes(cert.read_bytes() + key.read_bytes())
    for replica in replicas:
        # haproxy considers replicas healthy until a first check has failed.
        wait_until(lambda: is_ready(replica.health), "a replica that is ready")
    address = f"127.0.0.1:{free_port()}"
    environment = {**os.environ, "LISTEN": address, "PEM": str(pem), **variables}
    for number, replica in enumerate(replicas, start=1):
        environment[f"REPLICA_{number}"] = replica.address
        environment[f"HEALTH_{number}"] = replica.health
    subprocess.run(["/usr/sbin/haproxy", "-c", "-q", "-f", HAPROXY],
                   env=environment, check=True)
    with running("/usr/sbin/haproxy", "-db", "-f", HAPROXY,
                 env=environment) as process:
        # A client that can't connect would try again only after some seconds.
        wait_until(lambda: accepts(address), "haproxy that listens")
        yield Proxy(process, address, cert)
