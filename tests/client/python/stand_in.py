"""Provides servers that behave in ways in which a convgrad-server can't."""

from __future__ import annotations

import concurrent.futures
import contextlib
import socket
import threading

import grpc


@contextlib.contextmanager
def grpc_server(answer=None, credentials=None, address="127.0.0.1:0"):
    """Answers every method with `answer(request_bytes, context)`; None: has no methods.
    `answer` may also be a handler of gRPC."""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            if answer is None:
                return None
            return grpc.unary_unary_rpc_method_handler(answer)

    handler = answer if isinstance(answer, grpc.GenericRpcHandler) else Handler()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), [handler])
    port = (server.add_insecure_port(address) if credentials is None
            else server.add_secure_port(address, credentials))
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def tcp_server(answer):
    """Accepts connections and sends the bytes `answer`, if any, on each."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections = []

    def accept():
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                connections.append(connection)
                if answer:
                    connection.sendall(answer)
                    connection.close()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in connections:
            connection.close()
