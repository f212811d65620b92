"""Simulates a cluster for the guide: runs the objects that were applied with the stand-ins
of cluster_tools.py, as real servers and clients in pods."""
import contextlib
import pathlib
import subprocess
import sys

import pytest

import cert_manager
import cluster_tools
import deployed
import pods


def assert_restricted(template):
    """Asserts the rules of a namespace that enforces `restricted`."""
    general = template["spec"]["securityContext"]
    assert general["runAsNonRoot"] and general["seccompProfile"]
    for container in template["spec"]["containers"]:
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"]["drop"] == ["ALL"]


def assert_let_in(state, namespace, port):
    """Asserts that the network policies let `namespace` call a port by its name."""
    labels = {"kubernetes.io/metadata.name": namespace,
              **state.get("Namespace", namespace)["metadata"].get("labels", {})}
    for policy in state.all("NetworkPolicy"):
        assert any(
            source["namespaceSelector"]["matchLabels"].items() <= labels.items()
            for rule in policy["spec"]["ingress"] if {"port": port} in rule["ports"]
            for source in rule["from"]), f"{namespace} isn't let in"


class Workload:
    """A pod and its manifest."""

    def __init__(self, cluster, document, name):
        self.cluster = cluster
        namespace = document["metadata"]["namespace"]
        template = document["spec"]["template"]
        self.claims = {one["metadata"]["name"]
                       for one in document["spec"].get("volumeClaimTemplates", ())}
        self.namespace = namespace
        self.template = template
        self.pod = cluster.node.pod(name)
        self.started = False
        self.processes = []
        self.stack = cluster.stack.enter_context(contextlib.ExitStack())

    @property
    def container(self):
        return self.template["spec"]["containers"][0]

    @property
    def sidecars(self):
        return self.template["spec"]["containers"][1:]

    def volumes(self):
        """Returns the files of each path; None if one of the sources is missing."""
        sources = {volume["name"]: volume
                   for volume in self.template["spec"].get("volumes", ())}
        files = {}
        for mount in self.container.get("volumeMounts", ()):
            if mount["name"] in self.claims:
                continue
            volume = sources[mount["name"]]
            if "emptyDir" in volume:
                self.pod.run("mkdir", "-p", mount["mountPath"])
                continue
            if "secret" in volume:
                found = self.cluster.state().get(
                    "Secret", volume["secret"]["secretName"], self.namespace)
                content = found and cert_manager.files_of(found)
            else:
                found = self.cluster.state().get(
                    "ConfigMap", volume["configMap"]["name"], self.namespace)
                content = found and {name: text.encode()
                                     for name, text in found["data"].items()}
            if content is None:
                return None
            files[mount["mountPath"]] = content
        return files

    def mount(self):
        """Brings the volumes up to date. Returns false if this isn't possible yet."""
        files = self.volumes()
        for path, content in (files or {}).items():
            self.pod.mount(path, content)
        return files is not None

    def claim(self):
        """Mounts the pod's own volumes, which are empty."""
        for mount in self.container.get("volumeMounts", ()):
            if mount["name"] in self.claims:
                folder = self.cluster.path.parent / f"{self.pod.name}-{mount['name']}"
                folder.mkdir()
                self.pod.bind(folder, mount["mountPath"])

    def restart(self):
        """Stops the pod as the kubelet does, and starts it again."""
        for process in self.processes:
            process.terminate()
        seconds = self.template["spec"]["terminationGracePeriodSeconds"]
        for process in self.processes:
            process.wait(seconds)
        self.start()
        deployed.wait_until(self.is_ready, f"{self.pod.name} ready")

    def start(self):
        self.stack.close()
        self.processes = [
            self.stack.enter_context(deployed.running(
                *self.pod.command(container, pods.instruction("ENTRYPOINT"))))
            for container in self.template["spec"]["containers"]]

    def is_ready(self):
        """Asks the readiness probe from outside the pod, as the kubelet does."""
        port = self.container["readinessProbe"]["grpc"]["port"]
        asks = [[deployed.SERVER, "--healthcheck",
                 f"--health_listen={self.pod.address}:{port}"]]
        for sidecar in self.sidecars:
            named = {port["name"]: port["containerPort"] for port in sidecar["ports"]}
            port = named[sidecar["readinessProbe"]["tcpSocket"]["port"]]
            asks.append([sys.executable, "-c", "import socket, sys;"
                         "socket.create_connection((sys.argv[1], int(sys.argv[2])))",
                         self.pod.address, str(port)])
        return all(subprocess.run([*self.cluster.node.enter(), *words],
                                  capture_output=True, check=False).returncode == 0
                   for words in asks)


