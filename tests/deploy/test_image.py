"""The image, built and run by a real engine: tests/run full, where there is one
that has debian:bookworm-slim or can fetch it. Containers have no network but
loopback; their own client calls them."""
import re
import subprocess
import threading

import pytest

import deployed
from engine import build_image, docker, inspect

PROBLEM = "conv2d_n4_c16_o16_i32_k3_p1"


@pytest.fixture(name="container")
def running_container(image):
    """A container that its own HEALTHCHECK found healthy."""
    name = docker("run", "--detach", "--read-only", "--cap-drop=ALL",
                  "--security-opt=no-new-privileges", "--network=none", image,
                  *inspect(image)["Config"]["Cmd"],
                  "--memory_budget_bytes=268435456", "--drain_delay=1s",
                  "--otlp_endpoint=http://127.0.0.1:4317")
    try:
        deployed.wait_until(
            lambda: inspect(name)["State"]["Health"]["Status"] == "healthy",
            "health")
        yield name
    finally:
        docker("rm", "--force", name)


def call(container, *arguments):
    """Has the container's own client call its server; returns the exit status."""
    return subprocess.run(
        ["docker", "exec", container, "/usr/local/bin/convgrad", "backward",
         PROBLEM, *arguments], capture_output=True, check=False).returncode


def test_a_commit_has_one_tag_and_one_image(image):
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=deployed.ROOT,
                            check=True, capture_output=True, text=True)
    revision = commit.stdout.strip()
    version, short = image.removeprefix("convgrad:").split("-")
    assert short == revision[:12]
    labels = inspect(image)["Config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == version
    assert labels["org.opencontainers.image.revision"] == revision
    before = inspect(image)["Id"]
    assert build_image() == image
    assert inspect(image)["Id"] == before


def test_is_small_and_nobody_is_root(image):
    about = inspect(image)
    assert about["Size"] <= 200e6
    assert about["Config"]["User"] == "10001:10001"
    assert about["Config"]["StopSignal"] == "SIGTERM"


def test_sbom_lists_packages(image):
    text = subprocess.run([deployed.ROOT / "deploy" / "sbom", image], check=True,
                          capture_output=True, text=True).stdout
    assert "purl pkg:deb/debian/libgrpc++1.51" in text
    assert "purl pkg:deb/debian/opentelemetry-cpp@" in text
    assert "purl pkg:pypi/onednn-cpu-gomp@" in text
    names = re.findall(r"^SPDXID: (.*)$", text, re.M)
    assert len(names) == len(set(names))


def test_computes_without_root_and_without_a_writable_disk(container):
    assert call(container) == 0
    users = docker("top", container, "-eo", "uid,pid").splitlines()[1:]
    assert {line.split()[0] for line in users} == {"10001"}
    assert docker("diff", container) == ""


def test_drains_under_load(container):
    done = []

    def load():
        # Until the server says that it goes away.
        while call(container, "--nocheck") == 0:
            done.append(True)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    deployed.wait_until(lambda: len(done) > 20, "calls")
    docker("stop", "--time=60", container)
    for thread in threads:
        thread.join()
    assert inspect(container)["State"]["ExitCode"] == 0
