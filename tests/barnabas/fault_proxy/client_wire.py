"""One connection of a client through the proxy's core, with a clock, and a broker whose answers a test writes."""

from __future__ import annotations

import random
from typing import Any

from barnabas.fault_proxy.dialogue import Common, Dialogue, sized
from barnabas.fault_proxy.fault_rule import parse_rule
from barnabas.fault_proxy.rule_book import Rule, RuleBook
from barnabas.fault_proxy.rules import Faults
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.client_exchange import decode_response
from barnabas.protocol.framing import request_prefix, response_prefix
from barnabas.protocol.schema import Message, decode, encode, parse_versions

PROXY = ("proxy", 19092)


class ClientWire:
    """Feeds messages, and reads what comes out at the other end."""

    def __init__(self, *rules: str) -> None:
        self.now = 100.0
        chance = random.Random(1)
        self.common = Common(Faults(), RuleBook(chance), chance)
        self.rules: list[Rule] = [self.common.rules.add(parse_rule(text)) for text in rules]
        self.dialogue = Dialogue(1, "broker:9092", self.common, self._local)
        self.addresses: list[tuple[str, int, int]] = []
        self._last = 0

    def _local(self, host: str, port: int, node_id: int) -> tuple[str, int]:
        self.addresses.append((host, port, node_id))
        return PROXY

    def ask(self, request: Message, version: int, client_id: str = "app") -> bytes:
        """The bytes that the broker gets at once."""
        self._last += 1
        key = ApiKey(request.API_KEY)
        frame = request_prefix(key, version, self._last, client_id) + encode(request, version)
        self.dialogue.requests.feed(sized(frame), self.now)
        return self.to_broker()

    def answer(self, response: Message, version: int, correlation_id: int | None = None) -> bytes:
        """The bytes that the client gets at once when the broker answers."""
        spec = API_SPECS[ApiKey(response.API_KEY)]
        number = self._last if correlation_id is None else correlation_id
        prefix = response_prefix(number, spec.response_header_version(version) == 1)
        self.dialogue.answers.feed(sized(prefix + encode(response, version)), self.now)
        return self.to_client()

    def to_broker(self) -> bytes:
        return b"".join(self.dialogue.requests.take(self.now))

    def to_client(self) -> bytes:
        return b"".join(self.dialogue.answers.take(self.now))

    def later(self, seconds: float) -> bytes:
        """The bytes that the client gets after this time."""
        self.now += seconds
        return self.to_client()

    @property
    def is_reset(self) -> bool:
        self.to_client()
        return self.dialogue.answers.is_reset


def read_answer(data: bytes, key: ApiKey, version: int) -> tuple[int, Any]:
    """Correlation id and answer of the only frame in `data`."""
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return int.from_bytes(data[4:8], "big"), decode_response(bytearray(data[4:]), API_SPECS[key], version)


def read_request(data: bytes, key: ApiKey, version: int, client_id: str = "app") -> Any:
    """The request of the only frame in `data`."""
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    position = 4 + len(request_prefix(key, version, 1, client_id))
    return decode(API_SPECS[key].request_type(), data[position:], version)


def filled(kind: Any, version: int) -> Any:
    """A struct with one item in each of the arrays that this version carries."""
    made = kind()
    for spec in kind.FIELDS:
        element = spec.type.element
        if version not in parse_versions(spec.versions):
            continue
        if element is not None and element.struct is not None:
            setattr(made, spec.name, [filled(element.struct, version)])
        elif element is not None:
            setattr(made, spec.name, ["one"] if element.name == "string" else [7] if element.name != "uuid" else [])
        elif spec.type.name == "string":
            setattr(made, spec.name, spec.name)
        elif spec.type.name == "records":
            setattr(made, spec.name, b"")
    return made
