"""Runs a Docker engine, for the tests of this folder."""
import json
import subprocess

import deployed

# Engines without iptables reach other hosts only from the host's network.
BUILD_NETWORK = "--network=host"


def docker(*arguments, stdin=""):
    done = subprocess.run(["docker", *arguments], input=stdin, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.strip()


def inspect(name):
    return json.loads(docker("inspect", name))[0]


def build_image(variant):
    """Returns the tag that deploy/image prints for `variant`, cpu or cuda."""
    done = subprocess.run(
        [deployed.ROOT / "deploy" / "image", variant, BUILD_NETWORK],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()
