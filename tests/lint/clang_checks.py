#!/usr/bin/env python3
"""Runs clang's checks on sources, with their compile flags.

    clang_checks.py tidy BUILD_DIR [--all]
    clang_checks.py thread-safety BUILD_DIR

tidy checks sources that changed since the merge base with the main branch or, on
that branch, since the previous commit; without either, all sources. It checks at
most MOST_FILES sources, tests last. BUILD_DIR/lint records sources that passed;
tidy checks them again only if they, a header of the tree or the checks change.
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOUSE = ("backends/", "client/", "proto/", "server/", "tests/")
LOCKED = ("backends/core/", "server/")  # where mutexes are
MUTEX = "backends/core/mutex.h"
INCLUDE = re.compile(r'^ *#include "([^"]+)"', re.MULTILINE)
# A source takes 10 to 15 s on one core, so all take 4 minutes on two cores.
# cuda_graph.cc takes 3 minutes, because it includes 51 kLOC of cudnn-frontend.
MOST_FILES = 32


def git(*arguments):
    """Returns the lines that git prints; None if it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.splitlines() if done.returncode == 0 else None


def compile_commands(build_dir):
    """Returns {path from the top: (directory, arguments)} of our sources."""
    commands = {}
    for entry in json.loads((build_dir / "compile_commands.json").read_text()):
        file = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        if file.is_relative_to(build_dir) or not file.is_relative_to(ROOT):
            continue  # generated
        path = file.relative_to(ROOT).as_posix()
        if path.startswith(HOUSE) and path.endswith(".cc"):  # excludes sources for nvcc
            commands[path] = (entry["directory"], shlex.split(entry["command"]))
    return commands


def landing_base():
    """Returns the commit to compare with, or None."""
    head = git("rev-parse", "--verify", "-q", "HEAD")
    for branch in ("origin/main", "origin/master", "main"):
        base = git("merge-base", "HEAD", branch)
        if base and base != head:
            return base[0]
    before = git("rev-parse", "--verify", "-q", "HEAD~1")
    return before[0] if before else None


def tidy_selection(commands):
    """Returns the sources to check, and a text that says how they were selected."""
    base = landing_base()
    if base is None:
        return tests_last(commands)[:MOST_FILES], "no earlier landing"
    changed = set(git("diff", "--name-only", base, "--") or [])
    changed |= set(git("ls-files", "--others", "--exclude-standard") or [])
    # A header is checked through the source of the same name.
    changed |= {path[:-2] + ".cc" for path in changed if path.endswith(".h")}
    chosen = tests_last(changed & set(commands))
    return chosen[:MOST_FILES], f"{len(chosen)} changed since {base[:10]}"


def tests_last(paths):
    return sorted(paths, key=lambda path: (path.startswith("tests/"), path))


def tidy_command(build_dir, path, directory, arguments):
    del directory, arguments  # clang-tidy reads them itself
    return ROOT, ["clang-tidy", "--quiet", "-p", str(build_dir), path]


@functools.cache
def included_by(path):
    """Returns the files of the tree that one file includes."""
    file = ROOT / path
    return INCLUDE.findall(file.read_text()) if file.exists() else []


def sees_mutexes(source):
    """Returns whether a source includes MUTEX, directly or through other headers."""
    seen, left = set(), [source]
    while left:
        path = left.pop()
        if path not in seen:
            seen.add(path)
            left += included_by(path)
    return MUTEX in seen


def thread_safety_command(build_dir, path, directory, arguments):
    del build_dir
    # The arguments after the compiler, which may follow a launcher.
    start = next(i for i, a in enumerate(arguments) if a.startswith("-"))
    flags = [a for a in arguments[start:] if a not in ("-c", "-Werror")]
    if "-o" in flags:
        at = flags.index("-o")
        del flags[at:at + 2]
    return directory, ["clang++", "-fsyntax-only", "-Wthread-safety",
                       "-Werror=thread-safety", "-Wno-unknown-warning-option",
                       *flags]


def headers_digest():
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for top in HOUSE:
        for header in sorted((ROOT / top).rglob("*.h")):
            digest.update(header.read_bytes())
    return digest.hexdigest()


def check(stamp_dir, common, path, work):
    """Runs one check unless it passed before; returns its output, "" if it passes."""
    directory, arguments = work
    key = hashlib.sha256("\0".join([common, *arguments]).encode())
    key.update((ROOT / path).read_bytes())
    stamp = stamp_dir / key.hexdigest()
    if stamp.exists():
        return ""
    done = subprocess.run(arguments, cwd=directory, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode == 0:
        stamp.touch()
        return ""
    return f"--- {path}\n{done.stdout.strip()}\n"


def main(arguments):
    started = time.monotonic()
    name, build_dir = arguments[0], pathlib.Path(arguments[1]).resolve()
    commands = compile_commands(build_dir)
    if name == "thread-safety":
        make_command = thread_safety_command
        paths = [p for p in sorted(commands)
                 if p.startswith(LOCKED) and sees_mutexes(p)]
        why = "every source that sees a mutex"
    else:
        make_command = tidy_command
        paths, why = tidy_selection(commands)
        if "--all" in arguments:
            paths, why = sorted(commands), "all"
    stamp_dir = build_dir / "lint"
    stamp_dir.mkdir(exist_ok=True)
    common = headers_digest()
    print(f"{name}: {len(paths)} files ({why})", flush=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(check, stamp_dir, common, path,
                            make_command(build_dir, path, *commands[path]))
                for path in paths]
        for job in concurrent.futures.as_completed(jobs):
            if job.result():
                failed += 1
                print(job.result(), flush=True)
    print(f"{name}: {len(paths) - failed} of {len(paths)} pass, "
          f"{time.monotonic() - started:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
