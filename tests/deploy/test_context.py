"""Tests that the build's context has the files of deploy/ that the image's build reads."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]


def test_the_context_has_what_the_build_reads():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    steps = re.sub(r"^#.*$", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    scripts = (ROOT / "deploy/dependencies").read_text()
    read = set(re.findall(r"(?<![\w/])deploy/[\w.-]+", steps))
    read |= {f"deploy/{name}-requirements.txt" for name in ("cuda", "cudnn-frontend", "onednn")
             if f"deploy/{name}-requirements.txt" in scripts}
    assert read and read <= kept
    for path in kept:
        assert (ROOT / path).exists(), path
