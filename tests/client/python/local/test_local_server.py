"""Tests the server of a process: there is only one, and it leaves nothing behind."""

import contextlib
import glob
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

FOLDERS = f"convgrad-{os.getuid()}-*"


def is_running(pid):
    with contextlib.suppress(OSError):
        return "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    return False


def check_nothing_is_left(pids, folder):
    deadline = time.monotonic() + 30
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if is_running(pid)]
    assert not os.listdir(folder)
    with open("/proc/net/unix", encoding="utf-8") as sockets:
        assert not [line for line in sockets if folder in line]


def test_starts_and_ends(run, folder):
    pids = run("""
for _ in range(5):
    with convgrad.LocalServer() as server, server.client() as client:
        client.capabilities()
        print(server.pid)
left = convgrad.LocalServer()
print(left.pid)
""")
    assert len(set(pids)) == 6
    check_nothing_is_left(map(int, pids), folder)


@pytest.mark.parametrize("transport", ["native", "python"])
def test_a_parent_that_is_killed(folder, environment, transport):
    pids = []
    for _ in range(3):
        with subprocess.Popen(
                [sys.executable, "-c", """
import convgrad, sys, threading
def work():  # The thread that started the server ends before the process does.
    global server
    server = convgrad.LocalServer()
thread = threading.Thread(target=work)
thread.start()
thread.join()
client = server.client()
region = client.region(2**20)
print(server.pid, flush=True)
sys.stdin.read()
"""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env=environment(CONVGRAD_TRANSPORT=transport)) as parent:
            pids.append(int(parent.stdout.readline()))
            assert is_running(pids[-1])
            parent.kill()
    check_nothing_is_left(pids, folder)


def test_what_a_killed_server_leaves_goes_with_the_next(run, folder, environment):
    with subprocess.Popen(
            [sys.executable, "-c", "import convgrad, sys\ns = convgrad.LocalServer()\n"
             "print(s.pid, flush=True); sys.stdin.read()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment()) as parent:
        server = int(parent.stdout.readline())
        parent.send_signal(signal.SIGSTOP)
        os.kill(server, signal.SIGKILL)
        parent.kill()
    assert len(glob.glob(f"{folder}/{FOLDERS}")) == 1
    (other,) = run("with convgrad.LocalServer() as server: print(server.pid)")
    check_nothing_is_left([server, int(other)], folder)


def test_one_server_however_often_it_is_asked_for(run):
    assert run("""
import threading
found = []
threads = [threading.Thread(target=lambda: found.append(convgrad.LocalServer()))
           for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
again = convgrad.LocalServer()
print(len({server.pid for server in found}), again.pid == found[0].pid)
found.clear()
print(again.is_running)
client = again.client()
again.close()
print(again.is_running)
try:
    client.capabilities()
except convgrad.Unavailable as error:
    print(str(error))
""") == ["1 True", "True", "False",
         "UNAVAILABLE: local server: found one that was closed, expected one that runs"]


def test_other_settings_than_the_running_servers(run):
    assert run("""
server = convgrad.LocalServer(threads=1, memory_bytes=2**30)
client = server.client()
client.capabilities()
same = convgrad.LocalServer(threads=1)
try:
    convgrad.LocalServer(threads=2)
except convgrad.FailedPrecondition as error:
    print(error.message)
while "1 workers x 1 threads" not in server.log(): time.sleep(0.01)  # it answers first
""") == ["local server: threads: found 2, expected 1, as the one that runs in this process "
         "has, or close() of that first"]


def test_processes_that_are_spawned_share_it(run):
    assert run("""
import subprocess
server = convgrad.LocalServer()
code = ("import convgrad\\nwith convgrad.LocalServer() as server, server.client() as client:"
        " client.capabilities(); print(server.address, server.pid)")
found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
print(found.stdout == f"{server.address} None\\n", found.stderr, server.is_running)
server.close()
found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
print(f"{server.address} None" in found.stdout, "None" in found.stdout)
""") == ["True  True", "False False"]


def test_a_process_that_is_forked(run):
    """A fork can't use the parent's client, and its close() doesn't end the parent's server."""
    assert run("""
server = convgrad.LocalServer()
client = server.client()
client.capabilities()
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    with convgrad.LocalServer() as same:
        print(same.address == server.address)
    for action in (client.capabilities, same.close, server.close):
        try:
            action()
            print("done")
        except convgrad.FailedPrecondition:
            print("refused")
    sys.exit(0)
print(os.waitpid(pid, 0)[1], server.is_running, bool(client.capabilities().backends))
""", CONVGRAD_TRANSPORT="python") == ["True", "refused", "done", "done", "0 True True"]


def test_a_fork_before_the_first_use_has_its_own(run):
    assert run("""
pid = os.fork()
with convgrad.LocalServer() as server:
    own = server.pid is not None
    if pid == 0:
        os._exit(0 if own else 1)
    print(own, os.waitpid(pid, 0)[1])
""") == ["True 0"]


def test_a_server_that_is_killed_is_told_at_once(run):
    lines = run("""
import signal, time
server = convgrad.LocalServer()
clients = [server.client(), server.client(retry=convgrad.RetryPolicy(max_attempts=10**6))]
for client in clients:
    client.capabilities()
os.kill(server.pid, signal.SIGKILL)
for client in clients:
    try:
        client.capabilities()
    except convgrad.Unavailable as error:
        print(error)
print(open(server.log_path).read() == server.log(), server.is_running)
print(convgrad.LocalServer().is_running)
""")
    for line in lines[:2]:
        assert "killed by SIGKILL; its log, /proc/" in line and "listening on" in line
    assert lines[2:] == ["True False", "True"]


def test_a_session_of_a_server_that_is_killed_is_not_repeated(run):
    lines = run("""
import signal
import numpy as np
server = convgrad.LocalServer()
client = server.client()
session = client.session()
session.put("x", np.ones(3, np.float32))
os.kill(server.pid, signal.SIGKILL)
for _ in range(2):
    try:
        session.put("x", np.ones(3, np.float32))
    except convgrad.Unavailable as error:
        print(error)
""")
    assert len(lines) == 2 and all("killed by SIGKILL" in line for line in lines)


@pytest.mark.parametrize("settings, expected", [
    ({"CONVGRAD_SERVER": "/nowhere"},
     "CONVGRAD_SERVER: found '/nowhere', expected the path of a convgrad-server program"),
    ({"CONVGRAD_SERVER": "", "PATH": ""},
     "program convgrad-server: found none, expected what pip install --find-links build/wheels "
     '"convgrad[server]" installs, or a path in CONVGRAD_SERVER'),
])
def test_no_program(run, settings, expected):
    assert run("""
try:
    convgrad.LocalServer()
except convgrad.FailedPrecondition as error:
    print(error.message)
""", **settings) == [expected]


@pytest.mark.parametrize("arguments, expected", [
    ("threads=0", "threads: found 0, expected at least 1"),
    ("flags='--workers=1'", "flags: found '--workers=1', expected a list of flags"),
    ("memory_bytes=1000", "--memory_budget_bytes: found 1000"),
    ("flags=['--queue_capacity=0']", "--queue_capacity: found 0, expected 1 to 1000000"),
    ("log='/nowhere/log'", "local server: log: found '/nowhere/log' (No such file or "
                           "directory), expected a file that can be written"),
])
def test_settings_that_are_wrong(run, folder, arguments, expected):
    (line,) = run(f"""
try:
    convgrad.LocalServer({arguments})
except convgrad.ConvgradError as error:
    print(error.message)
""")
    assert expected in line
    check_nothing_is_left([], folder)


def test_a_log_of_ones_own(run, folder):
    log = f"{folder}/server.log"
    for _ in range(2):
        run(f"with convgrad.LocalServer(log='{log}') as s: s.client().capabilities()")
    assert pathlib.Path(log).read_text().count("listening on") == 2


def test_a_log_that_becomes_shorter(run, folder):
    log = pathlib.Path(folder, "server.log")
    log.write_text("of another server\n")
    assert run(f"""
with convgrad.LocalServer(log='{log}') as server:
    server.client().capabilities()
    os.truncate('{log}', 0)
    print(repr(server.log()))
""") == ["''"]


def test_the_log_outlasts_the_server(run):
    assert run("""
server = convgrad.LocalServer()
server.client().capabilities()
path, log = server.log_path, server.log()
server.close()
others = [os.open("/proc/cpuinfo", os.O_RDONLY) for _ in range(100)]
print("listening on" in log, server.log().startswith(log), open(path).read() == server.log())
del server
print(os.path.exists(path))
""") == ["True True True", "False"]


@pytest.mark.parametrize("name", ["x" * 100, "b l a n k", "\u00fc"])
def test_a_temporary_folder_that_no_socket_can_be_in(run, folder, name):
    os.mkdir(f"{folder}/{name}")
    (address,) = run("""
with convgrad.LocalServer() as server, server.client() as client:
    client.capabilities()
    print(ascii(server.address))
""", TMPDIR=f"{folder}/{name}", LC_ALL="C", PYTHONUTF8="0")
    assert address.startswith("'unix:/")
    assert not os.listdir(f"{folder}/{name}")


def test_no_folder_at_all(run):
    """The error has one line, e.g. if all folders are mounted read-only."""
    (line,) = run("""
import tempfile
from convgrad.local import process as local_process
local_process._parents = lambda: iter(["/proc", "/nowhere"])
try:
    convgrad.LocalServer()
except convgrad.FailedPrecondition as error:
    print(error.message)
""")
    assert line.startswith("local server: folder for sockets: found '/proc' (")
    assert line.endswith("'/nowhere' (No such file or directory), expected one that can be "
                         "written, whose path is short and plain")


def test_ctrl_c_while_it_starts(run, folder):
    run("""
from convgrad.local import process as local_process
def interrupted(path): raise KeyboardInterrupt
local_process.listens = interrupted
try:
    convgrad.LocalServer()
except KeyboardInterrupt:
    sys.exit(0)
sys.exit(1)
""")
    check_nothing_is_left([], folder)


def test_ctrl_c_while_its_process_starts(run, folder):
    """Popen() reads from a pipe until the child runs the program."""
    run("""
def interrupted(*_): raise KeyboardInterrupt
read, os.read = os.read, interrupted
try:
    convgrad.LocalServer()
except KeyboardInterrupt:
    os.read = read
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    sys.exit(0)
sys.exit("a child is left")
""")
    check_nothing_is_left([], folder)


def test_a_home_that_cant_be_written(run):
    assert run("with convgrad.LocalServer() as server: print(server.is_running)",
               HOME="/proc") == ["True"]


def test_only_its_user_gets_in(run):
    assert run("""
with convgrad.LocalServer() as server:
    path = server.address.removeprefix("unix:")
    print(oct(os.stat(os.path.dirname(path)).st_mode))
""") == ["0o40700"]


def test_a_socket_of_another_user_isnt_inherited(run, folder):
    if os.getuid() != 0:
        pytest.skip("needs root to have another user's file")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"{folder}/calls")
        os.chown(f"{folder}/calls", 12345, 12345)
        other.listen()
        assert run("with convgrad.LocalServer() as server: print(server.pid is None)",
                   CONVGRAD_LOCAL_SERVER=f"unix:{folder}/calls") == ["False"]
