"""Tests the certificates of deploy/kubernetes/private-ca, and the server's errors about them.
"""
import calendar
import os
import re
import subprocess
import time
import urllib.request

import pytest

import deployed

SCRIPT = deployed.ROOT / "deploy" / "kubernetes" / "private-ca"


def private_ca(*arguments):
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True,
                          check=False)


@pytest.fixture(name="pki")
def new_pki(tmp_path):
    """Returns a folder with a CA, the server's certificate and one for the client `a`."""
    for arguments in (["server"], ["client", "a"]):
        done = private_ca(tmp_path / "pki", *arguments)
        assert done.returncode == 0, done.stderr
    return tmp_path / "pki"


def openssl(*arguments):
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout + done.stderr


def expiration(certificate):
    said = openssl("x509", "-noout", "-enddate", "-in", certificate)[1]
    return calendar.timegm(time.strptime(said.strip(), "notAfter=%b %d %H:%M:%S %Y %Z"))


@pytest.mark.parametrize("kind,place", [("server", "server"),
                                        ("client", "clients/a")])
def test_each_certificate_is_good_for_its_own_end_alone(pki, kind, place):
    for purpose in ("server", "client"):
        code, said = openssl("verify", "-CAfile", pki / "ca.crt", "-purpose",
                             f"ssl{purpose}", pki / place / "tls.crt")
        assert (code == 0) == (purpose == kind), said
    assert (pki / place / "ca.crt").read_bytes() == (pki / "ca.crt").read_bytes()


def test_keys_are_for_their_owner_alone(pki):
    for key in pki.rglob("*.key"):
        assert key.stat().st_mode & 0o077 == 0, key


def test_a_second_call_renews_the_certificate_and_keeps_the_ca(pki):
    ca, before = ((pki / name).read_bytes() for name in ("ca.crt", "server/tls.crt"))
    assert private_ca(pki, "server").returncode == 0
    assert (pki / "ca.crt").read_bytes() == ca
    assert (pki / "server" / "tls.crt").read_bytes() != before


def test_who_has_the_folder_mounted_sees_the_renewed_certificate(pki):
    folder = os.open(pki / "server", os.O_DIRECTORY)
    assert private_ca(pki, "server").returncode == 0
    for name in ("tls.crt", "tls.key", "ca.crt"):
        with open(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as mounted:
            assert mounted.read() == (pki / "server" / name).read_bytes()
    os.close(folder)
    # Only files without links, as kubectl's --from-file requires.
    files = list((pki / "server" / "current").iterdir())
    assert len(files) == 3 and not any(file.is_symlink() for file in files)
    assert len(list((pki / "server").glob("files.*"))) == 1


def test_renewed_files_belong_to_the_folders_owner(pki):
    if os.geteuid() == 0:  # others can't give files away
        os.chown(pki / "server", 10001, 10001)
    assert private_ca(pki, "server").returncode == 0
    owner = (pki / "server").stat().st_uid
    for file in (pki / "server" / "current").iterdir():
        assert file.stat().st_uid == owner


def test_a_host_is_named_by_its_address_too(pki):
    assert private_ca(pki, "server", "10.0.0.7", "::1", "a.test").returncode == 0
    said = openssl("x509", "-noout", "-ext", "subjectAltName", "-in",
                   pki / "server" / "tls.crt")[1]
    for name in ("IP Address:10.0.0.7", "IP Address:0:0:0:0:0:0:0:1", "DNS:a.test"):
        assert name in said


def test_the_server_says_that_it_may_not_read_a_file(pki):
    own = pki / "server"
    (own / "tls.crt").chmod(0)
    # Root may read everything.
    other = ["setpriv", "--reuid=10001", "--clear-groups"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*other, deployed.SERVER, "--listen=127.0.0.1:0", "--metrics_listen=",
         f"--tls_cert={own / 'tls.crt'}", f"--tls_key={own / 'tls.key'}"],
        capture_output=True, text=True, check=False)
    assert f"--tls_cert: found '{own / 'tls.crt'}' (Permission denied)" in \
        done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [
    [], ["server"], ["pki"], ["pki", "ca"], ["pki", "client"],
    ["pki", "client", "../a"], ["pki", "client", "a", "b"]], ids=" ".join)
def test_wrong_arguments_get_the_usage(arguments, tmp_path):
    done = subprocess.run([SCRIPT, *arguments], cwd=tmp_path, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2
    assert "usage: deploy/kubernetes/private-ca FOLDER" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_server_says_when_the_first_certificate_of_a_file_expires(pki, tmp_path):
    own = pki / "server" / "tls.crt"
    chain = tmp_path / "chain.pem"
    # In the opposite order of a chain, because the order must not matter.
    chain.write_text((pki / "ca.crt").read_text() + own.read_text())
    with deployed.server(f"--tls_cert={own}", f"--tls_key={pki / 'server/tls.key'}",
                         f"--tls_client_ca={chain}") as server:
        url = f"http://127.0.0.1:{server.metrics}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
    said = re.findall(
        r'^convgrad_certificate_expiration_timestamp_seconds\{flag="(\w+)"\} (\S+)$',
        text, re.M)
    assert expiration(own) < expiration(pki / "ca.crt")
    assert {flag: float(value) for flag, value in said} == {
        "tls_cert": expiration(own), "tls_client_ca": expiration(own)}
