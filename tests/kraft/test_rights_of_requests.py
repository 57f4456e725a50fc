"""The rights that a controller asks for before it decides on delegation tokens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.kraft.token_requests import token_handlers
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.schema import Message
from barnabas.runtime.call import Call
from barnabas.runtime.identity import Principal

ADMIN = Principal("admin")
Asked = tuple[AclOperation, AclResourceType, str]


class Client:
    """A call of a client that may do what `allowed` lists."""

    def __init__(self, request: Message, allowed: list[Asked], principal: Principal = ADMIN) -> None:
        self.message = request
        self.version = request.VERSIONS.highest
        self.request = SimpleNamespace(
            principal=principal, connection_id=1, api_key=ApiKey(request.API_KEY), listener_name="SASL_SSL"
        )
        self.slot = SimpleNamespace(connection_closed=False)
        self.answers: list[Any] = []
        self.asked: list[Asked] = []
        self.answer = self.answers.append
        self.failed = None
        self._allowed = allowed

    def may(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        self.asked.append((operation, resource_type, name))
        return self.asked[-1] in self._allowed


@pytest.mark.feature("SE-07", "SE-08")
def test_a_controller_that_is_asked_directly_checks_tokens_as_brokers_do() -> None:
    of_alice = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="alice")
    right = (AclOperation.CREATE_TOKENS, AclResourceType.USER, "User:alice")

    def outcome(client: Client, protocol: str) -> int | None:
        """The error; None if the request is decided."""
        decided: list[Call] = []
        handlers = token_handlers(decided.append, {"SASL_SSL": protocol})
        handlers[ApiKey.CREATE_DELEGATION_TOKEN](cast(Call, client))
        assert len(decided) + len(client.answers) == 1
        return client.answers[0].error_code if client.answers else None

    by_token = Principal("alice", token_authenticated=True)
    assert outcome(Client(of_alice, [right]), "SASL_SSL") is None
    assert outcome(Client(of_alice, []), "SASL_SSL") == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert outcome(Client(of_alice, [], Principal("alice")), "SASL_SSL") is None
    assert outcome(Client(of_alice, [right]), "PLAINTEXT") == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert outcome(Client(of_alice, [right], by_token), "SASL_SSL") == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
