"""Tests compose.yml: mounted files exist, the server accepts its flags, and the services use
each other's names. In tests/run full with an engine, it also tests that Prometheus sees the
server. It uses no image from a hub: Debian's Prometheus replaces the image's, and Grafana
isn't tested."""
import json
import pathlib
import re
import subprocess
import urllib.request

import pytest

import deployed
import engine

yaml = pytest.importorskip("yaml")
DEPLOY = deployed.ROOT / "deploy"


def whole():
    return yaml.safe_load((DEPLOY / "compose.yml").read_text())


def services():
    return whole()["services"]


def mounts(service):
    return dict(volume.split(":")[:2] for volume in service["volumes"])


def test_what_is_mounted_is_there():
    for name, service in services().items():
        for source in mounts(service) if "volumes" in service else ():
            assert source in whole()["volumes"] or (
                source.startswith("./") and (DEPLOY / source).exists()), f"{name}: {source}"


def test_images_have_tags_and_ports_stay_on_loopback():
    for name, service in services().items():
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"]), name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name


def test_the_server_takes_its_command(tmp_path):
    flags = [re.sub(r"(0[.]0[.]0[.]0|127[.]0[.]0[.]1):\d+", "127.0.0.1:0", flag).replace(
        "/run/convgrad", str(tmp_path)) for flag in services()["convgrad"]["command"]]
    with deployed.server(*flags) as server:
        assert "onednn" in deployed.convgrad(server.address, "capabilities")


def test_prometheus_scrapes_the_server_and_grafana_asks_prometheus():
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    host, port = config["scrape_configs"][0]["static_configs"][0]["targets"][
        0].split(":")
    assert f"--metrics_listen=0.0.0.0:{port}" in services()[host]["command"]
    source = yaml.safe_load((DEPLOY / "grafana/datasource.yml").read_text())
    assert source["datasources"][0]["url"].split("/")[2].split(":")[0] in services()
    boards = yaml.safe_load((DEPLOY / "grafana/boards.yml").read_text())
    folder = pathlib.PurePosixPath(boards["providers"][0]["options"]["path"])
    board = mounts(services()["grafana"])["./grafana/convgrad.json"]
    assert folder in pathlib.PurePosixPath(board).parents
    json.loads((DEPLOY / "grafana/convgrad.json").read_text())


PROMETHEUS = """
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends prometheus
USER 10001:10001
ENTRYPOINT ["/usr/bin/prometheus", "--storage.tsdb.path=/tmp/data"]
"""


def compose(file, *arguments):
    done = subprocess.run(
        ["docker-compose", "--project-directory", DEPLOY, "--project-name",
         "convgradtest", "--file", file, *arguments], capture_output=True,
        text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(name="deployment")
def running_deployment(image, tmp_path):
    """Starts a compose file like ours, on ports that the host selects."""
    deployed.need("docker-compose")
    engine.docker("build", engine.BUILD_NETWORK, "--tag=convgrad-test-prometheus",
                  "-", stdin=PROMETHEUS)
    document = whole()
    ours = document["services"]
    del ours["grafana"]
    ours["convgrad"]["image"] = ours["proxy"]["image"] = image
    del ours["convgrad"]["container_name"]
    ours["prometheus"]["image"] = "convgrad-test-prometheus"
    for service in ours.values():
        if "ports" not in service:
            continue
        service["ports"] = [re.sub(r":\d+:", "::", port)
                            for port in service["ports"]]
    file = tmp_path / "compose.yml"
    file.write_text(yaml.safe_dump(document))
    try:
        compose(file, "up", "--detach")
        yield file
    finally:
        compose(file, "down")


def test_prometheus_sees_the_server_and_its_calls(deployment):
    server = compose(deployment, "port", "proxy", "7070")
    deployed.wait_until(lambda: subprocess.run(
        [deployed.CLIENT, "capabilities", f"--server={server}"],
        capture_output=True, check=False).returncode == 0, "a server")
    deployed.convgrad(server, "backward", "conv2d_n1_c4_o4_i8_k3_p1")
    prometheus = compose(deployment, "port", "prometheus", "9090")

    def value():
        query = "sum(convgrad_requests_total{op=%22backward%22,code=%22OK%22})"
        try:
            with urllib.request.urlopen(
                    f"http://{prometheus}/api/v1/query?query={query}") as answer:
                result = json.load(answer)["data"]["result"]
        except OSError:  # it is starting
            return None
        return result and result[0]["value"][1]

    deployed.wait_until(lambda: value() == "1", "the call in Prometheus")
