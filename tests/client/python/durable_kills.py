"""Kills the server of a durable training, the training, or both, at random moments."""

from __future__ import annotations

import pathlib
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

import numpy as np
from server_process import ServerProcess
from shared_steps import wait_until

TRAINING = pathlib.Path(__file__).parent / "durable_training.py"
# Seconds for the steps of a training on a busy machine.
PATIENCE = 300


@dataclass
class Figures:
    """What the kills of one training cost."""

    server_kills: int = 0
    client_kills: int = 0
    kills_in_writes: int = 0
    """Kills of the server while it wrote a snapshot."""
    repeated_steps: int = 0
    """Steps that a client that was killed had done, and did again."""
    repeated_changes: int = 0
    """Changes that a client that lived sent again."""
    stored_replies: int = 0
    """Replies that the server had stored, and sent again."""
    seconds: list[float] = field(default_factory=list)
    """From each kill until the next step was done."""


def has_begun_snapshot(state_dir: pathlib.Path) -> bool:
    """Returns whether a file of the only session is newer than its newest manifest."""
    times = {file.name: file.stat().st_mtime_ns for file in state_dir.glob("sessions/*/*")}
    newest = max((time for name, time in times.items()
                  if name.startswith("manifest-") and not name.endswith(".tmp")), default=0)
    return any(time > newest for time in times.values())


class Training:
    """Runs durable_training.py."""

    def __init__(self, target: str, folder: pathlib.Path, mode: str, steps: int,
                 network: str = "small") -> None:
        self.figures = Figures()
        self.step = 0
        self.first = 0
        """Step from which the client that runs now has begun."""
        self.begins = 0
        self.folder = folder
        self._arguments = (target, folder, mode, str(steps), network)
        self._log = (folder / "log").open("w+")
        self._readers: list[threading.Thread] = []
        self.start_client()

    def start_client(self) -> None:
        self.client = subprocess.Popen([sys.executable, TRAINING, *self._arguments],
                                       stdout=subprocess.PIPE, stderr=self._log, text=True)
        self._readers.append(threading.Thread(target=self._read, args=(self.client.stdout,)))
        self._readers[-1].start()

    def _read(self, lines: object) -> None:
        for line in lines:
            if not line.endswith("\n"):  # killed within it
                return
            word, number = line.split()
            if word == "begin":
                self.figures.repeated_steps += max(self.step - int(number), 0)
                self.first = int(number)
            self.step = int(number)
            self.begins += word == "begin"

    def kill_client(self) -> None:
        self.client.kill()
        self.client.wait()
        self._readers[-1].join()

    def wait_for(self, step: int) -> None:
        def is_there() -> bool:
            assert self.client.poll() in (None, 0), self.log()
            return self.step >= step or self.client.poll() is not None

        wait_until(is_there, PATIENCE)

    def finish(self) -> dict[str, np.ndarray]:
        """Returns all that the session keeps at the end."""
        assert self.client.wait(timeout=PATIENCE) == 0, self.log()
        for reader in self._readers:
            reader.join()
        for line in self.log().splitlines():
            if "the client repeats" in line:
                self.figures.repeated_changes += int(line.split()[-2])
        with np.load(self.folder / "final.npz") as final:
            return dict(final)

    def log(self) -> str:
        self._log.flush()
        self._log.seek(0)
        return self._log.read()


class KilledTraining(Training):
    """Runs durable_training.py beside a server, both of which may be killed."""

    def __init__(self, folder: pathlib.Path, mode: str, steps: int, *flags: str,
                 network: str = "small") -> None:
        self.server = ServerProcess(f"--state_dir={folder / 'state'}",
                                    "--metrics_listen=127.0.0.1:0", *flags)
        super().__init__(self.server.address, folder, mode, steps, network)

    def kill(self, whom: str) -> None:
        """Kills "server", "client" or "both", and starts them again."""
        begin, step, begins = time.monotonic(), self.step, self.begins
        if whom != "server":
            self.kill_client()
            self.figures.client_kills += 1
        if whom != "client":
            self._count_replies()
            self.server.kill()
            self.figures.kills_in_writes += has_begun_snapshot(self.folder / "state")
            self.server.restart()
            self.figures.server_kills += 1
        if whom != "server":
            self.start_client()
            wait_until(lambda: self.begins > begins or self.client.poll() is not None, PATIENCE)
            step = self.first
        self.wait_for(step + 1)
        self.figures.seconds.append(time.monotonic() - begin)

    def finish(self) -> dict[str, np.ndarray]:
        final = super().finish()
        self._count_replies()
        self.server.kill()
        return final

    def _count_replies(self) -> None:
        """Requires: the server is killed next."""
        self.figures.stored_replies += int(self.server.metric("convgrad_session_repeats_total"))


def kill_at_random(training: KilledTraining, steps: int, kills: int, seed: int,
                   whom: tuple[str, ...] = ("server", "client", "both"),
                   seconds: float = float("inf")) -> None:
    """Kills at `kills` moments between the steps' begin and end. Each of `whom` is killed.
    Ends after `seconds`."""
    rng = random.Random(seed)
    at = sorted(rng.randrange(1, steps - 1) for _ in range(kills))
    end = time.monotonic() + seconds
    for i, step in enumerate(at):
        training.wait_for(step)
        time.sleep(rng.uniform(0, 0.03))
        if training.client.poll() is None and time.monotonic() < end:
            training.kill(whom[i % len(whom)])
