"""Tests the command line tool with a real server: its output, files and checks."""

import json
import os
import pty
import select
import signal
import subprocess
import threading
import time

import grpc
import numpy as np
import pytest
from server_process import BINARY, ServerProcess
from stand_in import grpc_server, tcp_server

import convgrad
from convgrad.v1 import service_pb2
from convgrad.wire import join_message, split_bytes

BUILD = BINARY.parents[1]
TOOL = BUILD / "client" / "cpp" / "convgrad"
PROBLEM = "conv2d_n2_c3_o4_i6_k3_p1_b"
# Time limit for expected output; not a measure of speed.
PATIENCE_SECONDS = 60


def run(*arguments, code=0):
    """Returns what the tool printed on stdout."""
    done = subprocess.run([TOOL, *map(str, arguments)], text=True, capture_output=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert (done.stderr == "") == (code == 0), done.stderr
    return done.stdout


def run_json(*arguments, code=0):
    return json.loads(run(*arguments, "--json", code=code))


@pytest.fixture
def at(server):
    return f"--server={server.address}"


@pytest.mark.parametrize("command, results", [
    ("forward", {"adjoint"}), ("backward", {"adjoint", "grad_bias"})])
def test_json_of_a_call(at, command, results):
    found = run_json(command, PROBLEM, at)
    assert found["operation"].startswith(f"{command} conv2d_n2_c3_o4")
    assert found["report"]["backend"] == "onednn" and found["bytes"]["sent"] > 0
    assert results < found["check"].keys() and found["check"]["ok"] is True
    assert found["seconds"] >= found["report"]["seconds"]["compute"] > 0


def test_json_of_other_commands(at):
    found = run_json("bench", PROBLEM, at, "--repeat=3", "--warmup=0")
    assert found["calls"] == 3 and found["seconds"]["min"] <= found["seconds"]["p99"]
    assert {"compute", "total", "outside"} < found["stage_median_seconds"].keys()
    found = run_json("capabilities", at)
    assert {backend["name"] for backend in found["backends"]} >= {"onednn", "reference"}


def test_json_of_errors():
    found = run_json("forward", PROBLEM, "--dtype=f8", code=2)["error"]
    assert found == {
        "code": "INVALID_ARGUMENT", "reason": "OUT_OF_RANGE", "field": "--dtype",
        "message": '--dtype: found "f8", expected f32, bf16 or f16', "found": '"f8"',
        "expected": "f32, bf16 or f16"}
    assert run_json("forward", PROBLEM, "--server=127.0.0.1:1",
                    code=1)["error"]["code"] == "UNAVAILABLE"


@pytest.fixture
def tensors(rng):
    shapes = dict(input=(2, 3, 6, 6), weight=(4, 3, 3, 3), grad_output=(2, 4, 6, 6))
    return {name: rng.integers(-3, 4, shape).astype(np.float32)
            for name, shape in shapes.items()}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_in_and_out(at, client, tensors, tmp_path, save):
    save(tmp_path / "in.npz", **tensors)
    found = run_json("backward", PROBLEM, at, f"--operands={tmp_path}/in.npz",
                     f"--out={tmp_path}/out.npz")
    assert found["wrote"] == [f"{tmp_path}/out.npz"]
    expected = client.conv_backward(
        tensors["grad_output"], tensors["input"], tensors["weight"], padding=1,
        gradients={"grad_input", "grad_weight", "grad_bias"})
    with np.load(tmp_path / "out.npz") as written:
        assert set(written) == {"grad_input", "grad_weight", "grad_bias"}
        for name in written:
            assert written[name].dtype == np.float32
            np.testing.assert_array_equal(written[name], getattr(expected, name))


def test_one_array_of_an_npz_goes_before_the_others(at, client, tensors, tmp_path):
    np.savez(tmp_path / "all.npz", **tensors)
    own = dict(input=-tensors["input"], labels=np.arange(3))
    np.savez(tmp_path / "own.npz", **own)
    run("forward", "conv2d_n2_c3_o4_i6_k3_p1", at, f"--operands={tmp_path}/all.npz",
        f"--input={tmp_path}/own.npz", f"--out={tmp_path}/")
    np.testing.assert_array_equal(
        np.load(tmp_path / "output.npy"),
        client.conv_forward(own["input"], tensors["weight"], padding=1).output)


def test_npz_that_cannot_be_used(at, tensors, tmp_path):
    def refusal(code, **arrays):
        np.savez(tmp_path / "in.npz", **arrays)
        return run_json("forward", PROBLEM, at, f"--operands={tmp_path}/in.npz",
                        code=code)["error"]["message"]

    x = tensors["input"]
    assert "found \"weights\", expected input, weight" in refusal(2, input=x, weights=x)
    assert "in.npz: found [3,6,6], expected [2,3,6,6]" in refusal(2, input=x[0])
    assert "in.npz: input: found dtype '<f8'" in refusal(2, input=x.astype(float))
    file = tmp_path / "in.npz"
    np.savez(file, weight=x)
    alone = ("forward", PROBLEM, at, f"--input={file}")
    assert "no array of that name, expected input" in run_json(
        *alone, code=1)["error"]["message"]
    np.savez(file, input=x)
    good = file.read_bytes()
    flipped = bytearray(good)
    flipped[200] ^= 1  # a bit of the data, so that its checksum is wrong
    for broken in (flipped, good[:300], b"", b"no archive"):
        file.write_bytes(broken)
        assert "in.npz" in run_json(*alone, code=2)["error"]["message"]
    file.unlink()
    assert "no readable file" in run_json(*alone, code=1)["error"]["message"]
    assert "none/out.npz: found Failure to create temporary file" in run_json(
        "forward", PROBLEM, at, f"--out={tmp_path}/none/out.npz", code=1)["error"]["message"]


def test_check_of_its_own_list(at):
    found = run_json("check", at)
    results = [r for c in found["comparisons"] for r in c["results"]]
    assert len(results) > 100 and all(r["ok"] for r in results)
    assert {r["dtype"] for r in results} == {"f32", "bf16", "f16"}
    assert {r["integers_differing"] for r in results} == {0}
    assert 0 < max(r["worst_share_of_bound"] for r in results) <= 1
    assert "0 wrong" in run("check", at, PROBLEM, "--dtype=bf16", "--layout=NXC",
                            "--slice_items=1")
    assert "0 wrong" in run("check", at, PROBLEM, "--dtype=f32", "--layout=NHWC",
                            "--weight_layout=HWIO", "--result_layout=grad_input=NCHW")
    refused = run_json("forward", PROBLEM, at, "--layout=NHCW", code=2)["error"]["message"]
    assert refused == '--layout: found "NHCW", expected NCX, NXC or NDC1HWC0'


def test_check_of_what_the_server_cannot_compute(at):
    error = run_json("check", at, "conv2d_n1_c512_o512_i64_k3", code=1)["error"]
    assert error["code"] == "FAILED_PRECONDITION"


def behind(server, change):
    """Runs a server whose answers `change` may change, except those of the reference."""
    channel = grpc.insecure_channel(server.address)

    def answer(request, context):
        head, _ = split_bytes(request)
        message = service_pb2.ConvBackwardRequest.FromString(head)
        method = "/convgrad.v1.ConvGrad/ConvBackward"
        if not message.operation.operands.HasField("grad_output"):
            method = "/convgrad.v1.ConvGrad/ConvForward"
        response = channel.unary_unary(method)(request)
        if message.options.backend == service_pb2.BACKEND_CHOICE_REFERENCE:
            return response
        return change(response, context)

    return grpc_server(answer)


def with_last_element_changed(response, context):
    head, payloads = split_bytes(response)
    payloads = [bytearray(payload) for payload in payloads]
    values = np.frombuffer(payloads[-1], np.float32)
    values[-1] = np.nextafter(values[-1], np.float32(np.inf)) + np.float32(1e-2)
    return join_message(head, [memoryview(payload) for payload in payloads])


def test_check_sees_one_wrong_element(server):
    with behind(server, with_last_element_changed) as address:
        found = run_json("check", f"--server={address}", PROBLEM, "--dtype=f32", code=1)
    forward, backward = found["comparisons"]
    assert found["error"]["code"] == "DATA_LOSS"
    for result in (forward["results"][-1], backward["results"][-1]):
        assert result["integers_differing"] == 1 and result["worst_share_of_bound"] > 1
        assert result["ok"] is False
    assert all(result["ok"] for result in backward["results"][:-1])


def test_check_tells_what_is_refused(server):
    def refuse(response, context):
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "not here")

    with behind(server, refuse) as address:
        found = run_json("check", f"--server={address}", PROBLEM, "--dtype=f32", code=1)
    assert [c["refusal"] for c in found["comparisons"]] == ["not here"] * 2
    assert found["error"]["code"] == "UNIMPLEMENTED"  # nothing was compared


