"""Starts a server for one measurement, and reads its metrics."""

import contextlib
import os
import re
import subprocess
import urllib.request


@contextlib.contextmanager
def server(build, threads):
    # Settings of OpenMP are for PyTorch in this process, and would replace the server's own.
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    process = subprocess.Popen(
        [f"{build}/server/convgrad-server", "--listen=127.0.0.1:0",
         "--metrics_listen=127.0.0.1:0", "--workers=1", f"--threads_per_worker={threads}"],
        stdout=subprocess.PIPE, text=True, env=environment)
    found = {}
    while "listening" not in found:
        line = process.stdout.readline()
        for what in ("listening on 127.0.0.1:", "metrics on port "):
            if match := re.search(re.escape(what) + r"(\d+)", line):
                found[what.split()[0]] = int(match[1])
        if process.poll() is not None:
            raise SystemExit("the server didn't start")
    try:
        yield process.pid, f"127.0.0.1:{found['listening']}", found["metrics"]
    finally:
        process.terminate()
        process.wait()


def counted(port, family):
    """Returns the sum of a metric over its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines
               if re.match(family + r"[ {]", line))


def peak_mib(pid="self"):
    """Returns the peak of a process's resident memory so far, in MiB."""
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"VmHWM:\s+(\d+)", status.read())[1]) / 1024
