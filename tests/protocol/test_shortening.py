"""Error messages that quote what a client sent."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import EncodeError
from barnabas.protocol.messages.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from barnabas.protocol.schema import encode
from barnabas.protocol.shortening import MOST_CHARACTERS, shorten_error_messages


def test_a_message_that_quotes_the_longest_name_fits_into_a_classic_string_after_all() -> None:
    name = "n" * 32_767
    result = PartitionResult(error_message=f"there is no topic {name}")
    response = ElectLeadersResponse(
        replica_election_results=[ReplicaElectionResult(topic=name, partition_result=[result])]
    )
    with pytest.raises(EncodeError):
        encode(response, 0)
    shorten_error_messages(response)
    assert result.error_message is not None and len(result.error_message) == MOST_CHARACTERS + 1
    assert response.replica_election_results[0].topic == name
    assert encode(response, 0)
