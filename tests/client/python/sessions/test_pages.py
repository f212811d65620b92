"""The Python in client/python's pages, run as it is written, against a server."""

import pathlib
import re

import pytest
from server_process import ServerProcess

import convgrad

ROOT = pathlib.Path(__file__).parents[4]
TUTORIAL = ROOT / "client/python/tutorial.md"
SESSIONS = ROOT / "client/python/sessions.md"
ADDRESS = "localhost:7070"


def run(page, server):
    """Runs each block behind the others, in one namespace as a reader would."""
    text = page.read_text()
    assert ADDRESS in text
    names = {}
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, block.start()) + 1
        code = "\n" * line + block[1].replace(ADDRESS, server.address)
        exec(compile(code, str(page), "exec"), names)
    return names


@pytest.mark.remote
def test_the_tutorial_runs(server):
    ran = run(TUTORIAL, server)
    assert ran["classes"].shape == (16,)


@pytest.mark.remote
def test_the_tutorials_training_goes_on_after_its_server_was_killed(tmp_path):
    import torch  # pylint: disable=import-outside-toplevel

    server = ServerProcess()
    ran = run(TUTORIAL, server)

    class Batches:
        passes = 0

        def __iter__(self):
            self.passes += 1
            if self.passes == 3:
                server.kill()
                server.restart()
            yield ran["images"], ran["targets"]

    batches, path = Batches(), str(tmp_path / "training.pt")
    with convgrad.Client(server.address) as client:
        ran["train"](path, batches, 4, client)
    server.kill()
    assert batches.passes == 5  # the third one twice
    saved = torch.load(path)
    assert saved["epochs"] == 4
    assert {int(state["step"]) for state in saved["optimizer"]["state"].values()} == {4}


@pytest.mark.remote
def test_sessions_run_and_leave_nothing(tmp_path):
    server = ServerProcess(f"--state_dir={tmp_path}")
    ran = run(SESSIONS, server)
    assert ran["classes"].shape == (4, 16, 16)
    for weights in (ran["weights"], ran["trained"]):
        assert weights.keys() == ran["make_model"]().state_dict().keys()
    with convgrad.Client(server.address) as client:
        assert not client.sessions()
        with pytest.raises(convgrad.SessionExpired):
            client.attach(ran["session_id"])
    server.kill()


def test_names_that_sessions_tells_exist():
    for name in re.findall(r"`client\.(\w+)\(", SESSIONS.read_text()):
        assert hasattr(convgrad.Client, name), name
    for name in re.findall(r"`(\w+)`", SESSIONS.read_text()):
        known = (convgrad, convgrad.Attached, convgrad.Client, convgrad.Session)
        assert name in WORDS or any(hasattr(one, name) for one in known), name


WORDS = {"with", "lease", "train", "admin", "state_dict", "prepare", "retry", "timeout",
         "replay_bytes", "train_step", "export", "import", "UserWarning"}
