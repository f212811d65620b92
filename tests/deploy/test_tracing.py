"""Tests the spans that a collector gets, and the trace's id in the log."""
import contextlib
import re
import socket
import subprocess
import threading

import numpy as np
import pytest

import deployed
import floods
import test_balancing

grpc = pytest.importorskip("grpc")
otlp_receiver = pytest.importorskip("otlp_receiver")

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
NOT_SAMPLED = f"00-{TRACE}-{PARENT}-00"
STAGES = ["admission", "receive", "decode", "queue", "plan", "reorder",
          "compute", "encode"]
PROBLEM = "conv2d_n4_c4_o4_i8_k3_p1"


class Traced:
    """A server that sends its spans to a collector, and the lines of its log."""

    def __init__(self, server, collector):
        self.server = server
        self.address = server.address
        self.collector = collector
        self.lines = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        self.lines.extend(self.server.process.stdout)

    def stop(self):
        """Drains the server, which then sends its last spans and lines."""
        self.server.process.terminate()
        assert self.server.process.wait(60) == 0
        self.reader.join()

    def calls(self):
        return [line for line in self.lines if " call method=" in line]


@contextlib.contextmanager
def traced(*flags, **collector_options):
    with otlp_receiver.receiver(**collector_options) as collector:
        with deployed.server(f"--otlp_endpoint=http://{collector.address}",
                             "--log_level=debug", *flags) as server:
            tracing = Traced(server, collector)
            try:
                yield tracing
            finally:
                server.process.kill()
                tracing.reader.join()


def raw_forward(address, metadata=(), request=None):
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary("/convgrad.v1.ConvGrad/ConvForward")
        return call(request or test_balancing.forward(), timeout=30,
                    metadata=metadata)


def by_name(spans):
    return {span.name: span for span in spans}


def check_one_call(spans, name):
    """Asserts a span for the call, and a child span within it for each stage."""
    assert sorted(span.name for span in spans) == sorted([name, *STAGES])
    call = by_name(spans)[name]
    for stage in STAGES:
        span = by_name(spans)[stage]
        assert span.trace_id == call.trace_id, stage
        assert span.parent_span_id == call.span_id, stage
        assert call.start_time_unix_nano <= span.start_time_unix_nano, stage
        assert span.start_time_unix_nano <= span.end_time_unix_nano, stage
        assert span.end_time_unix_nano <= call.end_time_unix_nano, stage
    return call


def test_a_call_is_a_span_below_its_callers():
    with traced() as server:
        raw_forward(server.address, [("traceparent", SAMPLED)])
        server.stop()
    call = check_one_call(server.collector.spans(),
                          "convgrad.v1.ConvGrad/ConvForward")
    assert call.trace_id.hex() == TRACE
    assert call.parent_span_id.hex() == PARENT
    attributes = otlp_receiver.attributes_of(call)
    assert attributes["rpc.system"] == "grpc"
    assert attributes["rpc.grpc.status_code"] == 0
    assert attributes["convgrad.backend"] == "onednn"
    assert server.collector.resources()[0]["service.name"] == "convgrad"
    assert len(server.calls()) == 1
    assert f" trace={TRACE} " in server.calls()[0]


def test_a_networks_span_has_an_event_for_each_kind_of_step():
    convgrad = pytest.importorskip("convgrad")
    program = convgrad.Program()
    x = program.step("conv", program.input("x"), program.parameter("w", (2, 2, 1, 1)))
    program.output(program.step("max_pool", x, attributes={"kernel_size": 2}))
    with traced() as server:
        with convgrad.Client(server.address) as client, client.session() as session:
            session.put("w", np.ones((2, 2, 1, 1), np.float32))
            session.load_program("net", program)
            session.run("net", {"x": np.ones((1, 2, 4, 4), np.float32)})
        server.stop()
    span = by_name(server.collector.spans())["convgrad.v1.ConvGradNetworks/RunProgram"]
    assert {"conv forward", "pooling forward"} <= {event.name for event in span.events}
    for event in span.events:
        assert otlp_receiver.attributes_of(event)["convgrad.busy_seconds"] >= 0
        assert span.start_time_unix_nano <= event.time_unix_nano <= span.end_time_unix_nano


def test_a_call_without_a_caller_begins_a_trace():
    with traced() as server:
        raw_forward(server.address, [("traceparent", "00-not a trace-01")])
        server.stop()
    call = check_one_call(server.collector.spans(),
                          "convgrad.v1.ConvGrad/ConvForward")
    assert call.parent_span_id == b""
    assert f" trace={call.trace_id.hex()} " in server.calls()[0]


def test_a_caller_that_keeps_no_spans_gets_none():
    with traced() as server:
        raw_forward(server.address, [("traceparent", NOT_SAMPLED)])
        server.stop()
    assert server.collector.spans() == []
    assert f" trace={TRACE} " in server.calls()[0]