@pytest.mark.parametrize("command", ["forward", "backward", "bench", "check"])
def test_a_failed_self_check_fails_the_command(server, command):
    def fail(response, context):
        head, payloads = split_bytes(response)
        message = service_pb2.ConvForwardResponse.FromString(head)
        message.report.self_check.passed = False
        return join_message(message.SerializeToString(), payloads)

    with behind(server, fail) as address:
        found = run_json(command, f"--server={address}", PROBLEM, code=1)
    assert found["error"]["code"] == "DATA_LOSS"


def test_output_that_cannot_be_written(at):
    for arguments in (["help"], ["forward", PROBLEM, at], ["bench", PROBLEM, at, "--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([TOOL, *arguments], stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 1 and b"stdout" in done.stderr


def test_values_that_the_tool_refuses(at, tmp_path):
    for option in ("--warmup", "--repeat"):
        error = run_json("bench", PROBLEM, at, f"{option}=3000000000", code=2)["error"]
        assert error["field"] == option and " to 1000000000" in error["expected"]
    error = run_json("forward", PROBLEM, at, f"--input={tmp_path}", code=1)["error"]
    assert error["found"] == "no readable file"


def test_top():
    server = ServerProcess("--metrics_listen=127.0.0.1:0")
    done = threading.Event()

    def call_on():
        x, w = np.ones((4, 8, 16, 16), np.float32), np.ones((8, 8, 3, 3), np.float32)
        with convgrad.Client(server.address) as client:
            while not done.is_set():
                client.conv_forward(x, w)

    caller = threading.Thread(target=call_on)
    caller.start()
    look = ("top", f"--metrics=127.0.0.1:{server.metrics_port}", "--interval=1s")
    try:
        tables = [json.loads(line) for line in
                  run(*look, "--count=2", "--json").splitlines()]
        text = run(*look, "--count=1")
        done.set()
        caller.join()
        idle = run(*look, "--count=1")
    finally:
        done.set()
        caller.join()
        server.kill()
    assert len(tables) == 2
    table = tables[-1]
    method, = table["methods"]
    assert method["method"] == "ConvForward" and method["calls_per_second"] > 0
    assert method["errors_per_second"] == 0
    assert 0 < method["p50_seconds"] <= method["p99_seconds"]
    operation, = table["operations"]
    assert (operation["op"], operation["backend"], operation["dtype"]) == (
        "forward", "onednn", "f32")
    assert operation["gflops_per_second"] > 0 and table["plan_hit_share"] == 1
    assert 0 < table["plans"] and 0 <= table["memory_bytes"] < table["memory_capacity_bytes"]
    assert "ConvForward" in text and "forward   onednn     f32" in text
    assert "100.0 % hits" in text
    assert "ConvForward" not in idle and "onednn" not in idle


def test_top_shows_sessions():
    server = ServerProcess("--metrics_listen=127.0.0.1:0")
    look = ("top", f"--metrics=127.0.0.1:{server.metrics_port}", "--interval=1s", "--count=1")
    with convgrad.Client(server.address) as client, client.session() as session:
        session.put("x", np.ones(1 << 20, np.float32).reshape(1, -1))
        table = json.loads(run(*look, "--json"))
        text = run(*look)
    server.kill()
    assert (table["sessions"], table["kept_tensors"]) == (1, 1)
    assert 4 << 20 <= table["kept_bytes"] < table["kept_capacity_bytes"]
    assert "sessions 1, with 1 tensors, 0 programs and 0 tapes (0.0 MB) in 4." in text


def test_sessions_are_closed_by_their_handle():
    server = ServerProcess()
    with convgrad.Client(server.address) as client:
        session = client.session()
        address = f"--server={server.address}"
        listed = json.loads(run("sessions", address, "--json"))["sessions"]
        assert len(listed) == 1 and listed[0]["handle"] in run("sessions", address)
        run("sessions", address, f"--close={listed[0]['handle']}")
        assert json.loads(run("sessions", address, "--json"))["sessions"] == []
        with pytest.raises(convgrad.SessionExpired):
            session.put("x", np.ones((1, 4), np.float32))
    server.kill()


def typed(command, keys, expected, **environment):
    """Runs a program on a terminal, types keys, and waits until it shows `expected`."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], [str(c) for c in command], os.environ | environment)
    shown, deadline = b"", time.monotonic() + PATIENCE_SECONDS
    os.write(terminal, keys)
    while expected not in shown and time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            shown += os.read(terminal, 4096)
        except OSError:  # it has ended
            break
    os.close(terminal)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return shown


def test_progress_is_shown_on_a_terminal_alone():
    with tcp_server(b"") as address:
        command = [TOOL, "bench", PROBLEM, f"--server={address}", "--timeout=3s"]
        assert b"bench: 0 of 23, 1." in typed(command, b"", b"bench: 0 of 23, 1.")
        assert "bench:" not in subprocess.run(command, text=True, capture_output=True).stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(["cmake", "--install", BUILD, "--prefix", folder, "--component", "tool"],
                   check=True, stdout=subprocess.DEVNULL)
    return folder


SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"],
             "source {folder}/share/bash-completion/completions/convgrad\n"),
    "zsh": (["zsh", "-f", "-i"],
            "fpath=({folder}/share/zsh/site-functions $fpath); "
            "autoload -U compinit; compinit -u -D\n"),
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("keys, completed", [
    ("backw\t", "backward"), ("bench x --dt\tf16", "bench x --dtype=f16"),
    ("bench x --dtype=b\t", "bench x --dtype=bf16"), ("completions z\t", "completions zsh"),
    ("forward x --noch\t", "forward x --nocheck"),
    ("forward x --out={folder}/bin/conv\t", "forward x --out={folder}/bin/convgrad")])
def test_completions(installed, tmp_path, shell, keys, completed):
    assert (installed / "bin" / "convgrad").exists()
    says_what_it_got = tmp_path / "convgrad"
    says_what_it_got.write_text('#!/bin/sh\necho "got:$*:"\n')
    says_what_it_got.chmod(0o755)
    command, setup = SHELLS[shell]
    line = f"{setup}convgrad {keys}\n".format(folder=installed).encode()
    expected = f"got:{completed}:".format(folder=installed).encode()
    assert expected in typed(command, line, expected, TERM="dumb", HOME=str(tmp_path),
                             PATH=f"{tmp_path}:{os.environ['PATH']}")