class Cluster:
    """A cluster of one node, with the state that the stand-ins change."""

    def __init__(self, stack, folder, operators):
        self.stack = stack
        self.node = stack.enter_context(pods.node(folder))
        self.workloads = {}
        self.path = folder / "state.json"
        state = self.state()
        state.data["operators"] = operators
        for name in ("monitoring", "default"):
            state.put({"apiVersion": "v1", "kind": "Namespace",
                       "metadata": {"name": name}})
        state.save()

    def state(self):
        return cluster_tools.State(self.path)

    def tools(self, folder):
        """Puts the stand-ins into `folder`, for use in PATH."""
        kubectl = deployed.KUBERNETES / "bin" / "kubectl"
        if not kubectl.exists():
            pytest.skip("no kubectl: deploy/dependencies test")
        folder.mkdir()
        for tool in ("kubectl", "docker"):
            program = folder / tool
            program.write_text(
                f"#!/bin/sh\nexec '{sys.executable}' '{cluster_tools.__file__}' "
                f"'{self.path}' '{kubectl}' {tool} \"$@\"\n")
            program.chmod(0o755)

    def sync(self):
        """Does all pending work of operators, controllers and the kubelet."""
        state = self.state()
        cert_manager.reconcile(state)
        state.save()
        for kind in ("Deployment", "StatefulSet"):
            for document in state.all(kind):
                self.roll_out(document)
        for job in state.all("Job"):
            self.run_job(job)

    def workload(self, document, name):
        """Returns the pod `name` of a Deployment, StatefulSet or Job, and whether it existed with the
        same manifest."""
        namespace = document["metadata"]["namespace"]
        template = document["spec"]["template"]
        labels = self.state().get("Namespace", namespace)["metadata"]["labels"]
        if labels["pod-security.kubernetes.io/enforce"] == "restricted":
            assert_restricted(template)
        pushed = self.state().data["pushed"]
        for container in template["spec"]["containers"]:
            assert container["image"] in pushed, "ImagePullBackOff"
        known = self.workloads.get(name)
        if known is None:
            known = self.workloads[name] = Workload(self, document, name)
            known.claim()
            return known, False
        same = known.template == template
        known.template = template
        return known, same

    def roll_out(self, document):
        meta = document["metadata"]
        replicas = []
        for number in range(document["spec"].get("replicas", 1)):
            one, same = self.workload(document, f"{meta['name']}-{number}")
            mounted = one.mount()
            if mounted and not (same and one.started):
                one.start()
            one.started = mounted
            replicas.append(one)
        done = all(one.started for one in replicas)
        if done:
            self.name_services(replicas)
            for one in replicas:
                deployed.wait_until(one.is_ready, f"{one.pod.name} ready")
        self.note(document["kind"].lower(), meta, done, "")

    def name_services(self, replicas):
        """Gives each pod the names that the cluster's DNS would resolve."""
        lines = ["127.0.0.1 localhost"]
        for service in self.state().all("Service"):
            meta = service["metadata"]
            headless = service["spec"].get("clusterIP") == "None"
            for one in replicas if headless else replicas[:1]:
                name = f"{meta['name']}.{meta['namespace']}"
                names = [name, f"{one.pod.name}.{name}"] if headless else [name]
                lines += [f"{one.pod.address} {each} {each}.svc {each}.svc.cluster.local"
                          for each in names]
        for pod in self.node.pods:
            (pod.etc / "hosts").write_text("\n".join(lines) + "\n")

    def run_job(self, job):
        meta = job["metadata"]
        one, same = self.workload(job, meta["name"])
        if same and one.started:
            return
        one.started = one.mount()
        if not one.started:
            return
        assert_let_in(self.state(), meta["namespace"], "grpc")
        self.name_services(self.replicas())
        done = subprocess.run(one.pod.command(one.container), text=True,
                              capture_output=True, timeout=120, check=False)
        self.note("job", meta, done.returncode == 0, done.stdout + done.stderr)

    def replicas(self):
        return [one for one in self.workloads.values()
                if "readinessProbe" in one.container]

    def note(self, kind, meta, done, log):
        state = self.state()
        state.data["outcomes"][f"{kind}/{meta['namespace']}/{meta['name']}"] = {
            "done": done, "log": log}
        state.save()


@contextlib.contextmanager
def cluster(folder, operators=()):
    """Yields a cluster with its files in `folder`, a pathlib.Path. `operators` are the API
    groups that it supports in addition to Kubernetes' own."""
    with contextlib.ExitStack() as stack:
        yield Cluster(stack, pathlib.Path(folder), list(operators))
