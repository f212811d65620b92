"""Asks the server what an upload needn't, or can't, send in one message."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from convgrad import operations
from convgrad.caller import Caller
from convgrad.requests import MAX_PAYLOAD_BYTES, session_call
from convgrad.v1 import session_pb2

# Every server's messages hold this much, so the client needn't ask.
_UNASKED_BYTES = 64 << 10


class Uploads:
    """Answers of one server. Thread-safe."""

    def __init__(self, client: Caller, target: str) -> None:
        self._client = client
        self._target = target
        self._max_message_bytes: int | None = None

    def known(self, digests: Iterable[bytes], timeout: float | None) -> frozenset[bytes]:
        """Returns the digests whose bytes the server has."""
        asked = list(dict.fromkeys(digests))
        if not asked:
            return frozenset()
        request = session_pb2.HaveTensorsRequest(digests=asked)
        answer = self._client.run(session_call(
            "HaveTensors", request, session_pb2.HaveTensorsResponse.FromString, timeout,
            target=self._target))
        return frozenset(digest for digest, have in zip(asked, answer.have) if have)

    def message_limit(self, size: int, timeout: float | None) -> int:
        """Returns how many bytes a request of `size` may have in one message."""
        if size <= _UNASKED_BYTES:
            return _UNASKED_BYTES + size
        if self._max_message_bytes is None:
            answer = self._client.run(replace(
                operations.capabilities(timeout=timeout), target=self._target))
            self._max_message_bytes = answer.limits.max_message_bytes
        return min(self._max_message_bytes, MAX_PAYLOAD_BYTES)
