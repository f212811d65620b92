"""compose.yml without an engine: what it mounts is there, what it starts
starts, and its parts name each other."""
import json
import pathlib
import re

import pytest

import deployed

yaml = pytest.importorskip("yaml")
DEPLOY = deployed.ROOT / "deploy"


def services():
    return yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]


def mounts(service):
    return dict(volume.split(":")[:2] for volume in service["volumes"])


def test_what_is_mounted_is_there():
    for name, service in services().items():
        for source in mounts(service) if "volumes" in service else ():
            assert (DEPLOY / source).exists(), f"{name}: {source}"


def test_images_have_tags_and_ports_stay_on_loopback():
    for name, service in services().items():
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"]), name
        for port in service["ports"]:
            assert port.startswith("127.0.0.1:"), name


def test_the_server_takes_its_command():
    flags = [re.sub(r"0[.]0[.]0[.]0:\d+", "127.0.0.1:0", flag)
             for flag in services()["convgrad"]["command"]]
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
