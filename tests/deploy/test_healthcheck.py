"""Tests the image's HEALTHCHECK with its ENTRYPOINT in a pod, without an engine."""
import subprocess

import pytest

import deployed
import pods


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "TLS"])
def test_finds_a_server_healthy_that_was_started(tmp_path, tls):
    command = pods.instruction("CMD")
    if tls:
        subprocess.run([deployed.ROOT / "deploy/kubernetes/private-ca", tmp_path / "pki",
                        "server"], check=True, stdout=subprocess.DEVNULL)
        command[command.index("--insecure"):] = [
            f"--tls_cert={tmp_path / 'pki/server/tls.crt'}",
            f"--tls_key={tmp_path / 'pki/server/tls.key'}"]
    with pods.node(tmp_path) as node:
        pod = node.pod("container")

        def is_healthy():
            check = pod.command({"command": pods.instruction("HEALTHCHECK")})
            return subprocess.run(check, capture_output=True,
                                  check=False).returncode == 0

        assert not is_healthy()
        server = pod.command({"args": command}, pods.instruction("ENTRYPOINT"))
        with deployed.running(*server):
            deployed.wait_until(is_healthy, "a healthy container")
