"""Ten times more calls than a server can compute: what it answers, and that it
stays within its memory. Prints a table; times are reported, never asserted."""
import os
import pathlib
import threading
import time

import pytest

import deployed
import test_balancing

grpc = pytest.importorskip("grpc")

SECONDS = 10
# Small on the wire, long at work: some 30 ms on the reference backend.
CHANNELS, SIDE, KERNEL = 8, 64, 17
BUDGET = 268435456


class Caller:
    """Calls of one kind, and how each ended: (status, seconds)."""

    def __init__(self, channel):
        self.call = channel.unary_unary("/convgrad.v1.ConvGrad/ConvForward")
        self.request = test_balancing.forward(CHANNELS, SIDE, KERNEL,
                                              "reference")
        self.metadata = [("convgrad-request-bytes", str(len(self.request)))]
        self.ends = []
        self.lock = threading.Lock()

    def end(self, code, pushback, started):
        with self.lock:
            self.ends.append((code, pushback, time.monotonic() - started))

    def once(self):
        started = time.monotonic()
        self.call(self.request, timeout=60, metadata=self.metadata)
        self.end(grpc.StatusCode.OK, None, started)

    def at_rate(self, per_second):
        """Calls at that rate whatever comes back, and waits for the answers."""
        futures = []
        begin = time.monotonic()
        for number in range(int(per_second * SECONDS)):
            time.sleep(max(0, begin + number / per_second - time.monotonic()))
            started = time.monotonic()
            future = self.call.future(self.request, timeout=60,
                                      metadata=self.metadata)
            future.add_done_callback(
                lambda done, started=started: self.end(
                    done.code(), dict(done.trailing_metadata() or ()).get(
                        "grpc-retry-pushback-ms"), started))
            futures.append(future)
        for future in futures:
            future.exception()
        deployed.wait_until(lambda: len(self.ends) >= len(futures), "ends")
        return time.monotonic() - begin


def p99(seconds):
    return sorted(seconds)[int(0.99 * (len(seconds) - 1))] * 1e3


@pytest.mark.skipif(not os.environ.get("CONVGRAD_FULL"),
                    reason="half a minute of load: tests/run full")
def test_overload(capsys):
    with deployed.server("--queue_capacity=1") as server:
        with grpc.insecure_channel(server.address) as channel:
            alone = Caller(channel)
            begin = time.monotonic()
            while time.monotonic() - begin < SECONDS:
                alone.once()
            peak = len(alone.ends) / (time.monotonic() - begin)
            crowd = Caller(channel)
            elapsed = crowd.at_rate(10 * peak)
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    resident = int(status.split("VmHWM:")[1].split()[0]) * 1024
    good = [seconds for code, _, seconds in crowd.ends
            if code == grpc.StatusCode.OK]
    refused = [(code, pushback) for code, pushback, _ in crowd.ends
               if code != grpc.StatusCode.OK]
    with capsys.disabled():
        print(f"\n{'':12}{'offered/s':>12}{'served/s':>12}{'p99 ms':>10}")
        print(f"{'one caller':12}{peak:12.1f}{peak:12.1f}"
              f"{p99([s for _, _, s in alone.ends]):10.1f}")
        print(f"{'10 x':12}{10 * peak:12.1f}{len(good) / elapsed:12.1f}"
              f"{p99(good):10.1f}")
        print(f"resident {resident >> 20} MiB of {BUDGET >> 20}")
    assert good and refused
    # All may try again.
    assert {code for code, _ in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert all(pushback for _, pushback in refused)
    assert resident <= BUDGET
