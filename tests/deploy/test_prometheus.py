"""Compares the table of metrics, the rules and the board with a live server's metrics."""
import json
import re
import subprocess
import urllib.parse
import urllib.request

import numpy as np
import pytest

import convgrad
import deployed

PROMETHEUS = deployed.ROOT / "deploy" / "prometheus"
BOARD = deployed.ROOT / "deploy" / "grafana" / "convgrad.json"
PROBLEM = "conv2d_n1_c4_o4_i8_k3_p1"


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def give_work(address):
    """Makes the server do every kind of work."""
    for dtype in ("f32", "bf16"):
        for command in ("forward", "backward"):
            deployed.convgrad(address, command, PROBLEM, f"--dtype={dtype}",
                              "--nocheck")
    deployed.convgrad(address, "backward", PROBLEM, "--self_check",
                      "--nocheck")


def train_a_network(session):
    """Makes the server count sessions and networks."""
    program = convgrad.Program()
    x = program.input("x")
    program.output(program.step("linear", x, program.parameter("w", (2, 3))))
    session.put("w", np.ones((2, 3), np.float32))
    session.load_program("net", program)
    run_the_network(session)


def run_the_network(session):
    session.run("net", {"x": np.ones((1, 3), np.float32)})


def table_of_readme():
    """Yields (family, type) of the README's table."""
    text = (deployed.ROOT / "server" / "telemetry" / "README.md").read_text()
    table = text.split("| family | type |")[1].split("\n\n")[0]
    for names, kind in re.findall(r"^\| ([\w *,]+) \| (\w+) \|", table, re.M):
        for name in names.replace("*", "").split(","):
            yield name.strip(), kind


def is_served(name):
    """Returns whether these tests' server, without devices and TLS, has the family."""
    return not re.match("convgrad_(certificate_|device_|transfer)", name)


def test_the_readme_lists_what_is_served(tmp_path):
    with deployed.server(f"--state_dir={tmp_path / 'state'}") as server:
        give_work(server.address)
        with convgrad.Client(server.address) as client, client.session() as session:
            train_a_network(session)
            text = get(f"http://127.0.0.1:{server.metrics}/metrics")
    served = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    # Excludes the metrics of the endpoint's library, which counts scrapes.
    served = {name: kind for name, kind in served.items()
              if not name.startswith("exposer_")}
    assert {name: kind for name, kind in dict(table_of_readme()).items()
            if is_served(name)} == served


@pytest.mark.parametrize("arguments", [
    ("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml"),
    ("check", "config", "prometheus.yml")], ids=" ".join)
def test_promtool_accepts(arguments):
    deployed.need("promtool")
    done = subprocess.run(["promtool", *arguments], cwd=PROMETHEUS,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_job_for_kubernetes_takes_metrics_ports_and_names_pods(tmp_path):
    """Uses a static list, because Debian's Prometheus lacks Kubernetes' discovery."""
    deployed.need("promtool")
    yaml = pytest.importorskip("yaml")
    config = yaml.safe_load((PROMETHEUS / "kubernetes.yml").read_text())
    job, = config["scrape_configs"]
    assert job.pop("kubernetes_sd_configs")[0]["role"] == "pod"
    job["static_configs"] = [
        {"targets": [f"10.0.0.1:{port}"], "labels": {
            "__meta_kubernetes_namespace": "convgrad",
            "__meta_kubernetes_pod_name": "convgrad-7d4b9",
            "__meta_kubernetes_pod_label_app_kubernetes_io_name": "convgrad",
            "__meta_kubernetes_pod_container_port_name": name}}
        for name, port in (("grpc", 7070), ("metrics", 9464))]
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    done = subprocess.run(
        ["promtool", "check", "service-discovery", "--timeout=2s", tmp_path / "prometheus.yml",
         job["job_name"]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    labels, = (target["labels"] for target in json.loads(done.stdout)
               if target.get("labels"))
    assert {name: value for name, value in labels.items() if "__" not in name} == {
        "job": "convgrad", "instance": "10.0.0.1:9464", "namespace": "convgrad",
        "pod": "convgrad-7d4b9"}


@pytest.fixture(name="prometheus", scope="module")
def live_prometheus(tmp_path_factory):
    """Yields the URL of a Prometheus that has scraped a busy server."""
    deployed.need("prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    with deployed.server(f"--state_dir={folder / 'state'}") as server:
        config = folder / "prometheus.yml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(PROMETHEUS / "rules.yml")],
            "scrape_configs": [{
                "job_name": "convgrad",
                "static_configs": [
                    {"targets": [f"127.0.0.1:{server.metrics}"]}]}]}))
        port = deployed.free_port()
        url = f"http://127.0.0.1:{port}"
        with deployed.running(
                "prometheus", f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                stderr=subprocess.DEVNULL):
            give_work(server.address)
            deployed.wait_until(lambda: data(url, "up == 1"), "a scrape")
            with convgrad.Client(server.address) as client, client.session() as session:
                train_a_network(session)
                family = "convgrad_network_step_seconds_total"
                deployed.wait_until(lambda: data(url, family), family)
                run_the_network(session)
            give_work(server.address)
            # Rates need two scrapes with calls between them, and the rules need an
            # evaluation after that.
            deployed.wait_until(
                lambda: data(url, "sum(convgrad:calls:rate5m) > 0")
                and data(url, "convgrad:queue_seconds:p99_5m > 0"),
                "a rate")
            yield url


def data(url, query):
    """Returns the current samples of `query`."""
    try:
        answer = get(f"{url}/api/v1/query?" +
                     urllib.parse.urlencode({"query": query}))
    except OSError:  # it is starting
        return []
    return json.loads(answer)["data"]["result"]


def queries_of_board():
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield pytest.param(target["expr"],
                               id=f"{panel['title']} {target['refId']}")


@pytest.mark.parametrize("query", queries_of_board())
def test_each_panel_shows_data(prometheus, query):
    query = query.replace("$__rate_interval", "1m")
    deployed.wait_until(lambda: data(prometheus, query), query, seconds=20)


def test_every_family_that_rules_and_board_use_is_served(prometheus):
    text = (PROMETHEUS / "rules.yml").read_text() + BOARD.read_text()
    names = set(re.findall(r"\b(?:convgrad|grpc_server)_\w+", text))
    assert len(names) > 15
    for name in sorted(filter(is_served, names)):
        assert data(prometheus, f"{{__name__=\"{name}\"}}"), name