def test_a_stream_is_one_span_of_each_stage():
    with traced() as server:
        deployed.convgrad(server.address, "backward", PROBLEM, "--nocheck",
                          "--slice_items=1", f"--traceparent={SAMPLED}")
        server.stop()
    call = check_one_call(server.collector.spans(),
                          "convgrad.v1.ConvGrad/ConvBackwardStream")
    assert call.trace_id.hex() == TRACE


def test_the_python_client_passes_its_callers_on():
    convgrad = pytest.importorskip("convgrad")
    numpy = pytest.importorskip("numpy")
    ones = numpy.ones((2, 1, 3, 3), numpy.float32)
    with traced() as server:
        with convgrad.Client(server.address) as client:
            client.conv_forward(ones, ones[:1], traceparent=SAMPLED)
            client.conv_forward(ones, ones[:1], traceparent=SAMPLED,
                                slice_items=1)
        server.stop()
    calls = by_name(server.collector.spans())
    for method in ("ConvForward", "ConvForwardStream"):
        call = calls[f"convgrad.v1.ConvGrad/{method}"]
        assert call.trace_id.hex() == TRACE
        assert call.parent_span_id.hex() == PARENT


def test_the_command_line_passes_its_callers_on():
    with traced() as server:
        deployed.convgrad(server.address, "backward", PROBLEM, "--nocheck",
                          f"--traceparent={SAMPLED}")
        server.stop()
    call = check_one_call(server.collector.spans(),
                          "convgrad.v1.ConvGrad/ConvBackward")
    assert call.parent_span_id.hex() == PARENT


@pytest.mark.parametrize("flags", [(), ("--slice_items=1",)])
def test_the_command_line_refuses_what_no_header_can_be(flags):
    done = subprocess.run(
        [deployed.CLIENT, "backward", PROBLEM, "--traceparent=a\nb", *flags],
        capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--traceparent: found" in done.stderr


def test_a_call_that_computes_nothing_is_one_span():
    with traced() as server:
        deployed.convgrad(server.address, "capabilities")
        server.stop()
    span, = server.collector.spans()
    assert span.name == "convgrad.v1.ConvGrad/GetCapabilities"
    assert f" trace={span.trace_id.hex()} " in server.calls()[0]


def test_a_failure_has_its_status_and_cause():
    with traced() as server:
        with pytest.raises(grpc.RpcError):
            raw_forward(server.address, [("traceparent", SAMPLED)], b"\xff")
        server.stop()
    spans = by_name(server.collector.spans())
    call = spans.pop("convgrad.v1.ConvGrad/ConvForward")
    attributes = otlp_receiver.attributes_of(call)
    assert attributes["rpc.grpc.status_code"] == 3
    assert attributes["convgrad.reason"] == "MALFORMED"
    assert set(spans) == {"admission", "receive", "decode"}
    assert re.search(f' trace={TRACE} code=INVALID_ARGUMENT .* cause="',
                     server.calls()[0])


def test_a_collector_that_is_away_costs_no_call_and_no_exit():
    flags = [f"--otlp_endpoint=http://127.0.0.1:{deployed.free_port()}"]
    with deployed.server(*flags) as server:
        raw_forward(server.address)
        server.process.terminate()
        assert server.process.wait(60) == 0


def test_a_collector_that_refuses_costs_a_warning_a_second():
    with traced(refuses=True) as server:
        with grpc.insecure_channel(server.address) as channel:
            call = channel.unary_unary("/convgrad.v1.ConvGrad/GetCapabilities")
            for _ in range(1000):
                call(b"", timeout=30)
        server.stop()
    warnings = [line for line in server.lines if "[warning] tracing: " in line]
    # The log's time is that of the line, a moment after the decision to write it.
    seconds = {line.split(".")[0] for line in warnings}
    assert 1 <= len(warnings) <= len(seconds) + 1


def test_a_path_that_is_no_text_costs_no_span():
    """A collector refuses a whole batch because of one string that isn't UTF-8."""
    with traced() as server:
        host, port = server.address.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as client:
            client.sendall(
                floods.PREFACE + floods.frame(floods.SETTINGS, 0, 0) +
                floods.frame(floods.HEADERS, floods.END_HEADERS | floods.END_STREAM, 1,
                             floods.request(b"/\xff/call")))
            deployed.wait_until(server.calls, "the end of the call")
        raw_forward(server.address)
        server.stop()
    spans = by_name(server.collector.spans())
    assert "found /\\xff/call" in spans["unknown/unknown"].status.message
    assert "convgrad.v1.ConvGrad/ConvForward" in spans


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4317", "http://nowhere"])
def test_an_endpoint_that_is_none_is_refused(endpoint):
    done = subprocess.run([deployed.SERVER, f"--otlp_endpoint={endpoint}"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"--otlp_endpoint: found '{endpoint}'" in done.stdout + done.stderr
