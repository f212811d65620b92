"""Tests the images with a real engine, in tests/run full, if there is one that has
debian:bookworm-slim or can fetch it. Containers have only loopback and no GPU; their own
client calls them."""
import re
import subprocess
import threading

import pytest

import deployed
from engine import build_image, docker, inspect

PROBLEM = "conv2d_n4_c16_o16_i32_k3_p1"


@pytest.fixture(name="container")
def running_container(each_image):
    """Starts a container and waits until its HEALTHCHECK finds it healthy."""
    name = docker("run", "--detach", "--read-only", "--cap-drop=ALL",
                  "--security-opt=no-new-privileges", "--network=none", each_image,
                  *inspect(each_image)["Config"]["Cmd"],
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
    """Calls the server with the container's own client."""
    return subprocess.run(
        ["docker", "exec", container, "/usr/local/bin/convgrad", "backward",
         PROBLEM, *arguments], capture_output=True, text=True, check=False)


def test_a_commit_has_one_tag_and_one_image(each_image):
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=deployed.ROOT,
                            check=True, capture_output=True, text=True)
    revision = commit.stdout.strip()
    version, *variant, short = each_image.removeprefix("convgrad:").split("-")
    assert short == revision[:12]
    labels = inspect(each_image)["Config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == version
    assert labels["org.opencontainers.image.revision"] == revision
    before = inspect(each_image)["Id"]
    assert build_image(*variant or ["cpu"]) == each_image
    assert inspect(each_image)["Id"] == before


def test_is_small_and_nobody_is_root(each_image):
    about = inspect(each_image)
    # cuDNN and cuBLAS are 1.1 GB.
    assert about["Size"] <= (1.5e9 if "-cuda" in each_image else 200e6)
    assert about["Config"]["User"] == "10001:10001"
    assert about["Config"]["StopSignal"] == "SIGTERM"


def test_sbom_lists_packages(each_image):
    text = subprocess.run([deployed.ROOT / "deploy" / "sbom", each_image], check=True,
                          capture_output=True, text=True).stdout
    assert "purl pkg:deb/debian/libgrpc++1.51" in text
    assert "purl pkg:deb/debian/opentelemetry-cpp@" in text
    assert "purl pkg:pypi/onednn-cpu-gomp@" in text
    assert ("purl pkg:pypi/nvidia-cudnn-cu13@" in text) == ("-cuda" in each_image)
    names = re.findall(r"^SPDXID: (.*)$", text, re.M)
    assert len(names) == len(set(names))


def test_computes_without_root_and_without_a_writable_disk(container):
    assert call(container).returncode == 0
    users = docker("top", container, "-eo", "uid,pid").splitlines()[1:]
    assert {line.split()[0] for line in users} == {"10001"}
    assert docker("diff", container) == ""


def test_says_what_it_lacks_for_cuda(container, each_image):
    refused = call(container, "--backend=cuda")
    assert refused.returncode == 1
    assert ("no CUDA device" if "-cuda" in each_image else "cuda") in refused.stderr


def test_drains_under_load(container):
    done = []

    def load():
        # Calls until the server drains.
        while call(container, "--nocheck").returncode == 0:
            done.append(True)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    deployed.wait_until(lambda: len(done) > 20, "calls")
    docker("stop", "--time=60", container)
    for thread in threads:
        thread.join()
    assert inspect(container)["State"]["ExitCode"] == 0
