"""Users with some rights, and what they get to see: orders, patterns, created topics, followers, and the cost."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest
import trio

from barnabas.broker.apis.request_pieces import copy_with
from barnabas.broker.apis.rights import may_on_groups, may_on_topics
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.runtime.channel import ChannelError
from simulation.invariants.work import MOST_CALLS
from tests.broker.apis.rig import Rig, Story, fetch_request, play, produce_request
from tests.broker.apis.rig import batch_of as batch
from tests.broker.authorization.state import SETTINGS
from tests.broker.authorization.users import User, user_who_may

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MANY = 2_000


def on_secured(story: Story, brokers: int = 1, **options: Any) -> None:
    """Play the story on a cluster with an authorizer. A client without a name is a super user."""
    play(story, brokers, 1, SETTINGS, **options)


@pytest.mark.feature("SE-09")
def test_refused_items_come_behind_the_others_and_refused_groups_before_them() -> None:
    async def story(rig: Rig) -> None:
        for name in ("a", "b", "c"):
            await rig.create(name)
        alice = await user_who_may(rig, "topic b DESCRIBE + topic b DESCRIBE_CONFIGS + group h DESCRIBE")
        asked = [ListOffsetsTopic(name=it, partitions=[ListOffsetsPartition(timestamp=-1)]) for it in "abc"]
        offsets = await alice.ask(ListOffsetsRequest(replica_id=-1, topics=asked), 7)
        assert [(it.name, it.partitions[0].error_code) for it in offsets.topics] == [
            ("b", ErrorCode.NONE),
            ("a", DENIED),
            ("c", DENIED),
        ]
        topics = await alice.ask(MetadataRequest(topics=[MetadataRequestTopic(name=it) for it in "abc"]), 12)
        assert [it.name for it in topics.topics] == ["b", "a", "c"]
        configs = [DescribeConfigsResource(resource_type=2, resource_name=it) for it in "abc"]
        described = await alice.ask(DescribeConfigsRequest(resources=configs), 4)
        assert [it.resource_name for it in described.results] == ["b", "a", "c"]
        groups = await alice.ask(DescribeGroupsRequest(groups=["h", "g"]), 5)
        assert [it.group_id for it in groups.groups] == ["g", "h"]

    on_secured(story)


@pytest.mark.feature("SE-09")
def test_a_page_of_topics_has_only_those_that_the_user_may_describe() -> None:
    """The next page begins with the next one of these, and each page names what was asked for and refused."""

    async def story(rig: Rig) -> None:
        for name in ("a", "b", "c", "d"):
            await rig.create(name)
        alice = await user_who_may(rig, "topic b READ + topic d READ")
        first = await alice.ask(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1), 0)
        assert [it.name for it in first.topics] == ["b"]
        assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("d", 0)
        # A cursor on a topic that became invisible meanwhile: its partition index belongs to no other.
        named = [TopicRequest(name=it) for it in "abcd"]
        second = await alice.ask(
            DescribeTopicPartitionsRequest(
                topics=named, response_partition_limit=9, cursor=Cursor(topic_name="c", partition_index=5)
            ),
            0,
        )
        assert [(it.name, it.error_code, len(it.partitions)) for it in second.topics] == [
            ("d", ErrorCode.NONE, 1),
            ("c", DENIED, 0),
        ]

    on_secured(story)


@pytest.mark.feature("SE-09")
def test_a_pattern_matches_only_topics_that_the_member_may_describe() -> None:
    async def story(rig: Rig) -> None:
        for name in ("news-a", "news-b"):
            await rig.create(name)
        alice = await user_who_may(rig, "group g READ + topic news-b DESCRIBE")
        joining = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_regex="news-.*",
            topic_partitions=[],
        )
        while (await rig.ask(1, FindCoordinatorRequest(coordinator_keys=["g"]), 4)).coordinators[0].error_code:
            await trio.sleep(0.1)
        answer = await alice.ask(joining, 1)
        while answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await trio.sleep(0.1)
            answer = await alice.ask(joining, 1)
        assert answer.error_code == ErrorCode.NONE, answer
        assigned: list[bytes] = []
        while not assigned:
            await trio.sleep(1)
            stay = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=answer.member_epoch)
            answer = await alice.ask(stay, 1)
            assert answer.error_code == ErrorCode.NONE, answer
            if answer.assignment is not None:
                assigned = [bytes(it.topic_id) for it in answer.assignment.topic_partitions]
        assert assigned == [rig.broker(1).metadata.image.topics.by_name["news-b"].id]

    on_secured(story)


@pytest.mark.feature("SE-09")
def test_a_topic_is_created_in_the_name_of_the_client(caplog: pytest.LogCaptureFixture) -> None:
    """The controller decides on the rights of the client, too, not on those of the broker."""

    async def story(rig: Rig) -> None:
        alice = await user_who_may(rig, "topic new DESCRIBE + topic new CREATE")
        asked = [MetadataRequestTopic(name="new"), MetadataRequestTopic(name="other")]
        with caplog.at_level(logging.DEBUG, "authorizer"):
            answer = await alice.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 12)
            assert [(it.name, it.error_code) for it in answer.topics] == [
                ("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ("other", DENIED),
            ]
            topics = rig.broker(1).metadata
            await rig.until(lambda: "new" in topics.image.topics.by_name)
        assert "other" not in topics.image.topics.by_name
        decided = [it.getMessage() for it in caplog.records if "request = CreateTopics" in it.getMessage()]
        assert any("User:alice is Allowed operation = CREATE" in line for line in decided), decided
        assert not any("ANONYMOUS" in line for line in decided), decided

    on_secured(story)


@pytest.mark.feature("SE-09")
def test_topics_left_out_of_a_list_are_no_denials(caplog: pytest.LogCaptureFixture) -> None:
    async def story(rig: Rig) -> None:
        await rig.create("hidden")
        alice = await user_who_may(rig, "topic seen DESCRIBE")
        with caplog.at_level(logging.INFO, "authorizer"):
            answer = await alice.ask(MetadataRequest(topics=None, include_topic_authorized_operations=True), 12)
            assert answer.topics == []
            assert not [it for it in caplog.records if it.name == "authorizer"]
            await alice.ask(MetadataRequest(topics=[MetadataRequestTopic(name="hidden")]), 12)
        assert "User:alice is Denied operation = DESCRIBE" in caplog.records[-1].getMessage()

    on_secured(story)


@pytest.mark.feature("SE-09")
def test_a_user_who_claims_to_be_a_follower_moves_no_high_watermark() -> None:
    async def story(rig: Rig) -> None:
        await rig.create("t", replicas=[1, 2])
        mallory = await user_who_may(rig, "topic t READ + topic t WRITE", "mallory")
        await rig.cluster.stop("broker-2")
        partition = rig.partition(1, "t")
        await rig.until(lambda: partition.replica.isr == {1})
        fetched_at_ms = rig.broker(1).partitions._fetched_at_ms
        before_ms = fetched_at_ms(2)
        answer = await mallory.ask(fetch_request("t", 0, replica_id=2, session_epoch=0), 12)
        (data,) = answer.responses[0].partitions
        assert (data.error_code, bytes(data.records or b"")) == (DENIED, b"")
        assert fetched_at_ms(2) == before_ms, "it would stay in every ISR"
        assert not rig.broker(1).sessions.is_of_follower(answer.session_id)

    on_secured(story, brokers=3)


@pytest.mark.feature("SE-09")
def test_a_refused_producer_without_acks_loses_its_connection() -> None:
    async def story(rig: Rig) -> None:
        await rig.create("t")
        alice = await user_who_may(rig, "topic t READ")
        with pytest.raises(ChannelError):
            await alice.ask(produce_request("t", batch("value"), acks=0), 9)
        assert rig.partition(1, "t").log.log_end_offset == 0

    on_secured(story)


@pytest.mark.feature("SE-09")
def test_a_large_transactional_request_is_refused_partition_by_partition() -> None:
    async def story(rig: Rig) -> None:
        alice = await user_who_may(rig, "topic t WRITE")
        records = batch("value", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        asked = produce_request("t", records)
        data = asked.topic_data[0].partition_data
        asked.topic_data[0].partition_data = [copy_with(data[0], index=index) for index in range(MANY)]
        asked.transactional_id = "x"
        answer = await alice.ask(asked, 9)
        codes = [it.error_code for it in answer.responses[0].partition_responses]
        assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * MANY

    on_secured(story)


@pytest.mark.feature("SE-09")
def test_rights_on_very_many_topics_are_checked_in_short_steps() -> None:
    async def story(rig: Rig) -> None:
        alice = await user_who_may(rig, "topic t1 DESCRIBE + topic t2 DESCRIBE")
        names = [f"t{number}" for number in range(MANY)]
        requests = [
            (MetadataRequest(topics=[MetadataRequestTopic(name=it) for it in names]), 12),
            (DescribeTopicPartitionsRequest(topics=[TopicRequest(name=it) for it in names]), 0),
            (DescribeGroupsRequest(groups=names), 5),
        ]
        rig.steps.clear()
        for request, version in requests:
            answer = await alice.ask(request, version)
            answered = answer.groups if version == 5 else answer.topics
            assert len(answered) == MANY
        for api, calls in rig.steps.items():
            assert max(calls) <= MOST_CALLS, api

    on_secured(story, counts_work=True)


@pytest.mark.feature("SE-09")
def test_without_an_authorizer_nothing_is_asked() -> None:
    """Questions about many names have one answer, which is no closure and remembers nothing."""

    class Unrestricted:
        has_authorizer = False

    call: Any = Unrestricted()
    asked = [
        may_on_topics(call, AclOperation.READ),
        may_on_topics(call, AclOperation.WRITE),
        may_on_groups(call, AclOperation.READ),
    ]
    assert len(set(asked)) == 1
    assert not isinstance(asked[0], partial)
    assert asked[0]("anything")


@pytest.mark.feature("SE-08")
def test_one_connection_for_each_user() -> None:
    """Rights belong to the principal of the request, not to the connection that asked first."""

    async def story(rig: Rig) -> None:
        await rig.create("t")
        alice = await user_who_may(rig, "topic t DESCRIBE")
        bob = User(rig, "bob")
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        assert (await alice.ask(asked, 12)).topics[0].error_code == ErrorCode.NONE
        assert (await bob.ask(asked, 12)).topics[0].error_code == DENIED
        assert (await alice.ask(asked, 12)).topics[0].error_code == ErrorCode.NONE

    on_secured(story)
