"""One question to one node, and all that can come back."""

import socket

import pytest

from barnabas.cluster.probe import NoAnswer, ask
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests.barnabas.cluster.answering import AnsweringNode


def ask_metadata(port: int, timeout_seconds: float = 5.0) -> MetadataResponse:
    return ask(port, MetadataRequest(topics=[]), MetadataResponse, timeout_seconds)


def test_a_question_is_answered() -> None:
    answer = MetadataResponse(brokers=[MetadataResponseBroker(node_id=3, host="h", port=5)], cluster_id="c")
    with AnsweringNode({ApiKey.METADATA: lambda request: answer}) as node:
        assert ask_metadata(node.port) == answer


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NoAnswer, match="Connection refused"):
        ask_metadata(port)


def test_a_node_that_does_not_answer_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(NoAnswer, match="timed out"):
        ask_metadata(server.getsockname()[1], timeout_seconds=0.05)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "closed the connection"),
        (b"\x00\x00\x00\x10only half", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is that a Kafka node"),
        (b"\x00\x00\x00\x05\x7f\x7f\x7f\x7f\x00", "another request"),
        (b"\x00\x00\x00\x01\x00", "what is no MetadataResponse"),
    ],
)
def test_an_invalid_response_is_an_error(answer: bytes, message: str) -> None:
    with (
        AnsweringNode({ApiKey.METADATA: lambda request: answer}) as node,
        pytest.raises(NoAnswer, match=message),
    ):
        ask_metadata(node.port)
