"""Runs the guide in deploy/kubernetes/README.md command by command, as written. Stand-ins
replace the cluster and the registry; pods are real servers and clients in network namespaces.
No client is on a server's host."""
import base64
import contextlib
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

import deployed

pytest.importorskip("yaml")
from cluster import cluster  # noqa: E402

# The headings that each kind of reader follows, in order.
WITH_CERT_MANAGER = ["Prepare", "Start", "Call", "Sessions", "Monitoring"]
BY_HAND = ["Prepare", "Without cert-manager", "Start", "Call", "Renew by hand",
           "Clients with certificates"]


def sections():
    """Returns the guide's blocks of commands and Python, by heading."""
    text = (deployed.ROOT / "deploy/kubernetes/README.md").read_text()
    found = {}
    for part in text.split("\n## ")[1:]:
        blocks = re.findall(r"^```\w+\n(.*?)^```$", part, re.M | re.S)
        if blocks:
            found[part.partition("\n")[0]] = blocks
    return found


def is_python(block):
    return block.startswith("import ")


class Reader:
    """Follows the guide in a copy of the repository's deploy folder."""

    def __init__(self, folder, operators, stack):
        self.checkout = folder / "checkout"
        # Excludes files that a reader may have made there.
        shutil.copytree(deployed.ROOT / "deploy", self.checkout / "deploy",
                        ignore=shutil.ignore_patterns("mine*"))
        for name in ("CMakeLists.txt", "Dockerfile"):
            shutil.copy(deployed.ROOT / name, self.checkout)
        self.environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        self.shell("git init --quiet && git add . && git -c user.name=a "
                   "-c user.email=a@b commit --quiet --message=a")
        (folder / "pods").mkdir()
        self.cluster = stack(cluster(folder / "pods", operators))
        self.cluster.tools(folder / "bin")
        self.said = ""

    def shell(self, command):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=self.checkout, text=True,
            capture_output=True, env=self.environment, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def follow(self, heading):
        """Runs the commands below a heading. Runs each as soon as the cluster has done the
        work of the one before. Returns the output of the last one."""
        for block in sections()[heading]:
            for line in () if is_python(block) else block.splitlines():
                self.said = self.shell(line.replace("REGISTRY", "registry.test/team"))
                self.cluster.sync()
        return self.said

    def python(self, heading):
        """Runs the section's Python in the client's pod. Returns its output."""
        block, = filter(is_python, sections()[heading])
        return self.cluster.workloads["convgrad-client"].pod.run(
            sys.executable, "-c", block)

    def call(self, *arguments):
        """Makes the client's pod call a backward. Returns the finished process."""
        job = self.cluster.workloads["convgrad-client"]
        return subprocess.run(
            [*job.pod.command(job.container), *arguments],
            capture_output=True, text=True, check=False)

    def serves_its_secret(self):
        """Returns whether a client gets the certificate that is in the secret now."""
        secret = self.cluster.state().get("Secret", "convgrad-tls", "convgrad")
        served = self.cluster.workloads["convgrad-client"].pod.run(
            sys.executable, "-c", "import ssl, sys;"
            "print(ssl.get_server_certificate((sys.argv[1], 7070)))",
            "convgrad-replicas.convgrad")
        return served.strip() == base64.b64decode(
            secret["data"]["tls.crt"]).decode().strip()

    def expiration(self):
        """Returns the certificate's expiration in a scrape from outside the pods."""
        replica = self.cluster.workloads["convgrad-0"].pod
        text = self.cluster.node.run(
            sys.executable, "-c", "import sys, urllib.request;"
            "print(urllib.request.urlopen(sys.argv[1]).read().decode())",
            f"http://{replica.address}:9464/metrics")
        return float(re.search(
            r'^convgrad_certificate_expiration_timestamp_seconds\{flag="tls_cert"\} (.*)$',
            text, re.M)[1])


@pytest.fixture(name="reader")
def new_reader(tmp_path, request):
    with contextlib.ExitStack() as stack:
        yield Reader(tmp_path, request.param, stack.enter_context)


def with_operators(*groups):
    return pytest.mark.parametrize("reader", [groups], ids=[""], indirect=True)


def test_every_command_of_the_guide_is_run_by_a_test():
    assert set(sections()) == {*WITH_CERT_MANAGER, *BY_HAND}


@with_operators("cert-manager.io", "monitoring.coreos.com")
def test_both_clients_call_what_cert_manager_made_a_certificate_for(reader):
    said = {heading: reader.follow(heading) for heading in WITH_CERT_MANAGER}
    assert "difference" in said["Call"] and ": ok" in said["Call"]
    assert "9." in reader.python("Call")
    assert reader.python("Sessions") == "2 replicas, (8, 3, 3, 3)\n"
    assert 89 < (reader.expiration() - time.time()) / 86400 < 90
    state = reader.cluster.state()
    assert state.get("PrometheusRule", "convgrad", "convgrad")
    files = state.get("ConfigMap", "convgrad-prometheus", "monitoring")["data"]
    assert set(files) == {"rules.yml", "kubernetes.yml"}


@with_operators()
def test_both_clients_call_what_has_a_certificate_of_a_private_ca(reader):
    for heading in BY_HAND[:4]:
        reader.follow(heading)
    assert ": ok" in reader.said
    assert "9." in reader.python("Call")
    before = reader.expiration()
    reader.follow("Renew by hand")
    deployed.wait_until(lambda: reader.expiration() > before, "the new certificate's metric")
    deployed.wait_until(reader.serves_its_secret, "the new certificate")
    assert reader.call().returncode == 0
    reader.follow("Clients with certificates")
    own = [f"--{flag}={reader.checkout / 'pki/clients/trainer' / file}"
           for flag, file in (("cert", "tls.crt"), ("key", "tls.key"))]
    done = reader.call(*own)
    assert done.returncode == 0, done.stderr
    assert reader.call("--timeout=5s").returncode != 0
