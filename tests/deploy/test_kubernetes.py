"""The manifests, rendered by kubectl and checked against Kubernetes' schemas,
unknown fields refused."""
import os
import re
import subprocess
import sys

import pytest

import deployed

KUBERNETES = deployed.ROOT / "deploy" / "kubernetes"
# gRPC probes since 1.24, in every version that is still maintained.
VERSION = "1.30"
# Of the Prometheus operator: no schema here.
FOREIGN = {"ServiceMonitor", "PrometheusRule"}


def complaints(documents, folder):
    """Returns what Kubernetes' schemas say against `documents`. A process of
    its own: the validator's libraries are newer than pytest's."""
    yaml = pytest.importorskip("yaml")
    path = folder / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    done = subprocess.run(
        [sys.executable, "-m", "kubernetes_validate", "-k", VERSION, "--strict",
         "--quiet", path], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(deployed.KUBERNETES)})
    return done.stdout + done.stderr if done.returncode else ""


def render(overlay):
    kubectl = deployed.KUBERNETES / "bin" / "kubectl"
    if not kubectl.exists():
        pytest.skip("no kubectl: deploy/dependencies test")
    yaml = pytest.importorskip("yaml")
    done = subprocess.run([kubectl, "kustomize", KUBERNETES / overlay],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def only(documents, kind):
    return [document for document in documents if document["kind"] == kind]


def container(documents):
    return only(documents, "Deployment")[0]["spec"]["template"]["spec"][
        "containers"][0]


OVERLAYS = pytest.mark.parametrize("overlay", ["cpu", "cuda", "mtls", "tracing"])


@OVERLAYS
def test_fits_the_schemas(overlay, tmp_path):
    documents = [document for document in render(overlay)
                 if document["kind"] not in FOREIGN]
    assert len(documents) >= 7
    assert complaints(documents, tmp_path) == ""
    container(documents)["imagge"] = "an unknown field"
    assert "imagge" in complaints(documents, tmp_path)


@OVERLAYS
def test_selectors_and_ports_meet(overlay):
    documents = render(overlay)
    pod = only(documents, "Deployment")[0]["spec"]["template"]
    labels = pod["metadata"]["labels"].items()
    ports = {port["name"] for port in container(documents)["ports"]}
    for service in only(documents, "Service"):
        assert service["spec"]["selector"].items() <= labels
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for kind, key in (("PodDisruptionBudget", "selector"),
                      ("NetworkPolicy", "podSelector")):
        selector = only(documents, kind)[0]["spec"][key]["matchLabels"]
        assert selector and selector.items() <= labels, kind
    for rule in only(documents, "NetworkPolicy")[0]["spec"]["ingress"]:
        assert {port["port"] for port in rule["ports"]} <= ports


@OVERLAYS
def test_the_server_takes_its_flags(overlay, tmp_path):
    """Starts the container's command line with ports and files of this host."""
    documents = render(overlay)
    tls = {name: tmp_path / name for name in ("tls.crt", "tls.key", "ca.crt")}
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes",
                    "-subj", "/CN=test", "-keyout", tls["tls.key"],
                    "-out", tls["tls.crt"]], check=True, capture_output=True)
    tls["ca.crt"].write_bytes(tls["tls.crt"].read_bytes())
    (tmp_path / "tokens").write_text("a admin 0123456789abcdef\n")
    flags = [re.sub(r":70\d\d|:9464", ":0", flag)
             .replace("/etc/convgrad/tls", str(tmp_path))
             .replace("/etc/convgrad/tokens", str(tmp_path))
             for flag in container(documents)["args"]]
    assert ("--insecure" in flags) == (overlay != "mtls")
    with deployed.server(*flags) as server:
        assert server.health


@OVERLAYS
def test_memory_and_time_add_up(overlay):
    documents = render(overlay)
    server = container(documents)
    flags = dict(flag[2:].split("=", 1) for flag in server["args"]
                 if "=" in flag)
    limit = server["resources"]["limits"]["memory"]
    assert limit == server["resources"]["requests"]["memory"]
    budget = int(flags["memory_budget_bytes"])
    assert budget <= 0.8 * int(limit.removesuffix("Gi")) * 2**30
    pod = only(documents, "Deployment")[0]["spec"]["template"]["spec"]
    drain = int(flags["drain_delay"].removesuffix("s")) + \
        60 * int(flags["drain_timeout"].removesuffix("m"))
    assert drain < pod["terminationGracePeriodSeconds"]


def test_the_rule_for_the_operator_has_the_rules():
    yaml = pytest.importorskip("yaml")
    printed = subprocess.run([KUBERNETES / "prometheus-rule"], check=True,
                             capture_output=True, text=True).stdout
    rules = yaml.safe_load(
        (deployed.ROOT / "deploy" / "prometheus" / "rules.yml").read_text())
    assert yaml.safe_load(printed)["spec"] == rules


def test_the_autoscaler_asks_for_what_the_adapter_makes():
    yaml = pytest.importorskip("yaml")
    scaler = only(render("cpu"), "HorizontalPodAutoscaler")[0]
    metric = scaler["spec"]["metrics"][0]["pods"]["metric"]["name"]
    adapter = yaml.safe_load((KUBERNETES / "adapter.yaml").read_text())
    assert adapter[0]["name"]["as"] == metric
    recorded = re.match(r"[\w:]+", adapter[0]["seriesQuery"])[0]
    rules = (deployed.ROOT / "deploy" / "prometheus" / "rules.yml").read_text()
    assert f"record: {recorded}\n" in rules
