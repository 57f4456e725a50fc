"""The tables: APIs and error codes."""

from __future__ import annotations

import pytest

from barnabas.protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code


@pytest.mark.feature("PF-03", "PF-04")
def test_all_live_apis_are_there() -> None:
    assert list(API_SPECS) == list(ApiKey) == [key for key in range(93) if key not in range(4, 8)]
    assert sum("broker" in spec.listeners for spec in API_SPECS.values()) == 77
    assert sum("controller" in spec.listeners for spec in API_SPECS.values()) == 41


@pytest.mark.feature("PF-03", "PF-04")
@pytest.mark.parametrize("spec", API_SPECS.values(), ids=lambda spec: spec.name)
def test_an_api_and_its_classes_agree(spec: ApiSpec) -> None:
    for kind in (spec.request_type(), spec.response_type()):
        assert spec.key == kind.API_KEY
        assert kind.VERSIONS.lowest <= spec.min_version <= spec.max_version <= kind.VERSIONS.highest
        assert spec.flexible_from == kind.FLEXIBLE_FROM
    assert spec.request_type().__name__ == f"{spec.name}Request"
    assert spec.response_type().__name__ == f"{spec.name}Response"
    assert spec.serves(spec.min_version) and spec.serves(spec.max_version)
    assert not spec.serves(spec.max_version + 1)


@pytest.mark.feature("PF-02", "PF-04")
def test_versions_that_are_special() -> None:
    produce = API_SPECS[ApiKey.PRODUCE]
    assert (produce.advertised_min_version, produce.min_version, produce.max_version) == (0, 3, 13)
    assert not produce.serves(2)
    assert API_SPECS[ApiKey.INIT_PRODUCER_ID].max_version == 5, "version 6 is not stable yet"
    api_versions = API_SPECS[ApiKey.API_VERSIONS]
    assert [api_versions.request_header_version(v) for v in range(5)] == [1, 1, 1, 2, 2]
    assert [api_versions.response_header_version(v) for v in range(5)] == [0, 0, 0, 0, 0]
    fetch = API_SPECS[ApiKey.FETCH]
    assert (fetch.response_header_version(11), fetch.response_header_version(12)) == (0, 1)
    handshake = API_SPECS[ApiKey.SASL_HANDSHAKE]
    assert (handshake.request_header_version(1), handshake.response_header_version(1)) == (1, 0)


@pytest.mark.feature("PF-04")
def test_error_codes() -> None:
    assert [code.value for code in ErrorCode] == list(range(-1, 134))
    assert ErrorCode(133) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.NONE.retriable
    assert not ErrorCode.PRODUCER_FENCED.retriable
    assert error_code(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_code(30_000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_kafka_error_says_its_code_and_its_reason() -> None:
    assert str(KafkaError(ErrorCode.CORRUPT_MESSAGE, "bad CRC")) == "CORRUPT_MESSAGE: bad CRC"
    assert str(KafkaError(ErrorCode.CORRUPT_MESSAGE)) == "CORRUPT_MESSAGE"
