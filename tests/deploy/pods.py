"""Simulates pods: processes in separate network namespaces on one bridge, each with an
address that isn't loopback, and an /etc with its volumes. Needs no root if user namespaces
are allowed."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import deployed

SUBNET = "10.77.0"
# The image's files on this host.
PROGRAMS = {"/usr/local/bin/convgrad-server": deployed.SERVER,
            "/usr/local/bin/convgrad": deployed.CLIENT,
            "/usr/share/convgrad/haproxy/run": deployed.HAPROXY.parent / "run"}
# Root needs no user namespace; other users get one in which they are root.
USER = [] if os.geteuid() == 0 else ["--user"]
MAP = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


def instruction(name):
    """Returns the words of the image's last ENTRYPOINT, or of its HEALTHCHECK."""
    text = (deployed.ROOT / "Dockerfile").read_text().replace("\\\n", "")
    return json.loads(re.findall(rf"^(?:{name}\b[^\[\n]*)(\[.*\])$", text, re.M)[-1])


class Namespace:
    """A namespace of network and mounts, which a waiting process keeps."""

    def __init__(self, stack, enter, unshare):
        self.process = stack.enter_context(deployed.running(
            *enter, "unshare", *unshare, "--net", "--mount", "sh", "-c",
            "ip link set lo up && echo up && exec cat", stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True))
        if self.process.stdout.readline() != "up\n":
            pytest.skip("neither root nor user namespaces are allowed here")

    def enter(self):
        """Returns the words that run a command inside."""
        preserve = ["--preserve-credentials"] if USER else []
        return ["nsenter", f"--target={self.process.pid}", *USER, "--net",
                "--mount", *preserve]

    def run(self, *command):
        """Returns the command's output; fails the test if it fails."""
        done = subprocess.run([*self.enter(), *map(str, command)], text=True,
                              capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


class Pod(Namespace):
    """One network namespace on the node's bridge."""

    def __init__(self, stack, node, name, folder):
        super().__init__(stack, node.enter(), [])
        self.name = name
        number = len(node.pods) + 2
        self.address = f"{SUBNET}.{number}"
        self.etc = folder / name
        subprocess.run(["cp", "--archive", "/etc", self.etc], check=False,
                       stderr=subprocess.DEVNULL)
        self.run("mount", "--bind", self.etc, "/etc")
        # A place for empty volumes.
        self.run("mount", "-t", "tmpfs", "tmpfs", "/run")
        node.run("ip", "link", "add", "name", f"pod{number}", "type", "veth",
                 "peer", "name", "eth0", "netns", self.process.pid)
        node.run("ip", "link", "set", f"pod{number}", "master", "pods", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def command(self, container, entry_point=()):
        """Returns the words that start a manifest's container inside. A variable that takes a
        field of the pod gets the pod's name."""
        variables = {entry["name"]: entry.get("value", self.name)
                     for entry in container.get("env", ())}
        words = [*container.get("command", entry_point),
                 *container.get("args", ())]
        for name, value in variables.items():
            words = [word.replace(f"$({name})", value) for word in words]
        return [*self.enter(), "env", *(f"{name}={value}" for name, value in
                                        variables.items()),
                PROGRAMS.get(words[0], words[0]), *words[1:]]

    def bind(self, folder, path):
        """Mounts a folder of this host at `path` below /var/lib."""
        self.run("mount", "-t", "tmpfs", "tmpfs", "/var/lib")
        self.run("mkdir", "-p", path)
        self.run("mount", "--bind", folder, path)

    def mount(self, path, content):
        """Puts a volume's files at `path` as the kubelet does: in a new folder, to which it
        redirects a symbolic link."""
        folder = self.etc / pathlib.PurePosixPath(path).relative_to("/etc")
        folder.mkdir(parents=True, exist_ok=True)
        old = folder / "..data"
        before = old.resolve() if old.exists() else None
        if before and {file.name: file.read_bytes()
                       for file in before.iterdir()} == content:
            return
        fresh = folder / f"..{len(list(folder.iterdir()))}"
        fresh.mkdir()
        for name, data in content.items():
            (fresh / name).write_bytes(data)
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(pathlib.Path("..data") / name)
        (folder / "..new").symlink_to(fresh.name)
        (folder / "..new").rename(old)
        if before:
            shutil.rmtree(before)


class Node(Namespace):
    """The host of the pods, with a bridge and an address on it."""

    def __init__(self, stack, folder):
        super().__init__(stack, [], MAP)
        self.stack = stack
        self.folder = folder
        self.pods = []
        self.run("ip", "link", "add", "name", "pods", "type", "bridge")
        self.run("ip", "address", "add", f"{SUBNET}.1/24", "dev", "pods")
        self.run("ip", "link", "set", "pods", "up")

    def pod(self, name):
        pod = Pod(self.stack, self, name, self.folder)
        self.pods.append(pod)
        return pod


@contextlib.contextmanager
def node(folder):
    """Yields a node whose pods have their /etc below `folder`."""
    deployed.need("ip", "unshare", "nsenter")
    with contextlib.ExitStack() as stack:
        yield Node(stack, folder)
