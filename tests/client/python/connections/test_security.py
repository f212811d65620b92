"""Tests TLS, mutual TLS, tokens and UNIX sockets, with certificates made here."""

import asyncio
import io
import pickle

import grpc
import numpy as np
import pytest
import torch
from certificates import make_certificates, openssl
from server_process import ServerProcess
from stand_in import grpc_server

import convgrad
import convgrad.aio
import convgrad.torch

X, W = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 2, 2), np.float32)


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """Returns a folder with a CA, and keys and certificates of server and client."""
    return make_certificates(tmp_path_factory.mktemp("pki"), "DNS:trainer.test")


@pytest.fixture
def tls_server(pki, server):
    """Serves with TLS, optionally requires a client's certificate, and forwards calls."""
    seen = []
    channel = grpc.insecure_channel(server.address)

    def answer(request, context):
        seen.append(dict(context.invocation_metadata()) | {
            "peer": context.auth_context().get("x509_common_name")})
        return channel.unary_unary("/convgrad.v1.ConvGrad/ConvForward")(request)

    def serve(mutual):
        pair = [((pki / "server.key").read_bytes(), (pki / "server.pem").read_bytes())]
        ca = (pki / "ca.pem").read_bytes() if mutual else None
        return grpc_server(answer, grpc.ssl_server_credentials(pair, ca, mutual))

    serve.seen = seen
    return serve


def call(target, **settings):
    with convgrad.Client(target, timeout=60, **settings) as client:
        return client.conv_forward(X, W).output


def test_tls_with_a_token(tls_server, pki):
    tls = convgrad.Tls(ca=pki / "ca.pem", server_name="trainer.test")
    with tls_server(mutual=False) as address:
        np.testing.assert_array_equal(
            call(address, tls=tls, token="one"), np.full((1, 1, 2, 2), 4))
        call(address, tls=tls, token=lambda: "two")
    assert [seen["authorization"] for seen in tls_server.seen] == ["Bearer one", "Bearer two"]


def test_mutual_tls(tls_server, pki):
    ca = (pki / "ca.pem").read_bytes()
    name = "trainer.test"
    with tls_server(mutual=True) as address:
        call(address, tls=convgrad.Tls(ca, pki / "client.pem", pki / "client.key", name))
        with pytest.raises(convgrad.Unavailable):
            call(address, tls=convgrad.Tls(ca, server_name=name))
    assert [seen["peer"] for seen in tls_server.seen] == [[b"client"]]


def test_tls_mismatches_are_unavailable(tls_server, server, pki):
    name = "trainer.test"
    good = convgrad.Tls(pki / "ca.pem", server_name=name)
    with tls_server(mutual=False) as address:
        for tls in (convgrad.Tls(pki / "foreign.pem", server_name=name),
                    convgrad.Tls(pki / "ca.pem"), True, False):
            with pytest.raises(convgrad.Unavailable):
                call(address, tls=tls)
    with pytest.raises(convgrad.Unavailable):
        call(server.address, tls=good)
    assert not tls_server.seen


def reason_of(address, **settings):
    """Returns the message of a call that fails at once."""
    with convgrad.Client(address, timeout=60, **settings) as client:
        with pytest.raises(convgrad.Unavailable) as caught:
            client.conv_forward(X, W)
    assert caught.value.attempts == 1 and len(caught.value.request_id) == 16
    assert caught.value.field.startswith("tls")
    return caught.value.message


@pytest.fixture
def mutual_server(pki):
    process = ServerProcess(f"--tls_cert={pki}/server.pem", f"--tls_key={pki}/server.key",
                            f"--tls_client_ca={pki}/ca.pem")
    yield process
    process.kill()


def test_certificates_that_dont_fit_are_named_at_once(mutual_server, server, pki):
    name, ca = "trainer.test", pki / "ca.pem"
    at = mutual_server.address
    wrong = f"tls: found a certificate of {at} that isn't valid "
    assert reason_of(at, tls=convgrad.Tls(pki / "foreign.pem", server_name=name)) == (
        wrong + "(self-signed certificate in certificate chain), expected one for "
        "'trainer.test' from an authority in tls.ca")
    assert reason_of(at, tls=convgrad.Tls(ca)) == (
        wrong + "(IP address mismatch, certificate is not valid for '127.0.0.1'), expected one "
        "for '127.0.0.1' from an authority in tls.ca")
    assert reason_of(at, tls=convgrad.Tls(server_name=name)).endswith(
        "from a well-known authority")
    taken = f"expected one from an authority that {at} trusts"
    assert reason_of(at, tls=convgrad.Tls(ca, server_name=name)) == (
        f"tls.certificate: found none, {taken}")
    assert reason_of(at, tls=convgrad.Tls(ca, pki / "foreign.pem", pki / "foreign.key", name)) \
        == f"tls.certificate: found one that isn't taken, {taken}"
    assert reason_of(at) == f"tls: found none, expected tls, which {at} speaks"
    assert reason_of(server.address, tls=convgrad.Tls(ca, server_name=name)) == (
        f"tls: found plaintext at {server.address}, expected a server that speaks TLS, or a "
        "client without tls")
    call(at, tls=convgrad.Tls(ca, pki / "client.pem", pki / "client.key", name))


