"""Asks Apache Kafka every row of the authorization matrix, and keeps its answers for `tests/broker/authorization`.

    python -m tests.compat.authorization_matrix LIBS [--port 22500]

LIBS is a directory with Kafka's jars. One node with StandardAuthorizer; each case is a user of its own (SASL PLAIN).
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import time
from collections.abc import Generator
from itertools import count
from pathlib import Path
from typing import Any

from barnabas.cluster.probe import NoAnswer
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.headers import RequestHeader, ResponseHeader
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.schema import Message, decode, decode_prefix, encode
from tests.broker.authorization.rows import CLOSED, Ids, cases, rights_in, seen
from tests.broker.authorization.state import SETTINGS, Asking, grants, preparing
from tests.compat.apache import ApacheKafka

ANSWERS = Path(__file__).parents[1] / "broker" / "authorization" / "kafka.json"
PASSWORD = "secret"
PAUSE_SECONDS = 0.1


class Link:
    """A connection of one user."""

    def __init__(self, port: int, user: str | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._numbers = count(1)
        if user is not None:
            self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            token = f"\0{user}\0{PASSWORD}".encode()
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            assert answer.error_code == 0, answer

    def ask(self, request: Message, version: int) -> Any:
        """Raises NoAnswer if the connection is closed instead."""
        spec, number = API_SPECS[ApiKey(request.API_KEY)], next(self._numbers)
        header = RequestHeader(
            request_api_key=int(spec.key), request_api_version=version, correlation_id=number, client_id="matrix"
        )
        message = encode(header, spec.request_header_version(version)) + encode(request, version)
        self._socket.sendall(len(message).to_bytes(4, "big") + message)
        answer = self._receive(int.from_bytes(self._receive(4), "big"))
        _, position = decode_prefix(ResponseHeader, answer, 0, spec.response_header_version(version))
        return decode(spec.response_type(), answer[position:], version)

    def _receive(self, size: int) -> memoryview:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(size - len(received))
            if not piece:
                raise NoAnswer("the node closed the connection")
            received += piece
        return memoryview(received)

    def close(self) -> None:
        self._socket.close()


def run(link: Link, asking: Generator[tuple[Message, int], Any, Any] | Asking) -> Any:
    """Send what `asking` yields, slowly, because it may repeat a request until a condition holds."""
    answer = None
    while True:
        try:
            request, version = asking.send(answer)
        except StopIteration as end:
            return end.value
        answer = link.ask(request, version)
        time.sleep(PAUSE_SECONDS)


def granted(link: Link) -> None:
    """Create all access control lists. Returns when the node decides by them."""
    wanted = sum(len(rights_in(case)) for _, _, case in cases())
    for request in grants():
        answer = link.ask(request, 3)
        assert not any(it.error_code for it in answer.results), answer
    every = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    while sum(len(it.acls) for it in link.ask(every, 3).resources) < wanted:
        time.sleep(PAUSE_SECONDS)


def settings(port: int) -> dict[str, str]:
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in ["admin", *(user for user, _, _ in cases())])
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    listeners = f"SASL_PLAINTEXT://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{port + 1}"
    return {
        **SETTINGS,
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{port + 2}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{login} required {users};",
    }


def answers_of(port: int, ids: Ids) -> dict[str, dict[str, Any]]:
    """By row and case."""
    found: dict[str, dict[str, Any]] = {}
    for user, row, case in cases():
        link = Link(port, user)
        try:
            if row.before is not None:
                link.ask(row.before.request(ids), row.before.version)
            answer = seen(link.ask(row.request(ids), row.version), ids)
        except NoAnswer:
            answer = CLOSED
        link.close()
        found.setdefault(row.name, {})[case] = answer
    return found


def written(answers: dict[str, dict[str, Any]]) -> str:
    """JSON: for each row a list of [cases, answer], a line each."""
    rows = []
    for name, by_case in answers.items():
        texts: dict[str, list[str]] = {}
        for case, answer in by_case.items():
            texts.setdefault(json.dumps(answer, sort_keys=True), []).append(case)
        lines = ",\n".join(f"  [{json.dumps(cases)}, {answer}]" for answer, cases in texts.items())
        rows.append(f"{json.dumps(name)}: [\n{lines}\n]")
    return "{\n" + ",\n".join(rows) + "\n}\n"


def ask_kafka(libs: Path, port: int, data: Path) -> dict[str, dict[str, Any]]:
    """The answers of a new node on `port` and the two after it, by row and case."""
    node = ApacheKafka(libs, data, (port + 1, port + 2), settings(port))
    node.start()
    try:
        admin = Link(port + 1)
        ids: Ids = run(admin, preparing())
        granted(admin)
        return answers_of(port, ids)
    finally:
        node.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("libs", type=Path)
    parser.add_argument("--port", type=int, default=22500)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        answers = ask_kafka(arguments.libs, arguments.port, Path(data) / "node")
    ANSWERS.write_text(written(answers))
    sys.stdout.write(f"{sum(map(len, answers.values()))} answers in {ANSWERS}\n")


if __name__ == "__main__":
    main()
