"""Replaces kubectl and docker; a file replaces the cluster and the registry. The real
kubectl does the work that needs no cluster: it renders overlays, makes manifests of
files, and reads fields.

    cluster_tools.py STATE KUBECTL kubectl|docker ARGUMENT...
"""
import json
import pathlib
import subprocess
import sys

import yaml


class State:
    """The cluster's state in a file: objects, pushed images, the API groups of installed
    operators, and the outcomes of jobs."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        empty = {"objects": {}, "images": [], "pushed": [], "operators": [],
                 "outcomes": {}}
        self.data = json.loads(self.path.read_text()) if self.path.exists() else empty

    def save(self):
        self.path.write_text(json.dumps(self.data))

    def get(self, kind, name, namespace=""):
        return self.data["objects"].get(f"{kind.lower()}/{namespace}/{name}")

    def all(self, kind):
        return [document for key, document in self.data["objects"].items()
                if key.startswith(f"{kind.lower()}/")]

    def put(self, document, may_exist=True):
        """Accepts an object, or refuses it as the API would."""
        meta = document["metadata"]
        namespace = meta.get("namespace", "")
        group = document["apiVersion"].rpartition("/")[0]
        if group.count(".") and not group.endswith(".k8s.io") and \
                group not in self.data["operators"]:
            sys.exit(f"no matches for kind {document['kind']} in {group}")
        if namespace and not self.get("namespace", namespace):
            sys.exit(f'namespaces "{namespace}" not found')
        key = f"{document['kind'].lower()}/{namespace}/{meta['name']}"
        if not may_exist and key in self.data["objects"]:
            sys.exit(f"{key} already exists")
        self.data["objects"][key] = document


def option(arguments, name):
    """Returns the value after `name`, or of `name=value`; None without it."""
    for position, argument in enumerate(arguments):
        if argument == name:
            return arguments[position + 1]
        if argument.startswith(name + "="):
            return argument.partition("=")[2]
    return None


class Kubectl:
    """Runs one command."""

    def __init__(self, state, real):
        self.state = state
        self.real = real

    def run_real(self, *arguments, text=None):
        done = subprocess.run([self.real, *arguments], input=text, text=True,
                              capture_output=True, check=False)
        sys.stderr.write(done.stderr)
        if done.returncode:
            sys.exit(done.returncode)
        return done.stdout

    def apply(self, arguments):
        folder, file = option(arguments, "-k"), option(arguments, "-f")
        if folder:
            text = self.run_real("kustomize", folder)
        else:
            text = sys.stdin.read() if file == "-" else pathlib.Path(file).read_text()
        documents = list(yaml.safe_load_all(text))
        # Applies namespaces first, as kubectl does.
        for document in sorted(documents, key=lambda one: one["kind"] != "Namespace"):
            self.state.put(document)

    def create(self, arguments):
        dry = option(arguments, "--dry-run")
        text = self.run_real("create", *arguments, *(
            [] if dry else ["--dry-run=client", "--output=yaml"]))
        if dry:
            print(text)
        else:
            self.state.put(yaml.safe_load(text), may_exist=False)

    def get(self, arguments):
        kind, name = arguments[:2]
        found = self.state.get(kind, name, option(arguments, "--namespace"))
        if not found:
            sys.exit(f'{kind} "{name}" not found')
        # Only in this way does kubectl print a field of an object that isn't in a cluster.
        print(self.run_real(
            "annotate", "--local", "--filename=-", "read=yes",
            f"--output={option(arguments, '--output')}", text=json.dumps(found)),
            end="")

    def outcome(self, arguments):
        target = next(word for word in arguments if "/" in word)
        kind, name = target.split("/")
        key = f"{kind}/{option(arguments, '--namespace')}/{name}"
        if key not in self.state.data["outcomes"]:
            sys.exit(f"{key}: nothing became of it")
        return self.state.data["outcomes"][key]

    def rollout(self, arguments):
        outcome = self.outcome(arguments)
        if not outcome["done"]:
            sys.exit("timed out waiting for the condition\n" + outcome["log"])

    wait = rollout

    def logs(self, arguments):
        print(self.outcome(arguments)["log"], end="")


def docker(state, arguments):
    command, *rest = arguments
    if command == "build":
        tags = [after for word, after in zip(rest, rest[1:]) if word == "--tag"]
        state.data["images"] += tags
        return
    assert rest[0] in state.data["images"], f"no such image: {rest[0]}"
    state.data[{"tag": "images", "push": "pushed"}[command]].append(rest[-1])


def main():
    path, real, tool, *arguments = sys.argv[1:]
    state = State(path)
    if tool == "docker":
        docker(state, arguments)
    else:
        getattr(Kubectl(state, real), arguments[0])(arguments[1:])
    state.save()


if __name__ == "__main__":
    main()
