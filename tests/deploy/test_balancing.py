"""Kills one of two replicas under load: no call fails at a client that repeats UNAVAILABLE
calls."""
import collections
import contextlib
import threading
import urllib.request

import pytest

import deployed

grpc = pytest.importorskip("grpc")
protobuf = pytest.importorskip("google.protobuf")

CALLS = 200  # by each thread of
THREADS = 4
ONE = b"\0\0\x80\x3f"  # in f32


def forward(channels=1, side=3, kernel=2, backend="auto"):
    """Returns a ConvForwardRequest whose tensors are all ones."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    files = descriptor_pb2.FileDescriptorSet.FromString(
        (deployed.ROOT / "proto/convgrad/v1/descriptors.binpb").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    request = message_factory.MessageFactory(pool).GetPrototype(
        pool.FindMessageTypeByName("convgrad.v1.ConvForwardRequest"))()
    problem = request.operation.problem
    problem.input_dims.extend([1, channels, side, side])
    problem.out_channels = channels
    problem.kernel.append(kernel)
    for index, (name, dims, layout) in enumerate((
            ("input", [1, channels, side, side], 1),
            ("weight", [channels, channels, kernel, kernel], 3))):
        tensor = getattr(request.operation.operands, name)
        tensor.dtype = 1
        tensor.layout = layout
        tensor.dims.extend(dims)
        tensor.inline.payload_index = index
        request.payloads.append(ONE * (dims[0] * dims[1] * dims[2] * dims[3]))
    request.operation.results.add().which = 1
    request.options.backend = {"auto": 1, "reference": 4}[backend]
    return request.SerializeToString()


class Load:
    """Makes calls from several threads and counts their outcomes."""

    def __init__(self, channel):
        self.call = channel.unary_unary("/convgrad.v1.ConvGrad/ConvForward")
        self.request = forward()
        self.ends = collections.Counter()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run)
                        for _ in range(THREADS)]
        for thread in self.threads:
            thread.start()

    def run(self):
        for _ in range(CALLS):
            end = self.one_call()
            with self.lock:
                self.ends[end] += 1

    def one_call(self):
        for attempt in range(100):
            try:
                # The first output element is the sum of four ones.
                return ("right" if b"\0\0\x80\x40" in self.call(
                    self.request, timeout=30) else "wrong")
            except grpc.RpcError as error:
                # gRPC's own words for a connection that closes while a call begins.
                is_closed = error.details() == "Stream removed"
                if error.code() != grpc.StatusCode.UNAVAILABLE and not is_closed:
                    return f"{error.code()} {error.details()}"
                with self.lock:
                    self.ends["repeated"] += 1
                threading.Event().wait(0.01 * attempt)
        return "UNAVAILABLE too often"

    def await_calls(self, count):
        deployed.wait_until(lambda: self.ends["right"] >= count, "calls")

    def join(self):
        for thread in self.threads:
            thread.join()
        ends = dict(self.ends)
        print("ends:", ends)
        ends.pop("repeated", None)
        assert ends == {"right": CALLS * THREADS}


def handled(server):
    """Returns the number of forwards that a server has answered with OK."""
    url = f"http://127.0.0.1:{server.metrics}/metrics"
    text = urllib.request.urlopen(url, timeout=10).read().decode()
    return sum(float(line.split()[-1]) for line in text.splitlines()
               if line.startswith("grpc_server_handled_total{")
               and 'grpc_code="OK"' in line and '"ConvForward"' in line)


def run_and_kill_one(channel, first, second):
    load = Load(channel)
    load.await_calls(CALLS)
    deployed.wait_until(lambda: handled(first) > 0 and handled(second) > 0,
                        "calls at both replicas")
    first.process.kill()
    before = handled(second)
    load.join()
    assert handled(second) > before


def test_client_side_round_robin_survives_a_killed_replica():
    with deployed.server() as first, deployed.server() as second:
        target = f"ipv4:{first.address},{second.address}"
        options = [("grpc.lb_policy_name", "round_robin")]
        with grpc.insecure_channel(target, options) as channel:
            run_and_kill_one(channel, first, second)


@contextlib.contextmanager
def both_called():
    """Yields a name of two servers; asserts that each answered calls."""
    with deployed.server() as first, deployed.server() as second:
        yield f"ipv4:{first.address},{second.address}"
        assert handled(first) > 0 and handled(second) > 0


def test_the_command_line_spreads_calls_over_a_names_addresses():
    with both_called() as name:
        deployed.convgrad(name, "bench", "conv1d_n1_c1_o1_i3_k2",
                          "--direction=forward", "--repeat=20")


def test_the_python_client_spreads_calls_over_a_names_addresses():
    convgrad = pytest.importorskip("convgrad")
    numpy = pytest.importorskip("numpy")
    ones = numpy.ones((1, 1, 3), numpy.float32)
    with both_called() as name, convgrad.Client(name) as client:
        for _ in range(20):
            client.conv_forward(ones, ones)


def test_haproxy_survives_a_killed_replica(tmp_path):
    flag = "--health_listen=127.0.0.1:0"
    with deployed.server(flag) as first, deployed.server(flag) as second, \
            deployed.haproxy((first, second), tmp_path) as proxy, \
            proxy.channel() as channel:
        run_and_kill_one(channel, first, second)