def test_asyncio_names_certificates_too(mutual_server):
    async def main():
        async with convgrad.aio.Client(mutual_server.address, timeout=20) as client:
            with pytest.raises(convgrad.Unavailable, match="tls: found none") as caught:
                await client.conv_forward(X, W)
        assert caught.value.attempts == 1

    asyncio.run(main())


def test_a_client_that_worked_waits_for_its_server(mutual_server, pki):
    """The client doesn't give up if its certificate was accepted before."""
    tls = convgrad.Tls(pki / "ca.pem", pki / "client.pem", pki / "client.key", "trainer.test")
    with convgrad.Client(mutual_server.address, tls=tls, timeout=60) as client:
        client.conv_forward(X, W)
        mutual_server.kill()
        mutual_server.flags = ()  # it restarts without TLS
        mutual_server.restart()
        with pytest.raises(convgrad.Unavailable) as caught:
            client.conv_forward(X, W, timeout=1)
        assert caught.value.attempts > 1 and caught.value.field == "server"


@pytest.mark.parametrize("files, message", [
    (("client.key",), "tls.ca: found '{}/client.key', expected certificates in PEM"),
    ((b"hello",), "tls.ca: found bytes, expected certificates in PEM"),
    (("ca.pem", "client.key", "client.key"),
     "tls.certificate: found '{}/client.key', expected certificates in PEM"),
    (("ca.pem", "client.pem", "client.pem"),
     "tls.key: found '{}/client.pem', expected a private key in PEM that isn't encrypted"),
    (("ca.pem", "client.pem", "locked.key"),
     "tls.key: found '{}/locked.key', expected a private key in PEM that isn't encrypted"),
    (("ca.pem", "client.pem", "server.key"),
     "tls.key: found another certificate's, expected that of tls.certificate"),
])
def test_files_are_checked_when_the_client_is_made(pki, files, message):
    openssl("rsa", "-in", pki / "client.key", "-aes128", "-passout", "pass:word", "-out",
            pki / "locked.key")
    tls = convgrad.Tls(*(f if isinstance(f, bytes) else pki / f for f in files))
    for make in (convgrad.Client, convgrad.aio.Client):
        with pytest.raises(convgrad.InvalidArgument) as caught:
            make("localhost:1", tls=tls)
        assert caught.value.message.startswith(message.format(pki))


def test_settings_that_dont_fit(pki):
    with pytest.raises(convgrad.InvalidArgument, match="tls.key: found nothing"):
        convgrad.Client("localhost:1", tls=convgrad.Tls(certificate=pki / "client.pem"))
    with pytest.raises(convgrad.InvalidArgument, match="token: found a plaintext"):
        convgrad.Client(["localhost:1", "server.example:1"], token="secret")
    with pytest.raises(convgrad.InvalidArgument, match="connections: found 0"):
        convgrad.Client("localhost:1", connections=0)
    with pytest.raises(convgrad.InvalidArgument, match="keepalive_seconds: found 0"):
        convgrad.Client("localhost:1", keepalive_seconds=0)
    with pytest.raises(FileNotFoundError):
        convgrad.Client("localhost:1", tls=convgrad.Tls(ca=pki / "none.pem"))


def read_token():
    return "read anew"


def test_pickles_and_reprs_hold_no_secrets(tls_server, pki):
    files = [(pki / name).read_bytes() for name in ("ca.pem", "client.pem", "client.key")]
    tls = convgrad.Tls(*files, server_name="trainer.test")
    key_line = tls.key.splitlines()[1]
    with tls_server(mutual=True) as address:
        for settings in (dict(tls=tls), dict(tls=tls, token="tell-nobody"),
                         dict(token="tell-nobody")):
            client = convgrad.Client(address, **settings)
            model = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 2))
            convgrad.torch.offload(model, client)
            file = io.BytesIO()
            torch.save(model, file)
            shown = file.getvalue() + pickle.dumps(client) + repr(
                [vars(client), vars(model[0]), client._pool.connections]).encode()
            assert b"tell-nobody" not in shown and key_line not in shown
            with pickle.loads(pickle.dumps(client)) as copied:
                with pytest.raises(convgrad.Unauthenticated, match="client: found one from a"):
                    copied.conv_forward(X, W)
            client.close()
    assert not tls_server.seen


def test_pickles_keep_what_is_no_secret(tls_server, pki):
    tls = convgrad.Tls(pki / "ca.pem", pki / "client.pem", pki / "client.key", "trainer.test")
    with tls_server(mutual=True) as address:
        client = convgrad.Client(address, tls=tls, token=read_token)
        with pickle.loads(pickle.dumps(client)) as copied:
            copied.conv_forward(X, W)
    assert tls_server.seen[0]["authorization"] == "Bearer read anew"
    assert tls_server.seen[0]["peer"] == [b"client"]


def test_a_token_that_is_no_header(server, tmp_path):
    with pytest.raises(convgrad.Unauthenticated, match="control characters"):
        call(f"unix:{tmp_path}/none", token="two\nlines")


def test_unix_sockets(tmp_path):
    path = f"unix:{tmp_path}/s"
    process = ServerProcess(f"--listen={path}")
    np.testing.assert_array_equal(call(path, token="local"), np.full((1, 1, 2, 2), 4))
    process.kill()
