"""To whom questions go, what is asked again, and what becomes of a question that nobody answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from barnabas.client.admin import Admin, DelegationToken, ElectionType, GroupState, KafkaPrincipal, NewTopic, OffsetSpec
from barnabas.client.errors import (
    BrokerNotAvailableException,
    ConfigException,
    DelegationTokenNotFoundException,
    GroupIdNotFoundException,
    IllegalStateException,
    InvalidRequestException,
    TimeoutException,
    TopicAuthorizationException,
    TopicExistsException,
    UnknownServerException,
    UnknownTopicOrPartitionException,
    UnsupportedVersionException,
)
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_delegation_token as tokens
from barnabas.protocol.messages import create_topics, delete_groups, elect_leaders, list_groups, list_offsets
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse, DescribedGroup
from barnabas.protocol.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from barnabas.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsResponse
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from barnabas.protocol.schema import Message
from tests.barnabas.client.admin.scripted_cluster import Answer, ScriptedCluster, play

pytestmark = pytest.mark.feature("CL-04")


def offsets(answer: Callable[[int, str, int], tuple[ErrorCode, int]]) -> Answer:
    """ListOffsets, by (broker, topic, partition) to (error, offset)."""

    def respond(broker: int, request: list_offsets.ListOffsetsRequest) -> Message:
        topics = []
        for topic in request.topics:
            parts = []
            for it in topic.partitions:
                code, offset = answer(broker, topic.name, it.partition_index)
                parts.append(
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=it.partition_index, error_code=code, offset=offset
                    )
                )
            topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=parts))
        return list_offsets.ListOffsetsResponse(topics=topics)

    return respond


def test_each_leader_is_asked_once_for_all_that_it_leads() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        scripted.topics = {"t": [1, 2, 3, 1], "u": [3]}
        scripted.answers[ApiKey.LIST_OFFSETS] = offsets(
            lambda broker, topic, index: (ErrorCode.NONE, broker * 10 + index)
        )
        wanted = [TopicPartition("t", index) for index in range(4)] + [TopicPartition("u", 0)]
        found = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.latest()))
        assert [found[key].offset for key in wanted] == [10, 21, 32, 13, 30]
        assert sorted(scripted.asked) == [(broker, ApiKey.LIST_OFFSETS) for broker in (1, 2, 3)]

    play(story)


def test_only_items_that_were_not_answered_are_asked_for_again() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        scripted.topics = {"t": [1, 1, 1]}
        seen: list[tuple[int, int]] = []

        def answer(broker: int, topic: str, index: int) -> tuple[ErrorCode, int]:
            seen.append((broker, index))
            if index == 1 and broker == 1:
                scripted.topics = {"t": [1, 2, 1]}
                return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
            return (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1) if index == 2 else (ErrorCode.NONE, index)

        scripted.answers[ApiKey.LIST_OFFSETS] = offsets(answer)
        zero, one, two = (TopicPartition("t", index) for index in range(3))
        found = await admin.list_offsets({zero: -1, one: -1, two: -1})
        assert (found[zero].offset, found[one].offset) == (0, 1)
        assert seen == [(1, 0), (1, 1), (1, 2), (2, 1)]
        with pytest.raises(TopicAuthorizationException, match="t-2"):
            found[two]
        assert set(found.errors) == {two}
        with pytest.raises(TopicAuthorizationException):
            found.all()

    play(story)


def test_a_missing_topic_is_reported_within_seconds() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        scripted.topics = {"t": [1]}
        began = trio.current_time()
        found = await admin.list_offsets({TopicPartition("none", 0): -1, TopicPartition("t", 7): -1})
        assert 4.5 < trio.current_time() - began < 7
        for error in found.errors.values():
            assert isinstance(error, UnknownTopicOrPartitionException)
        assert len(found.errors) == 2

    play(story)


def test_a_missing_broker_is_reported_within_seconds() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        with pytest.raises(BrokerNotAvailableException, match="broker 9 does not exist"):
            (await admin.describe_log_dirs([9])).all()

    play(story)


def test_a_coordinator_that_has_moved_is_looked_up_again() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        scripted.coordinators = {"a": 1, "b": 2}

        def answer(broker: int, request: delete_groups.DeleteGroupsRequest) -> Message:
            results = []
            for group in request.groups_names:
                code = ErrorCode.NONE if (group, broker) in {("a", 3), ("b", 2)} else ErrorCode.NOT_COORDINATOR
                results.append(delete_groups.DeletableGroupResult(group_id=group, error_code=code))
            scripted.coordinators["a"] = 3
            return delete_groups.DeleteGroupsResponse(results=results)

        scripted.answers[ApiKey.DELETE_GROUPS] = answer
        assert (await admin.delete_groups(["a", "b"])).all() == {"a": None, "b": None}
        assert sorted(broker for broker, key in scripted.asked if key is ApiKey.DELETE_GROUPS) == [1, 2, 3]

    play(story)


def test_a_refused_change_is_raised_unless_the_caller_wants_to_look() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        def answer(broker: int, request: create_topics.CreateTopicsRequest) -> Message:
            results = [
                create_topics.CreatableTopicResult(
                    name=topic.name,
                    error_code=ErrorCode.TOPIC_ALREADY_EXISTS if topic.name == "old" else ErrorCode.NONE,
                    error_message="it is there" if topic.name == "old" else None,
                    num_partitions=topic.num_partitions,
                )
                for topic in request.topics
            ]
            return create_topics.CreateTopicsResponse(topics=results)

        scripted.answers[ApiKey.CREATE_TOPICS] = answer
        topics = [NewTopic("new", 3), NewTopic("old", 3)]
        with pytest.raises(TopicExistsException, match="topic old: it is there"):
            await admin.create_topics(topics)
        results = await admin.create_topics(topics, raise_errors=False)
        assert list(results) == ["new", "old"]
        assert results["new"].num_partitions == 3
        assert list(results.succeeded) == ["new"]
        assert isinstance(results.error("old"), TopicExistsException)
        assert results.error("new") is None
        with pytest.raises(KeyError):
            results["nobody asked"]
        assert "old" in results
        with pytest.raises(InvalidRequestException, match="must have different names; got new twice"):
            await admin.create_topics([NewTopic("new"), NewTopic("new")])

    play(story)


def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        lost: list[int] = []

        def answer(broker: int, request: create_topics.CreateTopicsRequest) -> Message | None:
            if not lost:
                lost.append(broker)
                return None
            done = create_topics.CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
            return create_topics.CreateTopicsResponse(topics=[done])

        scripted.answers[ApiKey.CREATE_TOPICS] = answer
        with pytest.raises(TopicExistsException):
            await admin.create_topics(NewTopic("t"))
        assert len(lost) == 1

    play(story)


def test_a_cluster_that_is_down_is_a_timeout_with_a_reason() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        await admin.list_topics()
        for broker in (1, 2, 3):
            scripted.kill(broker)
        began = trio.current_time()
        with pytest.raises(TimeoutException, match="topics: no result within 3000 ms; last error: NETWORK") as caught:
            await admin.list_topics()
        assert caught.value.retriable
        assert trio.current_time() - began <= 3.1
        async with trio.open_nursery() as nursery:
            scripted.start(nursery, 2)
            assert await admin.list_topics() == {}
            nursery.cancel_scope.cancel()

    play(story, default_api_timeout_ms=3_000)


def test_brokers_that_are_down_are_passed_over() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        scripted.topics = {"a": [3], "__b": [3]}
        scripted.kill(1)
        scripted.kill(2)
        assert list(await admin.list_topics(list_internal=True)) == ["__b", "a"]

    play(story)


def test_a_broker_that_never_answers_does_not_outlast_the_timeout() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        # Sizes that are cut short: the rest never comes.
        scripted.answers[ApiKey.ELECT_LEADERS] = lambda broker, request: b"\x00"
        began = trio.current_time()
        with pytest.raises(TimeoutException, match="malformed ElectLeaders"):
            await admin.elect_leaders(ElectionType.PREFERRED)
        assert trio.current_time() - began <= 3.1

    play(story, default_api_timeout_ms=3_000)


def test_an_api_that_no_broker_serves_is_an_error_and_not_a_wait() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        scripted.max_versions = {ApiKey.ELECT_LEADERS: -1, ApiKey.LIST_GROUPS: 3}
        began = trio.current_time()
        with pytest.raises(UnsupportedVersionException):
            await admin.elect_leaders()
        with pytest.raises(UnsupportedVersionException):
            await admin.list_groups(states=[GroupState.EMPTY])
        assert trio.current_time() - began < 1

    play(story)


def test_an_answer_that_leaves_an_item_out_is_an_error_and_not_a_wait() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        scripted.answers[ApiKey.CREATE_TOPICS] = lambda broker, request: create_topics.CreateTopicsResponse()
        with pytest.raises(UnknownServerException, match="topic t: the broker's response lacks it"):
            await admin.create_topics([NewTopic("t")])
        scripted.answers[ApiKey.DESCRIBE_CONFIGS] = lambda broker, request: DescribeConfigsResponse(
            results=[DescribeConfigsResult(resource_type=99, resource_name="t")]
        )
        scripted.answers[ApiKey.DESCRIBE_TOPIC_PARTITIONS] = lambda broker, request: DescribeTopicPartitionsResponse(
            next_cursor=Cursor(topic_name="t", partition_index=1)
        )
        with pytest.raises(UnknownServerException, match="the cursor did not advance"):
            await admin.describe_topics("t")

    play(story)


@pytest.mark.parametrize("number", ["three", None, 2**40])
def test_values_of_a_wrong_type_are_refused_at_once(number: Any) -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        began = trio.current_time()
        with pytest.raises(InvalidRequestException):
            await admin.create_topics([NewTopic("t", number)])
        assert trio.current_time() - began < 1

    play(story)


def test_all_brokers_are_asked_again_when_one_goes_away_meanwhile() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        groups = {1: ["a"], 2: ["b"], 3: ["c"]}

        def answer(broker: int, request: list_groups.ListGroupsRequest) -> Message | None:
            if broker == 3:
                # Its groups move on to broker 1, which may have answered already.
                scripted.kill(3)
                groups[1].append("c")
                return None
            listed = [list_groups.ListedGroup(group_id=group, protocol_type="consumer") for group in groups[broker]]
            return list_groups.ListGroupsResponse(groups=listed)

        scripted.answers[ApiKey.LIST_GROUPS] = answer
        listed = await admin.list_groups()
        assert [(it.group_id, it.broker_id) for it in listed] == [("a", 1), ("b", 2), ("c", 1)]

    play(story)


def test_an_election_that_was_not_needed_is_no_error() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        def answer(broker: int, request: elect_leaders.ElectLeadersRequest) -> Message:
            codes = [ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
            results = [
                elect_leaders.PartitionResult(partition_id=index, error_code=code) for index, code in enumerate(codes)
            ]
            result = elect_leaders.ReplicaElectionResult(topic="t", partition_result=results)
            return elect_leaders.ElectLeadersResponse(replica_election_results=[result])

        scripted.answers[ApiKey.ELECT_LEADERS] = answer
        keys = [TopicPartition("t", index) for index in range(3)]
        results = await admin.elect_leaders(ElectionType.PREFERRED, keys, raise_errors=False)
        assert results.succeeded == {keys[0]: True, keys[1]: False}
        assert list(results.errors) == [keys[2]]

    play(story)


def test_nothing_is_asked_for_nothing() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        assert len(await admin.create_topics([])) == 0
        assert len(await admin.describe_topics([])) == 0
        assert len(await admin.describe_consumer_groups([])) == 0
        assert len(await admin.elect_leaders(ElectionType.PREFERRED, [])) == 0
        assert len(await admin.delete_records({})) == 0
        assert scripted.asked == []

    play(story)


def test_a_cancelled_call_leaves_the_administrator_usable() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        scripted.coordinators = {}
        with trio.move_on_after(0.5) as scope:
            await admin.delete_groups("g")
        assert scope.cancelled_caught
        scripted.coordinators = {"g": 1}
        scripted.answers[ApiKey.DELETE_GROUPS] = lambda broker, request: delete_groups.DeleteGroupsResponse(
            results=[delete_groups.DeletableGroupResult(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)]
        )
        with pytest.raises(GroupIdNotFoundException, match="group g"):
            await admin.delete_groups("g")

    play(story)


async def test_an_administrator_that_is_not_open_raises() -> None:
    admin = Admin(bootstrap_servers="localhost:1")
    with pytest.raises(IllegalStateException, match="async with"):
        await admin.list_topics()
    async with admin:
        with pytest.raises(IllegalStateException, match="open already"):
            await admin.__aenter__()
    with pytest.raises(IllegalStateException):
        await admin.list_topics()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "bootstrap_servers is missing"),
        ({"bootstrap_servers": "a:1", "default_api_timeout": 1}, "default_api_timeout_ms?"),
        ({"bootstrap_servers": "a:1", "default_api_timeout_ms": -1}, "default_api_timeout_ms must be greater"),
    ],
)
def test_invalid_settings_are_refused(options: Any, expected: str) -> None:
    with pytest.raises(ConfigException) as caught:
        Admin(**options)
    assert expected in str(caught.value)


async def test_an_exception_of_the_block_is_raised_unchanged() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Admin(bootstrap_servers="localhost:1"):
            raise ZeroDivisionError
    with trio.move_on_after(0.05) as scope:
        async with Admin(bootstrap_servers="localhost:1") as admin:
            await admin.list_topics()
    assert scope.cancelled_caught


def test_the_description_of_a_token() -> None:
    """No cluster here authenticates, so the answers are scripted."""

    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        owner, renewer = KafkaPrincipal("alice"), KafkaPrincipal("bob")
        asked: list[tokens.CreateDelegationTokenRequest] = []

        def create(broker: int, request: tokens.CreateDelegationTokenRequest) -> Message:
            asked.append(request)
            return tokens.CreateDelegationTokenResponse(
                principal_type="User",
                principal_name=request.owner_principal_name or "",
                token_requester_principal_type="User",
                token_requester_principal_name="admin",
                issue_timestamp_ms=1,
                expiry_timestamp_ms=2,
                max_timestamp_ms=request.max_lifetime_ms,
                token_id="id",
                hmac=b"secret",
            )

        scripted.answers[ApiKey.CREATE_DELEGATION_TOKEN] = create
        token = await admin.create_delegation_token(owner=owner, renewers=[renewer], max_lifetime_ms=9)
        assert token == DelegationToken("id", b"secret", owner, KafkaPrincipal("admin"), (renewer,), 1, 2, 9)
        assert [it.principal_name for it in asked[0].renewers] == ["bob"]
        assert "secret" not in repr(token)
        scripted.answers[ApiKey.RENEW_DELEGATION_TOKEN] = lambda broker, request: RenewDelegationTokenResponse(
            error_code=ErrorCode.NONE if request.hmac == b"secret" else ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
            expiry_timestamp_ms=request.renew_period_ms,
        )
        assert await admin.renew_delegation_token(token.hmac, renew_time_period_ms=5) == 5
        with pytest.raises(DelegationTokenNotFoundException):
            await admin.renew_delegation_token(b"guess")

    play(story)


def test_a_broker_of_another_cluster_sends_its_clients_back_to_the_bootstrap() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        scripted.topics = {"t": [1]}
        scripted.answers[ApiKey.LIST_OFFSETS] = offsets(lambda broker, topic, index: (ErrorCode.NONE, 7))
        asked: list[int] = []

        def once(broker: int, request: Any) -> Message:
            if not asked:
                asked.append(broker)
                return MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
            return scripted.metadata(broker, request)

        scripted.answers[ApiKey.METADATA] = once
        found = await admin.list_offsets({TopicPartition("t", 0): OffsetSpec.latest()})
        assert found[TopicPartition("t", 0)].offset == 7

    play(story)


def test_a_method_that_asks_in_steps_has_one_deadline() -> None:
    async def story(scripted: ScriptedCluster, admin: Admin) -> None:
        scripted.coordinators = {"g": 1}
        scripted.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = lambda broker, request: ConsumerGroupDescribeResponse(
            groups=[DescribedGroup(group_id="g", error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
            if trio.current_time() - began < 2
            else [DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)]
        )
        scripted.answers[ApiKey.DESCRIBE_GROUPS] = lambda broker, request: None
        began = trio.current_time()
        described = await admin.describe_consumer_groups("g")
        assert isinstance(described.error("g"), TimeoutException)
        assert 2 < trio.current_time() - began <= 3.1

    play(story, default_api_timeout_ms=3_000)
