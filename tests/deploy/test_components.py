"""Tests deployments with all components that can be combined, with TLS and without. Both
clients call from another network namespace."""
import base64
import subprocess
import sys

import pytest

import deployed

pytest.importorskip("yaml")
from cluster import cluster  # noqa: E402
from test_kubernetes import (  # noqa: E402
    ALL, KUBERNETES, render)

SERVER = "convgrad-replicas.convgrad:7070"
TOKEN = "0123456789abcdef"
PYTHON = """
import sys, numpy, convgrad
ca, cert, key, token = sys.argv[1:5] if sys.argv[1:] else [None] * 4
tls = convgrad.Tls(ca=ca, certificate=cert, key=key) if ca else None
with convgrad.Client("dns:///%s", tls=tls, token=token) as client:
    print(client.conv_forward(numpy.ones((1, 1, 4, 4), "f4"),
                              numpy.ones((1, 1, 3, 3), "f4")).output)
""" % SERVER


def secret(name, files):
    return {"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": "convgrad"},
            "data": {key: base64.b64encode(data).decode()
                     for key, data in files.items()}}


def private_ca(*arguments):
    subprocess.run([KUBERNETES / "private-ca", *arguments], check=True,
                   stdout=subprocess.DEVNULL)


@ALL
def test_both_clients_call_what_has_every_component(components, tmp_path):
    pki = tmp_path / "pki"
    private_ca(pki, "server")
    private_ca(pki, "client", "trainer")
    own = pki / "clients" / "trainer"
    (tmp_path / "token").write_text(TOKEN)
    with cluster(tmp_path, ["cert-manager.io", "monitoring.coreos.com"]) as it:
        state = it.state()
        for document in render(components):
            state.put(document)
            if document["kind"] == "Deployment":
                template = document["spec"]["template"]
                state.data["pushed"] += [container["image"] for container
                                         in template["spec"]["containers"]]
        # Replaces cert-manager's secret, because the client needs one.
        state.put(secret("convgrad-tls", {file.name: file.read_bytes()
                                          for file in (pki / "server" / "current").iterdir()}))
        state.put(secret("convgrad-tokens",
                         {"tokens": f"trainer train {TOKEN}\n".encode()}))
        state.save()
        client = it.node.pod("client")
        it.sync()
        files = [own / "ca.crt", own / "tls.crt", own / "tls.key"]
        flags = [f"--{flag}={file}" for flag, file in zip(
            ("ca", "cert", "key", "token"), [*files, tmp_path / "token"])]
        with_tls = "plaintext" not in components
        assert ": ok" in client.run(
            deployed.CLIENT, "backward", "conv2d_n1_c4_o4_i8_k3_p1",
            f"--server={SERVER}", *(flags if with_tls else []))
        assert "9." in client.run(
            sys.executable, "-c", PYTHON, *([*files, TOKEN] if with_tls else []))
