"""The manifests in every choice of components, rendered by kubectl and checked
against Kubernetes' schemas, unknown fields refused."""
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

import deployed

KUBERNETES = deployed.ROOT / "deploy" / "kubernetes"
# gRPC probes since 1.24, in every version that is still maintained.
VERSION = "1.30"
# Of operators: no schemas here.
FOREIGN = {"ServiceMonitor", "PrometheusRule", "Issuer", "Certificate"}
# For each component, those that it needs.
NEEDS = {"tls": [], "plaintext": [], "cert-manager": ["tls"], "mtls": ["tls"],
         "tokens": ["tls"], "cuda": [], "tracing": [], "monitoring": [],
         "prometheus-operator": ["monitoring"], "autoscaling": ["monitoring"]}
WITH_TLS = [name for name in NEEDS if name != "plaintext"]
WITHOUT_TLS = [name for name in NEEDS if name != "tls" and "tls" not in NEEDS[name]]
CHOICES = [*([*NEEDS[name], name] for name in NEEDS), WITH_TLS, WITHOUT_TLS]


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


def kustomize(folder):
    kubectl = deployed.KUBERNETES / "bin" / "kubectl"
    if not kubectl.exists():
        pytest.skip("no kubectl: deploy/dependencies test")
    yaml = pytest.importorskip("yaml")
    done = subprocess.run([kubectl, "kustomize", folder],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def render(components):
    """Returns the objects of an overlay with these components."""
    return json.loads(rendered(tuple(components)))


@functools.lru_cache
def rendered(components):
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(KUBERNETES, pathlib.Path(folder) / "kubernetes")
        (copy / "mine").mkdir()
        (copy / "mine" / "kustomization.yaml").write_text(json.dumps({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "resources": ["../base"],
            "components": [f"../components/{name}" for name in components],
            "images": [{"name": "convgrad", "newName": "registry.test/convgrad"}]}))
        return json.dumps(kustomize(copy / "mine"))


def only(documents, kind):
    return [document for document in documents if document["kind"] == kind]


def container(documents):
    return only(documents, "Deployment")[0]["spec"]["template"]["spec"][
        "containers"][0]


EACH_CHOICE = pytest.mark.parametrize("components", CHOICES, ids=" ".join)


def test_every_component_has_a_choice():
    folders = {folder.name for folder in (KUBERNETES / "components").iterdir()}
    assert folders == set(NEEDS)


@EACH_CHOICE
def test_fits_the_schemas(components, tmp_path):
    documents = [document for document in render(components)
                 if document["kind"] not in FOREIGN]
    assert len(documents) >= 6
    assert complaints(documents, tmp_path) == ""
    container(documents)["imagge"] = "an unknown field"
    assert "imagge" in complaints(documents, tmp_path)


def test_the_example_of_a_client_fits_the_schemas(tmp_path):
    assert complaints(kustomize(KUBERNETES / "client"), tmp_path) == ""


@EACH_CHOICE
def test_selectors_and_ports_meet(components):
    documents = render(components)
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


def without_order(value):
    """Returns `value` with the items of each list sorted."""
    if isinstance(value, dict):
        return {key: without_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted(map(without_order, value), key=json.dumps)
    return value


@pytest.mark.parametrize("components", [WITH_TLS, WITHOUT_TLS], ids=["TLS", "plaintext"])
def test_components_combine_in_any_order(components):
    assert without_order(render(components)) == \
        without_order(render(components[::-1]))


@pytest.mark.parametrize("components", [WITH_TLS, WITHOUT_TLS], ids=["TLS", "plaintext"])
def test_each_component_does_its_part_beside_the_others(components):
    together = render(components)
    flags = container(together)["args"]
    assert len(flags) == len({flag.split("=")[0] for flag in flags})
    for name in components:
        alone = render([*NEEDS[name], name])
        assert set(container(alone)["args"]) <= set(flags), name
        kinds = [(document["kind"], document["metadata"]["name"])
                 for document in together]
        for document in alone:
            assert (document["kind"], document["metadata"]["name"]) in kinds


@EACH_CHOICE
def test_ports_say_what_is_spoken_there(components):
    documents = render(components)
    speaks = {"tls": "https", "plaintext": "kubernetes.io/h2c"}
    expected = next((speaks[name] for name in components if name in speaks), None)
    for service in only(documents, "Service"):
        for port in service["spec"]["ports"]:
            assert port.get("appProtocol") == \
                (expected if port["name"] == "grpc" else None)
    flags = container(documents)["args"]
    assert ("--insecure" in flags) == ("plaintext" in components)
    assert ("--tls_cert=/etc/convgrad/tls/tls.crt" in flags) == ("tls" in components)


@EACH_CHOICE
def test_images_are_those_that_the_script_builds(components):
    version = re.search(r"^project\(convgrad VERSION ([\d.]+)",
                        (deployed.ROOT / "CMakeLists.txt").read_text(), re.M)[1]
    variant = "-cuda" if "cuda" in components else ""
    assert container(render(components))["image"] == \
        f"registry.test/convgrad:{version}{variant}"


def test_a_private_ca_knows_the_names_that_cert_manager_is_told(tmp_path):
    certificate = next(document for document in render(["tls", "cert-manager"])
                       if document["metadata"]["name"] == "convgrad-tls"
                       and document["kind"] == "Certificate")
    subprocess.run([KUBERNETES / "private-ca", tmp_path, "server", "more.test"],
                   check=True, stdout=subprocess.DEVNULL)
    said = subprocess.run(["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in",
                           tmp_path / "server" / "tls.crt"], check=True,
                          capture_output=True, text=True).stdout
    assert re.findall(r"DNS:([\w.-]+)", said) == \
        [*certificate["spec"]["dnsNames"], "more.test"]


def test_memory_and_time_add_up():
    documents = render([])
    server = container(documents)
    flags = dict(flag[2:].split("=", 1) for flag in server["args"]
                 if "=" in flag)
    limit = server["resources"]["limits"]["memory"]
    assert limit == server["resources"]["requests"]["memory"]
    assert flags["memory_budget_bytes"] == "$(MEMORY_BUDGET_BYTES)"
    budget = int({entry["name"]: entry["value"] for entry in server["env"]}[
        "MEMORY_BUDGET_BYTES"])
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
    scaler = only(render(["monitoring", "autoscaling"]), "HorizontalPodAutoscaler")[0]
    metric = scaler["spec"]["metrics"][0]["pods"]["metric"]["name"]
    adapter = yaml.safe_load(
        (KUBERNETES / "components/autoscaling/adapter.yaml").read_text())
    assert adapter[0]["name"]["as"] == metric
    recorded = re.match(r"[\w:]+", adapter[0]["seriesQuery"])[0]
    rules = (deployed.ROOT / "deploy" / "prometheus" / "rules.yml").read_text()
    assert f"record: {recorded}\n" in rules
