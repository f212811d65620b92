"""Tests the work of a local server: it trains, keeps tensors, and runs on older CPUs."""

import json
import pathlib
import re
import subprocess
import sys

import pytest


@pytest.mark.remote
def test_a_network_trains_where_no_client_is_named(run):
    (line,) = run(f"""
import json, sys
sys.path.insert(0, {str(pathlib.Path(__file__).parents[1])!r})
import torch
import torch.nn.functional as F
from small_networks import images, make
x, y = images(), torch.tensor([0, 1, 2, 3])

def losses(net, optimizer):
    found = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found

net, model = convgrad.torch.remote(make("Vgg")), make("Vgg")
ours = losses(net, convgrad.torch.optim.SGD(net.parameters(), lr=0.1))
theirs = losses(model, torch.optim.SGD(model.parameters(), lr=0.1))
model = make("Vgg")
offloaded = convgrad.torch.offload(model)
both = losses(model, torch.optim.SGD(model.parameters(), lr=0.1))
again = convgrad.torch.remote(make("Vgg"))
print(json.dumps([ours, theirs, both, len(offloaded.taken),
                  again.session.client is net.session.client]))
""")
    ours, theirs, both, taken, is_same = json.loads(line)
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert both == pytest.approx(theirs, rel=1e-4)
    assert taken == 2 and is_same


def test_a_small_memory_is_shared_by_regions_and_sessions(run):
    """The server refuses a tensor that doesn't fit at once, and names the size that fits."""
    (line,) = run("""
import numpy as np
with convgrad.LocalServer(memory_bytes=256 << 20) as server, server.client() as client:
    with client.session() as session:
        session.put("x", np.ones((1, 10 << 20), np.float32))
        try: session.put("y", np.ones((1, 100 << 20), np.float32))
        except convgrad.ResourceExhausted as error: print(error)
""")
    assert re.search(r"kept bytes: found 4\d{8} beside 0 .*, expected at most [456]\d{7}",
                     line)


@pytest.mark.parametrize("variables", [
    {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"ONEDNN_MAX_CPU_ISA": "SSE41"},
])
def test_a_locale_without_utf8_and_an_older_cpu(environment, variables):
    found = subprocess.run([sys.executable, "-c", """
import convgrad, numpy as np
x, w = np.ones((2, 3, 8, 8), np.float32), np.ones((4, 3, 3, 3), np.float32)
with convgrad.LocalServer() as server, server.client() as client:
    print(client.conv_forward(x, w).output[0, 0, 0, 0])
"""], env=environment(**variables), text=True, capture_output=True, check=False)
    assert found.stdout == "27.0\n", found.stderr


def test_the_programs_of_the_command_line(run):
    assert run("""
import subprocess
for name in ("serve", "no-such"):
    found = subprocess.run([sys.executable, "-m", "convgrad", name, "--version"],
                           capture_output=True, text=True)
    print(found.stdout.strip() or found.stderr.strip())
""", PATH="") == ["0.1.0", 'convgrad: program convgrad: found none, expected what pip install '
                  '--find-links build/wheels "convgrad[server]" installs']


def test_help_names_the_commands_that_the_tool_lacks(run):
    found = run("""
import subprocess
for argument in ("help", "-h", "--help", "--version"):
    found = subprocess.run([sys.executable, "-m", "convgrad", argument],
                           capture_output=True, text=True)
    print(found.stdout.strip())
""", PATH="")
    assert found == 3 * ["python -m convgrad also has serve (starts the server), export, "
                         "import, snapshot, restore and replay; COMMAND --help lists options."
                         ] + [""]
