"""Sends ten times more calls than a server can compute. Tests its answers, and that it stays
within its memory. Prints a table; times are reported, never asserted."""
import os
import pathlib
import threading
import time

import pytest

import deployed
import test_balancing

grpc = pytest.importorskip("grpc")

SECONDS = 8
# A small message with much work: about 30 ms on the reference backend.
CHANNELS, SIDE, KERNEL = 8, 64, 17
BUDGET = 268435456


class Calls:
    """Makes calls of one kind, and records the outcome of each: (status, pushback, seconds)."""

    def __init__(self, channel):
        self.call = channel.unary_unary("/convgrad.v1.ConvGrad/ConvForward")
        self.request = test_balancing.forward(CHANNELS, SIDE, KERNEL,
                                              "reference")
        self.metadata = [("convgrad-request-bytes", str(len(self.request)))]
        self.ends = []
        self.lock = threading.Lock()
        self.elapsed = 0

    def end(self, call, started):
        pushback = dict(call.trailing_metadata() or ()).get(
            "grpc-retry-pushback-ms")
        with self.lock:
            self.ends.append((call.code(), pushback,
                              time.monotonic() - started))

    def start(self, timeout):
        started = time.monotonic()
        future = self.call.future(self.request, timeout=timeout,
                                  metadata=self.metadata)
        future.add_done_callback(lambda done: self.end(done, started))
        return future

    def closed_loop(self, callers):
        """Makes calls with several callers, which each wait for the answer before the next
        call."""
        begin = time.monotonic()

        def work():
            while time.monotonic() - begin < SECONDS:
                self.start(60).result()

        threads = [threading.Thread(target=work) for _ in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.elapsed = time.monotonic() - begin
        return self

    def open_loop(self, per_second, timeout):
        """Makes calls at this rate regardless of the answers; then waits for the answers."""
        futures = []
        begin = time.monotonic()
        for number in range(int(per_second * SECONDS)):
            time.sleep(max(0, begin + number / per_second - time.monotonic()))
            futures.append(self.start(timeout))
        self.elapsed = time.monotonic() - begin
        deployed.wait_until(lambda: len(self.ends) >= len(futures), "ends")
        return self

    def seconds(self, code):
        return [seconds for end, _, seconds in self.ends if end == code]

    def rate(self):
        return len(self.seconds(grpc.StatusCode.OK)) / self.elapsed

    def p99(self):
        seconds = sorted(self.seconds(grpc.StatusCode.OK))
        return seconds[int(0.99 * (len(seconds) - 1))]


def row(name, offered, calls):
    late = len(calls.seconds(grpc.StatusCode.DEADLINE_EXCEEDED))
    return (f"{name:24}{offered:10.1f}{calls.rate():10.1f}"
            f"{late / calls.elapsed:10.1f}{calls.p99() * 1e3:10.1f}")


@pytest.mark.skipif(not os.environ.get("CONVGRAD_FULL"),
                    reason="half a minute of load: tests/run full")
def test_overload(capsys):
    with deployed.server() as server:
        with grpc.insecure_channel(server.address) as channel:
            Calls(channel).start(60).result()
            alone = Calls(channel).closed_loop(1)
            loops = {callers: Calls(channel).closed_loop(callers)
                     for callers in (2, 4)}
            best = max(loops, key=lambda callers: loops[callers].rate())
            peak = loops[best].rate()
            crowd = Calls(channel).open_loop(10 * peak, 3 * alone.p99())
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    resident = int(status.split("VmHWM:")[1].split()[0]) * 1024
    with capsys.disabled():
        print(f"\n{'':24}{'offered/s':>10}{'served/s':>10}{'late/s':>10}"
              f"{'p99 ms':>10}")
        print(row("one caller", alone.rate(), alone))
        print(row(f"{best} callers, the peak", peak, loops[best]))
        print(row("10 x the peak", 10 * peak, crowd))
        print(f"served {crowd.rate() / peak:.2f} of the peak, p99 "
              f"{crowd.p99() / alone.p99():.2f} of one caller's; resident "
              f"{resident >> 20} MiB of {BUDGET >> 20}")
    refused = [(code, pushback) for code, pushback, _ in crowd.ends
               if code not in (grpc.StatusCode.OK,
                               grpc.StatusCode.DEADLINE_EXCEEDED)]
    assert refused and crowd.rate() > 0
    # All refused calls may be repeated.
    assert {code for code, _ in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert all(pushback for _, pushback in refused)
    assert resident <= BUDGET
