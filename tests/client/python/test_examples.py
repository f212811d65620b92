"""Tests shortened examples, a real network's gradients against their bounds, and servers that
are killed during a training."""

import pathlib
import random
import re
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from certificates import make_certificates
from server_process import BINARY, ServerProcess
from shared_steps import wait_until

import convgrad
import convgrad.torch

EXAMPLES = pathlib.Path(__file__).parents[3] / "client" / "python" / "examples"
TOKEN = "3f0c9f2f6f0d4c55"


def start(name, *arguments):
    return subprocess.Popen([sys.executable, EXAMPLES / name, *arguments], text=True,
                            stdout=subprocess.PIPE)


@pytest.fixture
def digits(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import digits
    return digits


@pytest.fixture
def resnet18_layers(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import resnet18_layers
    return resnet18_layers


def test_an_example_with_certificates_and_a_token(tmp_path):
    pki = make_certificates(tmp_path, "IP:127.0.0.1")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "tokens").write_text(f"trainer train {TOKEN}\n")
    server = ServerProcess(f"--tls_cert={pki}/server.pem", f"--tls_key={pki}/server.key",
                           f"--tls_client_ca={pki}/ca.pem", f"--token_file={tmp_path}/tokens")
    run = start("numpy_sgd.py", "--target", server.address, "--ca", pki / "ca.pem", "--cert",
                pki / "client.pem", "--key", pki / "client.key", "--token", tmp_path / "token")
    assert "step  50" in run.communicate(timeout=600)[0]
    assert run.returncode == 0
    server.kill()


@pytest.mark.remote
@pytest.mark.parametrize("loss", ["server", "local"])
def test_an_example_that_starts_a_server(monkeypatch, loss):
    monkeypatch.setenv("CONVGRAD_SERVER", str(BINARY))
    run = start("train_remote.py", "--network", "small", "--steps", "1", "--loss", loss)
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0 and output.count("ms for the first step\n") == 2, output


@pytest.mark.parametrize("arguments", [("numpy_sgd.py", "--ca", "ca.crt"),
                                       ("train_remote.py", "--session", "session")])
def test_options_that_need_a_target(arguments):
    run = subprocess.run([sys.executable, EXAMPLES / arguments[0], *arguments[1:]], text=True,
                         capture_output=True, check=False)
    assert run.returncode and "need" in run.stderr and "--target" in run.stderr, run.stderr


@pytest.mark.parametrize("extra", [["--compare"], ["--bf16"]])
def test_digits(server, tmp_path, extra):
    picture = tmp_path / "digits.png"
    run = start("digits.py", "--target", server.address, "--epochs", "10", "--expect", "0.95",
                "--plot", str(picture), *extra)
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0, output
    assert "in remote calls" in output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_digits_says_when_it_learned_nothing(server):
    run = start("digits.py", "--target", server.address, "--epochs", "1", "--expect", "0.999")
    assert "expected 99.90%" in run.communicate(timeout=600)[0]
    assert run.returncode == 1


def test_digits_expects_nothing_of_few_epochs_by_itself(server):
    run = start("digits.py", "--target", server.address, "--epochs", "1")
    assert "accuracy" in run.communicate(timeout=600)[0]
    assert run.returncode == 0


@pytest.mark.parametrize("name", sorted(
    path.name for path in EXAMPLES.glob("*.py") if "__main__" in path.read_text()))
def test_helps_begin_with_whole_sentences(name):
    usage, description, *_ = start(name, "--help").communicate()[0].split("\n\n")
    assert usage.startswith("usage: ") and description.endswith(".")


@pytest.mark.remote
@pytest.mark.parametrize("loss", ["server", "local"])
def test_train_remote_goes_on_after_kills(tmp_path, loss):
    server = ServerProcess(f"--state_dir={tmp_path / 'state'}", "--snapshot_interval=100ms")
    session = tmp_path / "session"
    arguments = ("train_remote.py", "--target", server.address, "--network", "small",
                 "--batch", "8", "--steps", "1000", "--loss", loss, "--session", str(session))
    run = start(*arguments)
    wait_until(lambda: session.exists())
    with convgrad.Client(server.address) as client:
        wait_until(lambda: any(kept.durable_number > 100 for kept in client.sessions()))
    run.kill()
    run.wait()
    server.kill()
    server.restart()
    output, _ = start(*arguments).communicate(timeout=600)
    assert "goes on after step" in output and "ms a step" in output
    with convgrad.Client(server.address) as client:
        assert not client.sessions() and not session.exists()
    server.kill()


@pytest.mark.remote
@pytest.mark.parametrize("loss", ["server", "local"])
def test_train_remote(server, tmp_path, loss):
    picture = tmp_path / "loss.png"
    arguments = ("--target", server.address, "--network", "small", "--batch", "8",
                 "--steps", "30", "--loss", loss)
    run = start("train_remote.py", *arguments, "--plot", str(picture))
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0, output
    assert output.count("ms a step") == 2
    assert picture.read_bytes().startswith(b"\x89PNG")
    run = start("train_remote.py", *arguments, "--expect", "0.01")
    assert "expected 0.010 at most" in run.communicate(timeout=600)[0]
    assert run.returncode == 1


@pytest.mark.remote
def test_segment_shapes(server, tmp_path):
    picture = tmp_path / "shapes.png"
    run = start("segment_shapes.py", "--target", server.address, "--steps", "30",
                "--expect", "0.6", "--picture", str(picture))
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0, output
    assert picture.read_bytes().startswith(b"\x89PNG")
    run = start("segment_shapes.py", "--target", server.address, "--steps", "1",
                "--expect", "0.999")
    assert "expected 99.90%" in run.communicate(timeout=600)[0]
    assert run.returncode == 1


@pytest.mark.remote
@pytest.mark.parametrize("how", [[], ["--thread"]])
def test_annotate(tmp_path, how):
    server, picture = ServerProcess(), tmp_path / "annotated.png"
    run = start("annotate.py", "--target", server.address, "--rounds", "8", "--picture",
                str(picture), *how)
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0, output
    ends = re.findall(r"(begins|ends) at change (\d+), weights (\w+)", output)
    assert [end[0] for end in ends] == ["begins", "ends"] * 2, output
    # The second trainer continues where the first one ended.
    assert ends[1][1:] == ends[2][1:], output
    assert 80 < int(ends[1][1]) < int(ends[3][1]) and len({end[2] for end in ends}) == 3, output
    right = [float(share) for share in re.findall(r"([\d.]+)% of each class right", output)]
    assert len(right) == 16 and len(set(right)) > 10, output
    assert right[0] + 10 < max(right[6:8]) and max(right[6:8]) - 10 < right[8], output
    assert picture.read_bytes().startswith(b"\x89PNG")
    with convgrad.Client(server.address) as client:
        assert not client.sessions()
    server.kill()


@pytest.mark.remote
def test_pictures_say_what_they_lack(server, tmp_path, monkeypatch):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('as if it were not there')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = start("annotate.py", "--target", server.address, "--rounds", "1", "--picture",
                str(tmp_path / "annotated.png"))
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0 and "no picture: it needs matplotlib" in output, output


def test_numpy_sgd(server):
    run = start("numpy_sgd.py", "--target", server.address)
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0, output


def test_resnet18_layers_stay_within_their_bounds(server):
    run = start("resnet18_layers.py", "--target", server.address, "--batch", "1",
                "--repeat", "1")
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0, output
    assert output.count("\n| ") == 12, output


def test_a_gradient_beyond_its_bound_is_seen(resnet18_layers):
    layer = resnet18_layers.LAYERS[-1]
    operands = [torch.randn(shape) for shape in ((1, 512, 7, 7), (512, 512, 3, 3),
                                                 (1, 512, 7, 7))]

    def conv(x, w):
        return F.conv2d(x, w, padding=1)

    dx, dw = resnet18_layers.gradients(conv, *operands)
    assert resnet18_layers.worst_share(layer, (dx, dw), conv, operands) < 1
    dw[3, 5, 2, 1] *= 1 + 2.0**-9  # as if it had been rounded to bf16
    assert resnet18_layers.worst_share(layer, (dx, dw), conv, operands) > 1


def exact_gradients(layer, x, dy):
    """Returns (grad_input, grad_weight, grad_bias) in float64."""
    x, w = x.double().requires_grad_(), layer.weight.detach().double().requires_grad_()
    b = torch.zeros(len(w), dtype=torch.float64, requires_grad=True)
    y = F.conv2d(x, w, b, layer.stride, layer.padding, layer.dilation, layer.groups)
    return torch.autograd.grad(y, (x, w, b), dy.double())


def test_one_step_of_digits_has_every_gradient_within_its_bound(
        client, digits, resnet18_layers):
    images, labels, *_ = digits.load()
    model = digits.make_model(0)
    convgrad.torch.offload(model, client)
    layers = [m for m in model if isinstance(m, torch.nn.Conv2d)]
    seen = {}
    for layer in layers:
        layer.register_forward_hook(
            lambda layer, args, y: seen.setdefault(layer, [args[0].detach()]) and None)
        layer.register_full_backward_hook(
            lambda layer, dx, dy: seen[layer].extend([dx[0], dy[0]]) and None)
    x = images[:64].clone().requires_grad_()
    F.cross_entropy(model(x), labels[:64]).backward()
    assert len(seen) == 3
    for layer, (x, dx, dy) in seen.items():
        exact = exact_gradients(layer, x, dy)
        layer_abs = torch.nn.Conv2d(layer.in_channels, layer.out_channels, 3, padding=1)
        layer_abs.weight.data = layer.weight.data.abs()
        magnitude = exact_gradients(layer_abs, x.abs(), dy.abs())
        windows = dy.shape[0] * dy.shape[2] * dy.shape[3]
        for found, *bound in zip((dx, layer.weight.grad, layer.bias.grad), exact, magnitude,
                                 (layer.out_channels * 9, windows, windows)):
            assert resnet18_layers.share_of_bound(found, *bound) <= 1


def learn(client, digits, steps, before_step=lambda step: None):
    """Returns a network's weights after some steps of SGD."""
    images, labels, *_ = digits.load()
    model = digits.make_model(1)
    convgrad.torch.offload(model, client)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    order = torch.Generator().manual_seed(1)
    for step in range(steps):
        before_step(step)
        batch = torch.randint(len(labels), (16,), generator=order)
        optimizer.zero_grad()
        F.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_a_server_killed_five_times_changes_no_bit(digits):
    server, rng = ServerProcess(), random.Random(4)
    moments = {step: rng.uniform(0, 0.02) for step in rng.sample(range(200), 5)}
    killers = []

    def kill_soon(step):
        if step not in moments:
            return
        for killer in killers:
            killer.join()

        def kill():
            server.kill()
            server.restart()

        killers.append(threading.Timer(moments[step], kill))
        killers[-1].start()

    with convgrad.Client(server.address) as client:
        undisturbed = learn(client, digits, 200)
        disturbed = learn(client, digits, 200, kill_soon)
    for killer in killers:
        killer.join()
    server.kill()
    assert len(killers) == 5 and torch.isfinite(undisturbed).all()
    assert torch.equal(undisturbed, disturbed)


def test_data_parallel_over_two_servers_one_killed_and_restarted(server):
    other = ServerProcess()

    def run(disturb):
        process = start("data_parallel.py", server.address, other.address, "--steps", "20")
        lines = []
        for line in process.stdout:
            lines.append(line)
            if disturb and line.startswith("step 5:"):
                other.kill()
            if disturb and line.startswith("step 12:"):
                other.restart()
        assert process.wait() == 0, lines
        return lines[-1]

    undisturbed, disturbed = run(False), run(True)
    other.kill()
    assert undisturbed.startswith("weights ") and undisturbed == disturbed
