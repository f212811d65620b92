"""Tests the programs on emulated CPUs with fewer instructions than this one. An instruction
that such a CPU lacks ends a program with SIGILL."""
import contextlib
import os
import subprocess

import pytest

import deployed

# The instruction sets that qemu emulates for each model. It never emulates AVX-512.
CPUS = {"Nehalem": "sse41", "Haswell": "avx2", "Icelake-Server": "avx2"}
PROBLEM = "conv2d_n1_c16_o16_i8_k3_p1"


def emulated(cpu, program, *arguments):
    return ["qemu-x86_64", "-cpu", cpu, str(program), *arguments]


@contextlib.contextmanager
def emulated_server(cpu):
    # Without this variable, the server would execute itself again to set how OpenMP
    # waits, and would then run without the emulator.
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    with deployed.running(*emulated(cpu, deployed.SERVER, "--listen=127.0.0.1:0",
                                    "--metrics_listen=", "--workers=1",
                                    "--threads_per_worker=1"),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env=environment) as process:
        yield deployed.Server(process)


def call(cpu, server, *arguments):
    """Runs the command line tool in the emulator; fails if it fails."""
    done = subprocess.run(emulated(cpu, deployed.CLIENT, *arguments,
                                   f"--server={server.address}"),
                          capture_output=True, text=True, check=False)
    # The emulator warns about each feature of the model that it lacks.
    errors = [line for line in done.stderr.splitlines()
              if "TCG doesn't support" not in line]
    assert done.returncode == 0, (done.stdout, errors)
    return done.stdout


@pytest.mark.parametrize("cpu, instructions", CPUS.items())
def test_server_and_client_answer_on_older_cpus(cpu, instructions):
    deployed.need("qemu-x86_64")
    with emulated_server(cpu) as server:
        capabilities = call(cpu, server, "capabilities")
        assert f"with {instructions}\n" in capabilities
        for dtype in ("f32", "bf16", "f16"):
            answer = call(cpu, server, "backward", PROBLEM, f"--dtype={dtype}")
            assert "ok" in answer.split("adjoint")[1], answer
            checked = call(cpu, server, "check", PROBLEM + "_b_relu",
                           f"--dtype={dtype}")
            assert "4 results right, 0 wrong; 0 operations refused" in checked
        server.process.terminate()
        assert server.process.wait(30) == 0
