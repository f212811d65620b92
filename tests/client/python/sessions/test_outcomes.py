"""Tests that the answer to an attempt decides the state of its change."""

from contextlib import nullcontext

import grpc
import numpy as np
import pytest
from durable_stand_in import DurableStandIn, Refusal, served

import convgrad
from convgrad.requests import Call
from convgrad.sessions.attempts import Change
from convgrad.sessions.outcomes import Outcome, outcome_of
from convgrad.v1 import error_pb2

CODES = grpc.StatusCode


class Answer:
    """A failed gRPC call, with only the methods that outcome_of() calls."""

    def __init__(self, code, reason="", number=None, field=""):
        self._code = code
        detail = error_pb2.ErrorDetail(reason=reason, field=field) if reason else None
        self._trailers = [("convgrad-error-bin", detail.SerializeToString())] if detail else []
        if number is not None:
            self._trailers.append(("convgrad-session-number", str(number)))

    def code(self):
        return self._code

    def details(self):
        return "why"

    def trailing_metadata(self):
        return self._trailers


@pytest.mark.parametrize(("answer", "is_void", "expected"), [
    (Answer(CODES.NOT_FOUND, "NOT_FOUND", field="session"), False, Outcome.SESSION_ENDED),
    (Answer(CODES.ABORTED, "TAKEN_OVER"), False, Outcome.SESSION_ENDED),
    (Answer(CODES.ABORTED, "EPOCH_ENDED", 3), False, Outcome.EPOCH_ENDED),
    (Answer(CODES.INVALID_ARGUMENT, "SHAPE_MISMATCH", 6), False, Outcome.REFUSED),
    (Answer(CODES.CANCELLED, "", 6), False, Outcome.UNKNOWN),
    (Answer(CODES.CANCELLED, "", "9" * 5000), False, Outcome.UNKNOWN),
    (Answer(CODES.CANCELLED, "", "\u00b2"), False, Outcome.UNKNOWN),
    (Answer(CODES.UNAVAILABLE), False, Outcome.UNKNOWN),
    (Answer(CODES.UNAUTHENTICATED, "FORBIDDEN"), False, Outcome.FAILED_BEFORE),
    (Answer(CODES.ABORTED, "OUT_OF_ORDER", 5), False, Outcome.UNKNOWN),
    (Answer(CODES.FAILED_PRECONDITION, "OUT_OF_ORDER", 9, "convgrad-session-sequence"), False,
     Outcome.SESSION_ENDED),
    (Answer(CODES.FAILED_PRECONDITION, "OUT_OF_ORDER", 6, "parameters.w"), False,
     Outcome.REFUSED),
    (Answer(CODES.FAILED_PRECONDITION, "OUT_OF_ORDER", 7), True, Outcome.COMMITTED),
    (Answer(CODES.DATA_LOSS), False, Outcome.COMMITTED),
    (Answer(CODES.FAILED_PRECONDITION, "OUT_OF_ORDER", 6), True, Outcome.UNKNOWN),
])
def test_an_answer_decides(answer, is_void, expected):
    change = Change(Call("Service/Method", b"", lambda _: None), 7, None, None)
    change.is_void = is_void
    error, outcome = outcome_of(change, answer)
    assert (outcome, error.code) == (expected, answer.code())


class Forgetful(DurableStandIn):
    """Has committed its second change, and no longer has the reply."""

    def reply(self, method, sequence):
        if sequence == 2:
            raise Refusal(CODES.DATA_LOSS, "NOT_FOUND")
        return super().reply(method, sequence)


def test_a_change_whose_reply_is_lost_is_committed():
    server = Forgetful()
    with served(server) as address, convgrad.Client(address, timeout=20) as client, \
            client.session(durable=True) as session:
        for name in "xyz":
            with pytest.raises(convgrad.ReplyLost) if name == "y" else nullcontext():
                session.put(name, np.arange(3))
        assert session.number == len(server.history) == 3
