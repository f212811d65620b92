"""Tests that haproxy passes all calls of honest clients, and no flood."""
import signal

import pytest

import deployed
import floods

grpc = pytest.importorskip("grpc")

BUDGET_MIB = 256  # of deployed.server
LARGE = "conv2d_n16_c64_o64_i56_k3_p1"  # 25.7 MB there, 12.9 MB back


@pytest.fixture(name="proxied")
def running_proxy(tmp_path):
    """Yields the face of a haproxy, and the server behind it."""
    with deployed.server("--health_listen=127.0.0.1:0") as server, \
            deployed.haproxy((server, server), tmp_path) as proxy:
        face = floods.Face(proxy.address, proxy.ca)
        deployed.wait_until(face.call, "an answer")
        yield face, server, proxy


def test_calls_of_any_kind_get_through(proxied):
    face, _, _ = proxied
    ca = f"--ca={face.ca}"
    deployed.convgrad(face.address, "backward", LARGE, ca)
    deployed.convgrad(face.address, "backward", LARGE, ca, "--slice_items=2")
    late = deployed.try_convgrad(face.address, "backward", LARGE, ca,
                                 "--timeout=1ms")
    assert "DEADLINE_EXCEEDED" in late.stderr
    for method in ("ConvGrad/ConvForward", "ConvGradNetworks/RunProgram"):
        with pytest.raises(grpc.RpcError) as caught:
            face.channel.unary_unary("/convgrad.v1." + method)(b"", timeout=10)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT, method
        assert "convgrad-error-bin" in dict(caught.value.trailing_metadata())


def test_a_session_stays_at_one_replica(tmp_path):
    flag = "--health_listen=127.0.0.1:0"
    sixteen_bytes = b"\x0a\x10" + bytes(16)  # as field 1 of a message
    with deployed.server(flag) as first, deployed.server(flag) as second, \
            deployed.haproxy((first, second), tmp_path) as proxy:
        face = floods.Face(proxy.address, proxy.ca)
        deployed.wait_until(face.call, "an answer")
        service = "/convgrad.v1.ConvGradSessions/"
        reply = face.channel.unary_unary(service + "OpenSession")(
            sixteen_bytes, timeout=10)
        for _ in range(20):
            with proxy.channel() as channel:
                channel.unary_unary(service + "RenewSession")(
                    reply[:len(sixteen_bytes)], timeout=10)


def test_strangers_get_no_administration(proxied):
    face, _, _ = proxied
    with pytest.raises(grpc.RpcError) as caught:
        face.channel.unary_unary("/convgrad.v1.ConvGradAdmin/Warmup")(
            b"", timeout=10)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert caught.value.details() == "not served here"


def test_floods_cost_the_server_and_honest_clients_nothing(proxied):
    face, server, proxy = proxied
    processes = [server.process.pid, proxy.process.pid]
    for host, (name, flood) in enumerate(floods.FLOODS.items(), start=2):
        cost = floods.measure(flood, face, processes, f"127.0.0.{host}",
                              seconds=2)
        print(f"| {name} | {cost.row()} |")
        assert cost.failed == 0, name
        assert cost.peak[0] <= 1.1 * BUDGET_MIB, name
        assert cost.peak[1] <= 100, name
    deployed.convgrad(face.address, "backward", LARGE, f"--ca={face.ca}")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=60) == 0
