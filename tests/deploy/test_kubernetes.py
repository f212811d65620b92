"""Tests the manifests with every choice of components, rendered by kubectl, against
Kubernetes' schemas without unknown fields."""
import functools
import itertools
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
# The oldest version whose schemas are here. The guide names 1.24, the first with gRPC probes.
VERSION = "1.25"
# Kinds of operators, for which there are no schemas here.
FOREIGN = {"ServiceMonitor", "PrometheusRule", "Issuer", "Certificate"}
# For each component, the components that it requires.
NEEDS = {"tls": [], "mtls": [], "plaintext": [], "cert-manager": ["tls"],
         "tokens": ["tls"], "cuda": [], "tracing": [], "monitoring": [],
         "prometheus-operator": ["monitoring"], "autoscaling": ["monitoring"]}
# Components that open the server to clients; only one may be used.
FACES = ["tls", "mtls", "plaintext"]
WITH_TLS = [name for name in NEEDS if name not in ("mtls", "plaintext")]
WITH_MTLS = [name for name in NEEDS if name not in ("tls", "plaintext")]
WITHOUT_TLS = [name for name in NEEDS
               if name not in ("tls", "mtls") and "tls" not in NEEDS[name]]
ALL = pytest.mark.parametrize("components", [WITH_TLS, WITH_MTLS, WITHOUT_TLS],
                              ids=["TLS", "certificates", "plaintext"])
CHOICES = [*([*NEEDS[name], name] for name in NEEDS), WITH_TLS, WITH_MTLS, WITHOUT_TLS]


def complaints(documents, folder):
    """Returns the errors of `documents` by Kubernetes' schemas. Runs in a separate process,
    because the validator needs newer libraries than pytest."""
    yaml = pytest.importorskip("yaml")
    path = folder / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    done = subprocess.run(
        [sys.executable, "-m", "kubernetes_validate", "-k", VERSION, "--strict",
         "--quiet", path], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(deployed.KUBERNETES)})
    return done.stdout + done.stderr if done.returncode else ""


def run_kustomize(folder):
    kubectl = deployed.KUBERNETES / "bin" / "kubectl"
    if not kubectl.exists():
        pytest.skip("no kubectl: deploy/dependencies test")
    return subprocess.run([kubectl, "kustomize", folder],
                          capture_output=True, text=True, check=False)


def kustomize(folder):
    yaml = pytest.importorskip("yaml")
    done = run_kustomize(folder)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def render(components):
    """Returns the objects of an overlay with these components."""
    return json.loads(rendered(tuple(components)))


def overlay(folder, components):
    """Makes an overlay below `folder` and returns the overlay's folder."""
    copy = shutil.copytree(KUBERNETES, pathlib.Path(folder) / "kubernetes")
    (copy / "mine").mkdir()
    (copy / "mine" / "kustomization.yaml").write_text(json.dumps({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": ["../base"],
        "components": [f"../components/{name}" for name in components],
        "images": [{"name": "convgrad", "newName": "registry.test/convgrad"}]}))
    return copy / "mine"


@functools.lru_cache
def rendered(components):
    with tempfile.TemporaryDirectory() as folder:
        return json.dumps(kustomize(overlay(folder, components)))


def only(documents, kind):
    return [document for document in documents if document["kind"] == kind]


def containers(documents):
    return only(documents, "Deployment")[0]["spec"]["template"]["spec"]["containers"]


def container(documents):
    return containers(documents)[0]


def variables(one):
    """Returns a container's environment."""
    return {entry["name"]: entry["value"] for entry in one.get("env", ())}


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
    ports = {port["name"] for one in containers(documents) for port in one["ports"]}
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


@ALL
def test_components_combine_in_any_order(components):
    assert without_order(render(components)) == \
        without_order(render(components[::-1]))


@ALL
def test_each_component_does_its_part_beside_the_others(components):
    together = render(components)
    flags = container(together)["args"]
    assert len(flags) == len({flag.split("=")[0] for flag in flags})
    face = components[0]
    for name in components:
        others = [other for other in NEEDS[name] if other not in FACES]
        alone = render(dict.fromkeys([face, *others, name]))
        assert set(container(alone)["args"]) <= set(flags), name
        kinds = [(document["kind"], document["metadata"]["name"])
                 for document in together]
        for document in alone:
            assert (document["kind"], document["metadata"]["name"]) in kinds


