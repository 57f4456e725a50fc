"""Each request that needs a right on the cluster is refused without it, and served with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from barnabas.kraft.authorizer.checks import CHECKS
from barnabas.kraft.authorizer.requirements import ON_BROKERS, ON_CONTROLLERS, Requirements
from barnabas.kraft.controller_apis import DECIDED, DECIDED_FOR_CLIENTS, NODE_APIS, TOKEN_APIS
from barnabas.kraft.rights import with_rights
from barnabas.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import ResponseHeader
from barnabas.protocol.schema import decode_prefix, encode
from barnabas.runtime.call import Call, Execution
from barnabas.runtime.dispatch import Dispatcher
from barnabas.runtime.request import AnswerSlot, Request
from barnabas.runtime.world import Chunk
from tests.kraft.authorizer.asking import Guard, request_of
from tests.kraft.authorizer.test_compiled import acl

pytestmark = pytest.mark.feature("SE-09", "SE-10")

ROWS = [("controller", key, ON_CONTROLLERS) for key in ON_CONTROLLERS] + [
    ("broker", key, ON_BROKERS) for key in ON_BROKERS
]


class Slot:
    """Takes one answer."""

    timed = None
    connection_closed = connection_ended = False

    def __init__(self) -> None:
        self.answer = b""
        self.reason = ""

    def fill(self, chunks: Sequence[Chunk]) -> None:
        self.answer = b"".join(map(bytes, cast(Sequence[bytes], chunks)))

    def abort(self, reason: str) -> None:
        self.reason = reason


def served(guard: Guard, key: ApiKey, requirements: Requirements, user: str = "alice") -> tuple[bool, str]:
    """True if the handler got the request; else the refusal, as text."""
    calls: list[Call] = []
    execution = Execution(cast(Any, None), cast(Any, None), None, guard.authorizer)
    dispatcher = Dispatcher(with_rights({key: calls.append}, requirements, execution), execution=execution)
    spec = API_SPECS[key]
    version = spec.max_version
    request: Request = request_of(user, key=key, body=encode(spec.request_type()(), version), version=version)
    slot = Slot()
    dispatcher(request, cast(AnswerSlot, slot))
    assert not slot.reason
    if calls:
        return True, ""
    body = memoryview(bytearray(slot.answer))
    _, position = decode_prefix(ResponseHeader, body, 0, spec.response_header_version(version))
    return False, repr(decode_prefix(spec.response_type(), body, position, version)[0])


@pytest.mark.parametrize(("node", "key", "requirements"), ROWS, ids=[f"{node}-{key.name}" for node, key, _ in ROWS])
def test_the_right_that_a_request_needs(node: str, key: ApiKey, requirements: Requirements) -> None:
    operations = requirements[key]
    if not operations:
        assert served(Guard(), key, requirements) == (True, ""), "its handler checks each item"
        assert key in CHECKS or key in TOKEN_APIS
        return
    was_served, answer = served(Guard(), key, requirements)
    assert not was_served
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED.value
    has_items_alone = "error_code" not in answer
    assert has_items_alone or f"error_code={code}" in answer
    for operation in AclOperation:
        if operation <= AclOperation.ALL:
            continue
        guard = Guard(acl(CLUSTER_NAME, operation, resource_type=AclResourceType.CLUSTER))
        implied = AclOperation.DESCRIBE in operations and operation in (3, 4, 6, 7)
        assert served(guard, key, requirements)[0] is (operation in operations or implied), operation.name
    assert served(Guard(super_users=("User:alice",)), key, requirements)[0]


def test_only_super_users_are_served_before_the_acls_are_loaded() -> None:
    guard = Guard(super_users=("User:root",), allow_everyone=True)
    guard.authorizer.is_loaded = False
    for key in (ApiKey.FETCH, ApiKey.CREATE_TOPICS):
        assert served(guard, key, ON_CONTROLLERS, "root")[0]
        was_served, _ = served(guard, key, ON_CONTROLLERS)
        assert not was_served
    answer = served(guard, ApiKey.VOTE, ON_CONTROLLERS)[1]
    assert f"error_code={ErrorCode.UNKNOWN_SERVER_ERROR.value}" in answer


def test_no_request_to_a_controller_was_forgotten() -> None:
    assert set(ON_CONTROLLERS) >= {*DECIDED, *DECIDED_FOR_CLIENTS, *NODE_APIS, ApiKey.ENVELOPE}


def test_without_an_authorizer_no_handler_is_wrapped() -> None:
    execution = Execution(cast(Any, None), cast(Any, None))
    handlers = dict.fromkeys(ON_CONTROLLERS, Call.answer_nothing)
    assert with_rights(handlers, ON_CONTROLLERS, execution) == handlers
