"""The image, built and run by a real engine: tests/run full, where there is one
that has debian:bookworm-slim or can fetch it."""
import json
import os
import subprocess
import threading

import pytest

import deployed

TAG = "convgrad:test"
# Engines without iptables have no networks of their own.
NETWORK = "--network=host"


def docker(*arguments):
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.strip()


@pytest.fixture(name="image", scope="module")
def built_image():
    if not os.environ.get("CONVGRAD_FULL"):
        pytest.skip("builds an image, some minutes: tests/run full")
    deployed.need("docker")
    if subprocess.run(["docker", "info"], capture_output=True,
                      check=False).returncode:
        pytest.skip("no Docker engine answers")
    docker("build", NETWORK, f"--tag={TAG}", str(deployed.ROOT))
    return TAG


@pytest.fixture(name="container")
def running_container(image):
    port = deployed.free_port()
    name = docker("run", "--detach", "--read-only", "--cap-drop=ALL",
                  "--security-opt=no-new-privileges", NETWORK, image,
                  f"--listen=127.0.0.1:{port}", "--metrics_listen=",
                  "--memory_budget_bytes=268435456", "--drain_delay=1s")
    try:
        probe = ["docker", "exec", name, "/usr/local/bin/convgrad-server",
                 f"--listen=127.0.0.1:{port}", "--healthcheck"]
        deployed.wait_until(
            lambda: subprocess.run(probe, capture_output=True,
                                   check=False).returncode == 0, "health")
        yield name, f"127.0.0.1:{port}"
    finally:
        docker("rm", "--force", name)


def test_is_small_and_nobody_is_root(image):
    about = json.loads(docker("image", "inspect", image))[0]
    assert about["Size"] <= 200e6
    assert about["Config"]["User"] == "10001:10001"
    assert about["Config"]["StopSignal"] == "SIGTERM"


def test_sbom_lists_packages(image):
    text = subprocess.run([deployed.ROOT / "deploy" / "sbom", image], check=True,
                          capture_output=True, text=True).stdout
    assert "purl pkg:deb/debian/libgrpc++1.51" in text
    assert "purl pkg:pypi/onednn-cpu-gomp@" in text


def test_drains_under_load_and_exits_0(container):
    name, address = container
    done = []

    def load():
        # Until the server says that it goes away.
        while subprocess.run(
                [deployed.CLIENT, "backward", "conv2d_n4_c16_o16_i32_k3_p1",
                 "--nocheck", f"--server={address}"], capture_output=True,
                check=False).returncode == 0:
            done.append(True)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    deployed.wait_until(lambda: len(done) > 20, "calls")
    docker("stop", "--time=60", name)
    for thread in threads:
        thread.join()
    state = json.loads(docker("inspect", name))[0]["State"]
    assert state["ExitCode"] == 0