@EACH_CHOICE
def test_ports_say_what_is_spoken_there(components):
    documents = render(components)
    speaks = {"tls": "https", "mtls": "https", "plaintext": "kubernetes.io/h2c"}
    expected = next((speaks[name] for name in components if name in speaks), None)
    for service in only(documents, "Service"):
        for port in service["spec"]["ports"]:
            assert port.get("appProtocol") == \
                (expected if port["name"] == "grpc" else None)
    flags = container(documents)["args"]
    assert ("--insecure" in flags) == ("plaintext" in components)
    assert ("--tls_cert=/etc/convgrad/tls/tls.crt" in flags) == (expected == "https")


@EACH_CHOICE
def test_nobody_gets_at_the_bare_server_but_with_a_certificate(components):
    documents = render(components)
    server, *others = containers(documents)
    listen, = (flag for flag in server["args"] if flag.startswith("--listen="))
    if "mtls" in components:
        assert "--tls_client_ca=/etc/convgrad/tls/ca.crt" in server["args"]
    elif "plaintext" not in components:
        assert listen.startswith(("--listen=unix:", "--listen=127.0.0.1:"))
    if "tls" not in components:
        assert not others
        return
    proxy, = others
    assert proxy["command"] == ["/usr/share/convgrad/haproxy/run"]
    assert "grpc" in [port["name"] for port in proxy["ports"]]
    assert f"--listen={variables(proxy)['REPLICA_1'].replace('unix@', 'unix:')}" == listen
    assert f"--drain_delay={variables(proxy)['DRAIN_SECONDS']}s" in server["args"]
    assert f"--tls_cert={variables(proxy)['PEM']}" in server["args"]


@pytest.mark.parametrize("faces", itertools.permutations(FACES, 2), ids=" ".join)
def test_one_face_is_in_place_of_the_others(faces, tmp_path):
    assert run_kustomize(overlay(tmp_path, faces)).returncode != 0


@EACH_CHOICE
def test_images_are_those_that_the_script_builds(components):
    version = re.search(r"^project\(convgrad VERSION ([\d.]+)",
                        (deployed.ROOT / "CMakeLists.txt").read_text(), re.M)[1]
    variant = "-cuda" if "cuda" in components else ""
    for one in containers(render(components)):
        assert one["image"] == f"registry.test/convgrad:{version}{variant}"


def test_a_private_ca_knows_the_names_that_cert_manager_is_told(tmp_path):
    certificate = next(document for document in render(["tls", "cert-manager"])
                       if document["metadata"]["name"] == "convgrad-tls"
                       and document["kind"] == "Certificate")
    subprocess.run([KUBERNETES / "private-ca", tmp_path, "server", "more.test"],
                   check=True, stdout=subprocess.DEVNULL)
    said = subprocess.run(["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in",
                           tmp_path / "server" / "tls.crt"], check=True,
                          capture_output=True, text=True).stdout
    assert re.findall(r"DNS:([\w.*-]+)", said) == \
        [*certificate["spec"]["dnsNames"], "more.test"]


def test_memory_and_time_add_up():
    documents = render(["tls"])
    for one in containers(documents):
        assert one["resources"]["limits"] == one["resources"]["requests"]
    server = container(documents)
    flags = dict(flag[2:].split("=", 1) for flag in server["args"]
                 if "=" in flag)
    # The server computes its budget from the limit, so that they can't contradict.
    assert "memory_budget_bytes" not in flags and "env" not in server
    pod = only(documents, "Deployment")[0]["spec"]["template"]["spec"]
    drain = int(flags["drain_delay"].removesuffix("s")) + \
        60 * int(flags["drain_timeout"].removesuffix("m"))
    assert drain < pod["terminationGracePeriodSeconds"]


def test_the_guides_smaller_size_fits(tmp_path):
    guide = (KUBERNETES / "README.md").read_text().split("## A smaller size")[1]
    copy = shutil.copytree(KUBERNETES / "..", tmp_path / "deploy") / "kubernetes"
    file = copy / "default" / "kustomization.yaml"
    file.write_text(file.read_text() + guide.split("```\n")[1])
    documents = kustomize(file.parent)
    asked = [one["resources"]["requests"] for one in containers(documents)]
    assert asked == [{"cpu": "2", "memory": "2Gi"}, {"cpu": "1", "memory": "256Mi"}]
    for one in containers(documents):
        assert one["resources"]["limits"] == one["resources"]["requests"]


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
