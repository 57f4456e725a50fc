"""FindCoordinator responses: the coordinator, a reason to retry, or an error that a retry cannot change."""

from __future__ import annotations

import pytest

from barnabas.client.coordinator_lookup import CoordinatorType, coordinator_in, lookup_request
from barnabas.client.metadata import Node
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse


def response(key: str, code: ErrorCode = ErrorCode.NONE) -> FindCoordinatorResponse:
    found = Coordinator(key=key, node_id=2, host="b", port=9092, error_code=code)
    return FindCoordinatorResponse(coordinators=[found])


def test_the_coordinator_of_the_requested_key() -> None:
    request = lookup_request(CoordinatorType.TRANSACTION, "payments")
    assert (request.key_type, request.coordinator_keys) == (1, ["payments"])
    assert coordinator_in(response("payments"), "payments") == Node(2, "b", 9092)


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_retriable_error_is_returned(code: ErrorCode) -> None:
    assert coordinator_in(response("payments", code), "payments") is code


def test_an_error_that_a_retry_cannot_change_is_raised() -> None:
    with pytest.raises(KafkaError, match="the coordinator of payments"):
        coordinator_in(response("payments", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), "payments")


@pytest.mark.parametrize("answer", [response("another"), FindCoordinatorResponse(coordinators=[])])
def test_a_response_without_the_key_is_retriable(answer: FindCoordinatorResponse) -> None:
    assert coordinator_in(answer, "payments") is ErrorCode.COORDINATOR_NOT_AVAILABLE
