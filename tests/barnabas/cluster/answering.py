"""A node that answers questions with what a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.headers import RequestHeader, ResponseHeader
from barnabas.protocol.schema import decode, decode_prefix, encode

Answer = Callable[[Any], Any]


class AnsweringNode:
    """Listens on a free port of this machine; answers each request by its API, raw bytes as they are."""

    def __init__(self, answers: Mapping[ApiKey, Answer]) -> None:
        self._answers = answers
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> AnsweringNode:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.sendall(self._answer(connection))

    def _answer(self, connection: socket.socket) -> bytes:
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        frame = connection.recv(size, socket.MSG_WAITALL)
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        spec = API_SPECS[ApiKey(key)]
        header, position = decode_prefix(RequestHeader, frame, 0, spec.request_header_version(version))
        answer = self._answers[ApiKey(key)](decode(spec.request_type(), frame[position:], version))
        if isinstance(answer, bytes):
            return answer
        head = encode(ResponseHeader(correlation_id=header.correlation_id), spec.response_header_version(version))
        body = head + encode(answer, version)
        return len(body).to_bytes(4, "big") + body
