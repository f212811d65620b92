"""A server of durable sessions that a test restarts between two calls, at will."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time

import grpc

from convgrad.v1 import error_pb2, network_pb2, session_pb2

CODES = grpc.StatusCode
WINDOW = 64


class Refusal(Exception):
    def __init__(self, code, reason, field="convgrad-session-epoch", pushback_ms=None):
        super().__init__(reason)
        self.code, self.reason, self.field = code, reason, field
        self.pushback_ms = pushback_ms


def names_nothing(request):
    """Returns whether it is the change by which a client voids another."""
    return list(session_pb2.DropTensorsRequest.FromString(request).names) == [""]


@contextlib.contextmanager
def served(handler):
    """Serves a DurableStandIn, and yields its address."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(80), [handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(None).wait()


class DurableStandIn(grpc.GenericRpcHandler):
    """Holds one durable session. Its state is the list of changes that it has committed.

    A put of the tensor "bad" is refused. A run with a tape is a change whose state can't be
    saved until DropPrograms.
    """

    def __init__(self):
        self.lock = threading.Condition()
        self.epoch, self.number, self.first_epoch, self.is_restored = 1, 0, 1, False
        self.resumed_by = b""
        self.has_rival = False  # which resumes the session just before its client
        self.lost_resumes = 0  # whose answers are lost
        self.history: list[bytes] = []
        self.replies: dict[int, bytes] = {}  # call ids by number
        self.disk = (0, {})
        self.tapes: set[str] = set()
        self.is_closed = False
        self.is_damaged = False
        self.is_busy = False
        self.is_busy_saving = 0  # how often it will be
        self.refused = b"bad"
        self.trainer_state = b""
        self.calls: list[tuple[str, int]] = []
        self.saves = 0
        self.cant_save: grpc.StatusCode | None = None
        self.may_save = threading.Event()
        self.may_save.set()
        self.unanswered = 0  # a change whose answers wait for a restart, which loses them
        self.late = 0  # a change whose answer waits for may_answer
        self.may_answer = threading.Event()
        self.unreached = 0  # a change whose attempts end without an outcome, but for voids
        self.refused_for_now = 0  # a change that the server may take later
        self.seconds_of_change = 0.0

    # What a test does to it.

    def save(self):
        with self.lock:
            if not self.tapes:
                self.disk = self.number, dict(self.replies)

    def restart(self):
        """Forgets what isn't on disk, as after SIGKILL."""
        with self.lock:
            self.number, self.replies = self.disk[0], dict(self.disk[1])
            self.history = self.history[:self.number]
            self.tapes.clear()
            self.unanswered = 0
            self.epoch += 1000
            self.is_restored = True
            self.lock.notify_all()

    # What gRPC calls.

    def service(self, details):
        method = details.method.rpartition("/")[2]

        def answer(request, context):
            metadata = dict(context.invocation_metadata())
            trailers = [("convgrad-durable-number", str(self.disk[0]))]
            try:
                message = self.answer(method, request, metadata).SerializeToString()
                if metadata.get("convgrad-session-sequence") == str(self.late):
                    self.may_answer.wait(20)
                context.set_trailing_metadata(trailers)
                return message
            except Refusal as refusal:
                detail = error_pb2.ErrorDetail(reason=refusal.reason, field=refusal.field)
                if refusal.pushback_ms is not None:
                    trailers.append(("grpc-retry-pushback-ms", str(refusal.pushback_ms)))
                context.set_trailing_metadata([
                    *trailers, ("convgrad-error-bin", detail.SerializeToString()),
                    ("convgrad-session-number", str(self.number))])
                context.abort(refusal.code, refusal.reason)

        return grpc.unary_unary_rpc_method_handler(answer)

    def answer(self, method, request, metadata):
        if self.is_busy:
            raise Refusal(CODES.RESOURCE_EXHAUSTED, "BUSY", "client", pushback_ms=100)
        if self.is_damaged:
            raise Refusal(CODES.DATA_LOSS, "MALFORMED", "snapshot")
        if method in ("OpenSession", "ResumeSession", "RenewSession"):
            return self.session(method, request)
        if method == "CloseSession":
            self.check_holder(session_pb2.CloseSessionRequest.FromString(request).epoch)
            self.is_closed = True
            return session_pb2.CloseSessionResponse()
        if method == "SaveState":
            return self.save_state(int(metadata.get("convgrad-session-after", 0)))
        if method == "ListTensors":
            return self.read(int(metadata["convgrad-session-after"]))
        return self.change(method, request, metadata)

    def check_holder(self, epoch, call_id=b""):
        if 0 < epoch < self.first_epoch and not (call_id and call_id == self.resumed_by):
            raise Refusal(CODES.FAILED_PRECONDITION, "TAKEN_OVER")

    def session(self, method, request):
        with self.lock:
            if method == "ResumeSession":
                if self.has_rival:
                    self.first_epoch, self.resumed_by = self.epoch, b""
                resume = session_pb2.ResumeSessionRequest.FromString(request)
                self.check_holder(resume.epoch, resume.call_id)
                self.epoch += 1
                self.resumed_by = resume.call_id
                self.first_epoch, self.is_restored = self.epoch, False
                self.lost_resumes -= 1
                if self.lost_resumes >= 0:
                    raise Refusal(CODES.UNAVAILABLE, "")
            return session_pb2.SessionResponse(
                session_id=b"i" * 16, number=self.number, epoch=self.epoch, lease_seconds=600,
                window=WINDOW, durable=True, durable_number=self.disk[0],
                trainer_state=self.trainer_state)

    def save_state(self, after):
        self.may_save.wait(10)
        self.saves += 1
        if self.is_busy_saving > 0:
            self.is_busy_saving -= 1
            raise Refusal(CODES.RESOURCE_EXHAUSTED, "BUSY", "client", pushback_ms=20)
        if self.cant_save is not None:
            raise Refusal(self.cant_save, "INTERNAL", "state_dir")
        with self.lock:
            self.await_change(after)
            self.save()
            return session_pb2.SaveStateResponse(number=self.disk[0])

    def read(self, after):
        with self.lock:
            self.await_change(after)
            return session_pb2.ListTensorsResponse(number=self.number)

    def await_change(self, after):
        """Blocks until a read may see the session. Requires: the lock is held."""
        if self.is_restored and after > self.number:
            raise Refusal(CODES.FAILED_PRECONDITION, "RESTORED")
        if after > self.number + WINDOW:
            raise Refusal(CODES.FAILED_PRECONDITION, "OUT_OF_ORDER")
        if not self.lock.wait_for(lambda: self.number >= after, 1):
            raise Refusal(CODES.ABORTED, "OUT_OF_ORDER")

    def change(self, method, request, metadata):
        epoch = int(metadata["convgrad-session-epoch"])
        sequence = int(metadata["convgrad-session-sequence"])
        call_id = metadata["convgrad-call-id-bin"]
        time.sleep(self.seconds_of_change)
        with self.lock:
            self.calls.append((method, sequence))
            if sequence == self.unreached and method != "DropTensors":
                raise Refusal(CODES.DEADLINE_EXCEEDED, "")
            if not self.lock.wait_for(lambda: sequence <= self.number + 1
                                      or epoch != self.epoch, 1):
                raise Refusal(CODES.ABORTED, "OUT_OF_ORDER")
            if sequence <= self.number:
                self.hold(sequence, epoch)
            if sequence <= self.number and self.replies.get(sequence) == call_id:
                return self.reply(method, sequence)
            self.check_holder(epoch)
            if epoch < self.epoch and self.is_restored:
                raise Refusal(CODES.FAILED_PRECONDITION, "RESTORED")
            if epoch < self.epoch:
                raise Refusal(CODES.ABORTED, "EPOCH_ENDED")
            if sequence <= self.number:
                raise Refusal(CODES.FAILED_PRECONDITION, "OUT_OF_ORDER")
            self.commit(method, request, sequence, call_id)
            self.hold(sequence, epoch)
            return self.reply(method, sequence)

    def commit(self, method, request, sequence, call_id):
        if method == "DropTensors" and names_nothing(request) or self.refused in request:
            self.epoch += 1
            self.lock.notify_all()
            raise Refusal(CODES.INVALID_ARGUMENT, "MALFORMED", "tensors[0].name")
        if sequence == self.refused_for_now:
            self.epoch += 1
            self.lock.notify_all()
            raise Refusal(CODES.UNAVAILABLE, "BUSY")
        if method == "RunProgram":
            self.tapes.add(network_pb2.RunProgramRequest.FromString(request).tape)
        if method == "DropPrograms":
            self.tapes.difference_update(
                network_pb2.DropProgramsRequest.FromString(request).tapes)
        self.number = sequence
        self.history.append(request)
        self.replies[sequence] = call_id
        self.lock.notify_all()

    def hold(self, sequence, epoch):
        if sequence == self.unanswered and self.lock.wait_for(lambda: epoch != self.epoch, 10):
            raise Refusal(CODES.FAILED_PRECONDITION, "RESTORED")

    def reply(self, method, sequence):
        if method == "PutTensors":
            return session_pb2.PutTensorsResponse(version=sequence)
        return {"RunProgram": network_pb2.RunProgramResponse,
                "DropPrograms": network_pb2.DropProgramsResponse,
                "DropTensors": session_pb2.DropTensorsResponse}[method]()
