"""The overlay that gives each pod a volume for durable sessions."""
import json
import re
import subprocess
import sys

import numpy as np
import pytest

import deployed
import test_kubernetes as kubernetes
from test_components import TOKEN, private_ca, secret

pytest.importorskip("yaml")
from cluster import cluster  # noqa: E402

STEPS = 300
# Of loading a batch, so that a training takes longer than the restarts.
SECONDS = 0.15
# A training of tests/client/python/durable_training.py, with TLS and a token.
TRAINING = f"""
import logging, pathlib, sys
ca, folder, seconds = sys.argv[1:]
sys.path.insert(0, {str(deployed.ROOT / "tests/client/python")!r})
import convgrad, durable_programs, durable_training
durable_training.LOADING_SECONDS = float(seconds)
durable_training.train("dns:///convgrad-replicas.convgrad:7070", pathlib.Path(folder), "own",
                       {STEPS}, durable_programs.small(), token={TOKEN!r},
                       tls=convgrad.Tls(ca=ca))
"""


def render(folder, components):
    """Returns the objects of `durable` on top of an overlay with these components."""
    mine = kubernetes.overlay(folder, components)
    file = mine.parent / "durable" / "kustomization.yaml"
    file.write_text(file.read_text().replace("../default", "../mine"))
    return kubernetes.kustomize(file.parent)


def test_the_certificate_holds_for_each_pod():
    certificate = next(one for one in kubernetes.only(
        kubernetes.render(["tls", "tokens", "cert-manager"]), "Certificate")
        if one["metadata"]["name"] == "convgrad-tls")
    assert {f"*.{name}" for name in certificate["spec"]["dnsNames"]
            if name.startswith("convgrad-replicas.")} <= {*certificate["spec"]["dnsNames"]}


@kubernetes.ALL
def test_the_pods_are_those_of_the_deployment_with_a_volume(components, tmp_path):
    fitting = [name for name in components if name != "autoscaling"]
    documents = render(tmp_path, fitting)
    checked = [one for one in documents if one["kind"] not in kubernetes.FOREIGN]
    assert kubernetes.complaints(checked, tmp_path) == ""
    assert not kubernetes.only(documents, "Deployment")
    stateful, = kubernetes.only(documents, "StatefulSet")
    deployment, = kubernetes.only(kubernetes.render(fitting), "Deployment")
    claim, = stateful["spec"]["volumeClaimTemplates"]
    pod = stateful["spec"]["template"]
    server = pod["spec"]["containers"][0]
    mount = next(one for one in server["volumeMounts"]
                 if one["name"] == claim["metadata"]["name"])
    *server["args"], state_dir, advertise = server["args"]
    assert re.fullmatch(f"--state_dir={mount['mountPath']}/\\w+", state_dir)
    variable = next(one for one in server["env"] if one["name"] == "POD_NAME")
    server["env"].remove(variable)
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    name = f"{stateful['spec']['serviceName']}.{stateful['metadata']['namespace']}"
    assert advertise == f"--advertise=$({variable['name']}).{name}:7070"
    if not server["env"]:
        del server["env"]
    assert any(one["metadata"]["name"] == stateful["spec"]["serviceName"]
               and one["spec"]["clusterIP"] == "None"
               for one in kubernetes.only(documents, "Service")
               if "clusterIP" in one["spec"])
    server["volumeMounts"].remove(mount)
    if not server["volumeMounts"]:
        del server["volumeMounts"]
    expected = deployment["spec"]["template"]
    assert pod["spec"].pop("terminationGracePeriodSeconds") > \
        expected["spec"].pop("terminationGracePeriodSeconds")
    assert json.dumps(pod, sort_keys=True) == json.dumps(expected, sort_keys=True)


class Training:
    """A training in a pod of its own. A step takes at least `seconds`."""

    def __init__(self, pod, ca, folder, seconds):
        folder.mkdir()
        self._folder = folder
        with (folder / "out").open("w") as out:
            self._process = subprocess.Popen(
                [*pod.enter(), sys.executable, "-c", TRAINING, ca, folder, str(seconds)],
                stdout=out, stderr=subprocess.STDOUT)

    @property
    def steps(self):
        return len(re.findall(r"^step \d+$", self.said(), re.M))

    def said(self):
        return (self._folder / "out").read_text()

    def final(self):
        """Returns the bytes of all tensors that the session keeps at the end, by name."""
        assert self._process.wait(240) == 0, self.said()
        with np.load(self._folder / "final.npz") as arrays:
            return {name: array.tobytes() for name, array in arrays.items()}


@pytest.fixture
def durable_pods(tmp_path):
    """The pods of the overlay, with TLS and tokens, and the path of their CA."""
    private_ca(tmp_path / "pki", "server")
    with cluster(tmp_path, ["cert-manager.io", "monitoring.coreos.com"]) as it:
        state = it.state()
        for document in render(tmp_path, ["tls", "tokens"]):
            state.put(document)
            if document["kind"] == "StatefulSet":
                state.data["pushed"] += [one["image"] for one in
                                         document["spec"]["template"]["spec"]["containers"]]
        state.put(secret("convgrad-tls", {
            file.name: file.read_bytes()
            for file in (tmp_path / "pki" / "server" / "current").iterdir()}))
        state.put(secret("convgrad-tokens", {"tokens": f"trainer train {TOKEN}\n".encode()}))
        state.save()
        it.sync()
        yield it, tmp_path / "pki" / "ca.crt"


def test_two_trainings_survive_a_rolling_restart(durable_pods, tmp_path):
    it, ca = durable_pods
    client = it.node.pod("client")
    it.sync()
    expected = Training(client, ca, tmp_path / "undisturbed", 0).final()
    trainings = [Training(client, ca, tmp_path / f"training-{i}", SECONDS) for i in range(2)]
    for training in trainings:
        deployed.wait_until(lambda one=training: one.steps > 1, "a training's begin")
    for name in ("convgrad-0", "convgrad-1"):
        it.workloads[name].restart()
    assert all(training.steps < STEPS for training in trainings)
    for training in trainings:
        assert training.final() == expected
        assert training.said().count("was started again") == 1
