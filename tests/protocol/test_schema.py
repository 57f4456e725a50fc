"""Message classes by themselves, and the values that encoding accepts."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import dataclass

import pytest

from barnabas.protocol.errors import EncodeError, MalformedMessage, UnsupportedFieldError
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from barnabas.protocol.messages.group_log import GroupMetadataKey
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from barnabas.protocol.messages.metadata_log import UserScramCredentialRecord
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.vote import VoteRequest
from barnabas.protocol.schema import decode, decode_prefix, encode, encode_chunks

UUID = bytes(range(16))


def test_every_field_has_the_default_of_the_schema() -> None:
    request = FetchRequest()
    assert request.max_bytes == 0x7FFFFFFF
    assert request.replica_state.replica_epoch == -1
    assert request.cluster_id is None
    assert request.topics == []
    assert FetchPartition().high_watermark == 2**63 - 1
    assert PartitionData().aborted_transactions == []


def test_defaults_that_can_change_are_not_shared() -> None:
    one, other = FetchRequest(), FetchRequest()
    one.topics.append(FetchTopic())
    one.replica_state.replica_id = 7
    assert other == FetchRequest()

    data = encode(
        FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(), PartitionData()])]), 13
    )
    first, second = decode(FetchResponse, data, 13).responses[0].partitions
    first.current_leader.leader_id = 3
    assert second.current_leader == LeaderIdAndEpoch()
    assert decode(FetchResponse, data, 13).responses[0].partitions[0] == PartitionData()


def test_messages_are_slotted_comparable_and_print_their_fields() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=2)
    assert repr(request) == (
        "HeartbeatRequest(group_id='g', generation_id=2, member_id='', group_instance_id=None)"
    )
    assert request == copy.deepcopy(request) != HeartbeatRequest(group_id="g")
    assert request != GroupMetadataKey(group="g")
    with pytest.raises(AttributeError):
        request.surprise = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        HeartbeatRequest(surprise=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        hash(request)


@pytest.mark.feature("SE-04", "SE-07")
def test_messages_do_not_print_secrets() -> None:
    for message, secret in (
        (SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonder"), "wonder"),
        (RenewDelegationTokenRequest(hmac=b"wonder"), "wonder"),
        (UserScramCredentialRecord(name="alice", salt=b"wo", stored_key=b"nd", server_key=b"er"), "b'"),
    ):
        assert secret not in repr(message)
        assert "=[hidden]" in repr(message)


@pytest.mark.feature("PF-03")
def test_a_value_that_the_version_lacks_is_dropped_if_it_may_be() -> None:
    request = FetchRequest(rack_id="here", max_bytes=5)
    again = decode(FetchRequest, encode(request, 1), 1)
    assert (again.rack_id, again.max_bytes) == ("", 0x7FFFFFFF)


@pytest.mark.feature("PF-03")
def test_a_value_that_the_version_lacks_is_refused_if_it_means_something() -> None:
    with pytest.raises(UnsupportedFieldError, match="group_instance_id cannot be carried by version 2"):
        encode(HeartbeatRequest(group_instance_id="i"), 2)
    with pytest.raises(UnsupportedFieldError, match="forgotten_topics_data"):
        encode(FetchRequest(forgotten_topics_data=[ForgottenTopic(topic="t")]), 4)
    topics = [FetchTopic(partitions=[FetchPartition(last_fetched_epoch=3)])]
    with pytest.raises(UnsupportedFieldError, match="last_fetched_epoch"):
        encode(FetchRequest(topics=topics), 11)


@pytest.mark.parametrize(
    "message",
    [
        HeartbeatRequest(generation_id=2**31),
        HeartbeatRequest(group_id=None),  # type: ignore[arg-type]
        HeartbeatRequest(group_id=b"bytes"),  # type: ignore[arg-type]
        HeartbeatRequest(group_id="\ud800"),
        HeartbeatRequest(group_id="x" * 40_000),
        HeartbeatRequest(generation_id="1"),  # type: ignore[arg-type]
    ],
    ids=["too large", "null", "bytes for text", "half a surrogate", "too long", "text for a number"],
)
def test_wrong_values_fail_to_encode(message: HeartbeatRequest) -> None:
    with pytest.raises(EncodeError, match="HeartbeatRequest version 3"):
        encode(message, 3)


def test_a_uuid_of_another_length_is_not_padded() -> None:
    with pytest.raises(EncodeError, match="topic_id is not 16 bytes"):
        encode(FetchRequest(topics=[FetchTopic(topic_id=b"short")]), 13)


def test_an_unsupported_version_fails_to_encode() -> None:
    with pytest.raises(EncodeError, match="versions 0-4, not 5"):
        encode(HeartbeatRequest(), 5)


def test_messages_of_any_size_are_encoded() -> None:
    for count in (0, 1, 10, 1000, 20_000, 3):
        topics = [MetadataResponseTopic(name=f"topic-{i}", topic_id=UUID) for i in range(count)]
        response = MetadataResponse(topics=topics)
        assert decode(MetadataResponse, encode(response, 12), 12) == response
    for length in (0, 1, 126, 127, 128, 16_382, 16_383, 32_767):
        request = CreateTopicsRequest(topics=[CreatableTopic(name="x" * length)])
        assert decode(CreateTopicsRequest, encode(request, 7), 7) == request


@pytest.mark.parametrize("name", ["x" * 32_768, "x" * 70_000, "\u00fc" * 16_384])
def test_a_request_with_a_string_that_no_record_can_carry_is_malformed(name: str) -> None:
    """Compact strings have no bound of their own; older encodings of records, and Kafka, take 32,767 bytes."""
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name)])
    with pytest.raises(MalformedMessage, match=r"bytes long, at most 32767 are allowed"):
        decode(CreateTopicsRequest, encode(request, 7), 7)
    response = MetadataResponse(topics=[MetadataResponseTopic(name=name, topic_id=UUID)])
    assert decode(MetadataResponse, encode(response, 12), 12) == response


@pytest.mark.feature("PF-03")
def test_unknown_tagged_fields_are_kept_in_their_place_among_the_known() -> None:
    request = FetchRequest(cluster_id="c")
    request.unknown_tagged_fields = {9: b"new", 2: b""}
    encoded = encode(request, 12)
    # Three fields in rising order: 0 (cluster id), 2, 9.
    assert encoded.endswith(b"\x03" + b"\x00\x02\x02c" + b"\x02\x00" + b"\x09\x03new")
    again = decode(FetchRequest, encoded, 12)
    assert again.unknown_tagged_fields == {2: b"", 9: b"new"}
    assert again.cluster_id == "c"
    assert encode(again, 12) == encoded


def test_one_tagged_field_alone_or_with_others_means_the_same() -> None:
    for fields in (
        {"high_watermark": 5},
        {"replica_directory_id": UUID},
        {"high_watermark": 5, "replica_directory_id": UUID},
    ):
        partition = FetchPartition(partition=1, **fields)
        request = FetchRequest(topics=[FetchTopic(topic_id=UUID, partitions=[FetchPartition(), partition])])
        assert decode(FetchRequest, encode(request, 18), 18) == request
        partition.unknown_tagged_fields = {100: b"x"}
        assert decode(FetchRequest, encode(request, 18), 18) == request


@dataclass
class Region:
    """Stands for bytes that are not in memory."""

    count: int

    def __len__(self) -> int:
        return self.count


@pytest.mark.feature("PF-11")
def test_records_are_passed_on_and_not_touched() -> None:
    region = Region(100_000)
    view = memoryview(bytearray(b"batch"))
    partitions = [
        PartitionData(partition_index=0, records=region),
        PartitionData(partition_index=1, records=None),
        PartitionData(partition_index=2, records=b""),
        PartitionData(partition_index=3, records=view),
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=UUID, partitions=partitions)])
    chunks = encode_chunks(response, 13, b"head")
    assert [chunk for chunk in chunks if chunk is region or chunk is view] == [region, view]
    assert chunks[1] is region
    assert chunks[3] is view
    assert bytes(chunks[0]).startswith(b"head")

    # The same with bytes of that size in place of the region must read back.
    flat = b"".join(bytes(100_000) if chunk is region else bytes(chunk) for chunk in chunks)
    again = decode(FetchResponse, flat[4:], 13)
    sizes = [
        None if partition.records is None else len(partition.records)
        for partition in again.responses[0].partitions
    ]
    assert sizes == [100_000, None, 0, 5]


@pytest.mark.feature("PF-01")
@pytest.mark.parametrize("length_bytes", [1, 2, 3])
def test_records_of_every_length_of_length(length_bytes: int) -> None:
    first_longer = 1 << 7 * length_bytes
    for size in range(first_longer - 4, first_longer + 2):
        partition = PartitionProduceData(index=-1, records=memoryview(bytes(size)))
        topic = TopicProduceData(topic_id=UUID, partition_data=[partition])
        head, records, tail = encode_chunks(ProduceRequest(topic_data=[topic]), 13)
        assert records is partition.records
        message = b"".join([head, records, tail])
        again = decode(ProduceRequest, message, 13).topic_data[0].partition_data[0].records
        assert again is not None
        assert len(again) == size
        assert len(head) + len(tail) == len(encode(ProduceRequest(topic_data=[topic]), 13)) - size
        with pytest.raises(MalformedMessage):
            decode(ProduceRequest, message[:-3], 13)


@pytest.mark.feature("PF-11")
def test_decoded_records_are_a_view_into_the_frame() -> None:
    partition = PartitionProduceData(index=1, records=b"the batch")
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    frame = bytearray(encode(request, 9))
    records = decode(ProduceRequest, memoryview(frame), 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[:3] = b"our"
    assert b"our batch" in frame


@pytest.mark.feature("PF-03")
def test_the_oldest_produce_and_fetch_requests_are_understood() -> None:
    produce = bytes.fromhex("0001 000003e8 00000001 000174 00000001 00000005 00000003 616263")
    request = decode(ProduceRequest, produce, 0)
    assert request.transactional_id is None
    assert request.topic_data[0].partition_data[0].records == b"abc"
    assert encode(request, 0) == produce

    fetch = bytes.fromhex(
        "ffffffff 00000064 00000001 00000001 000174 00000001 00000002 0000000000000007 00000400"
    )
    asked = decode(FetchRequest, fetch, 0).topics[0].partitions[0]
    assert (asked.partition, asked.fetch_offset, asked.partition_max_bytes) == (2, 7, 1024)


def test_a_prefix_of_a_buffer_can_be_decoded() -> None:
    request = HeartbeatRequest(group_id="g", member_id="m")
    data = b"..." + encode(request, 4) + b"rest"
    message, position = decode_prefix(HeartbeatRequest, data, 3, 4)
    assert message == request
    assert data[position:] == b"rest"


def test_a_null_array_is_not_an_empty_one() -> None:
    assert encode(MetadataRequest(topics=None), 9) != encode(MetadataRequest(topics=[]), 9)
    assert decode(MetadataRequest, encode(MetadataRequest(topics=None), 9), 9).topics is None


def test_a_field_of_a_newer_version_is_absent_from_an_older() -> None:
    assert len(encode(VoteRequest(voter_id=3), 1)) > len(encode(VoteRequest(), 0))


def test_importing_the_protocol_imports_no_message() -> None:
    code = (
        "import sys, protocol.api_keys, protocol.schema\n"
        "print([name for name in sys.modules if name.startswith('barnabas.protocol.messages.')"
        " or name in ('dataclasses', 'inspect', 'json', 'barnabas.protocol.codec')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
