"""Provides a minimal collector of spans."""
import concurrent.futures
import contextlib
import threading

import grpc
from opentelemetry.proto.collector.trace.v1 import (trace_service_pb2,
                                                    trace_service_pb2_grpc)


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Stores the received spans, or refuses them."""

    def __init__(self, refuses=False):
        self.address = None
        self._refuses = refuses
        self._lock = threading.Lock()
        self._spans = []
        self._resources = []

    def Export(self, request, context):
        if self._refuses:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "refused")
        with self._lock:
            for resource in request.resource_spans:
                self._resources.append(attributes_of(resource.resource))
                for scope in resource.scope_spans:
                    self._spans.extend(scope.spans)
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self):
        with self._lock:
            return list(self._spans)

    def resources(self):
        with self._lock:
            return list(self._resources)


def attributes_of(message):
    """Returns a span's or a resource's attributes as a dict."""
    return {item.key: getattr(item.value, item.value.WhichOneof("value"))
            for item in message.attributes}


@contextlib.contextmanager
def receiver(**options):
    """Runs a receiver on its own port."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    collector = Receiver(**options)
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
