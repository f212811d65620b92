"""Tests the memory that a cgroup leaves of the host's."""

import pytest

from convgrad.local.machine import memory_left, usable_cores

GIB = 2**30


@pytest.fixture
def host(tmp_path):
    """Returns a function that writes files below a root for the test, with 8 GiB available."""

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    write("proc/meminfo", f"MemTotal: 1 kB\nMemAvailable: {8 * GIB // 1024} kB\n")
    write("proc/self/cgroup", "0::/a/b\n")
    return write


def test_without_limits(host, tmp_path):
    host("sys/fs/cgroup/a/memory.max", "max\n")
    assert memory_left(tmp_path) == 8 * GIB


def test_the_least_of_all_levels(host, tmp_path):
    host("sys/fs/cgroup/a/memory.max", f"{3 * GIB}\n")
    host("sys/fs/cgroup/a/memory.current", f"{2 * GIB}\n")
    host("sys/fs/cgroup/a/memory.stat", f"anon 5\ninactive_file {GIB // 2}\n")
    host("sys/fs/cgroup/a/b/memory.max", f"{6 * GIB}\n")
    assert memory_left(tmp_path) == 3 * GIB // 2


def test_version_1(host, tmp_path):
    host("proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/x\n")
    host("sys/fs/cgroup/memory/x/memory.limit_in_bytes", f"{4 * GIB}\n")
    host("sys/fs/cgroup/memory/x/memory.usage_in_bytes", f"{GIB}\n")
    host("sys/fs/cgroup/memory/x/memory.stat", "total_inactive_file 0\n")
    assert memory_left(tmp_path) == 3 * GIB


def test_a_cgroup_that_is_full(host, tmp_path):
    host("sys/fs/cgroup/a/memory.max", "100\n")
    host("sys/fs/cgroup/a/memory.current", "200\n")
    assert memory_left(tmp_path) == 0


def test_cores():
    assert usable_cores()
