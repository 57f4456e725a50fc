"""Streams groups (KIP-1071) as their coordinator's machine keeps them: members, topologies, tasks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from barnabas.broker.coordinator.outcome import Reply
from barnabas.broker.groups.streams.configured_topology import Status
from barnabas.broker.groups.streams.topology import ELEMENTS_OF_ONE_STEP
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.delete_groups import DeletableGroupResult
from barnabas.protocol.messages.group_log import GroupMetadataKey, GroupMetadataValue
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.streams_group_heartbeat import Topology
from tests.broker.groups.offset_words import commit, delete_offsets, everything, fetch
from tests.broker.groups.streams_rig import (
    CLIENT,
    COUNTING,
    Streams,
    endpoint,
    statuses,
    subtopology,
    tags,
    tasks,
    topology,
)

pytestmark = pytest.mark.feature("CG-20")


def counting(partitions: int = 3, **settings: str) -> Streams:
    app = Streams(**settings)
    app.bench.create_topic("words", partitions=partitions)
    return app


def refused(code: ErrorCode, call: Callable[[], object]) -> str:
    """The message of the error."""
    with pytest.raises(KafkaError) as raised:
        call()
    assert raised.value.code is code, raised.value
    return raised.value.message or ""


# -- members


def test_the_first_member_gets_all_tasks() -> None:
    app = counting()
    joined = app.join("a")
    assert (joined.member_epoch, joined.heartbeat_interval_ms, statuses(joined)) == (2, 5000, [])
    assert tasks(joined) == ({"0": [0, 1, 2]}, {})
    assert app.group.state_name() == "Stable"
    again = app.beat("a", 2, ({"0": [0, 1, 2]}, {}))
    assert tasks(again) is None, "nothing has changed"


def test_a_second_member_gets_a_task_once_the_first_has_stopped_it() -> None:
    app = counting(4)
    app.join("a")
    joined = app.join("b")
    assert tasks(joined) == ({}, {}), "they are still with a"
    assert app.group.state_name() == "Reconciling"
    revoked = app.beat("a", 2)
    assert (revoked.member_epoch, tasks(revoked)) == (2, ({"0": [0, 1]}, {}))
    assert tasks(app.beat("b", joined.member_epoch)) is None
    assert app.beat("a", 2, ({"0": [0, 1]}, {})).member_epoch == 3
    assert tasks(app.beat("b", joined.member_epoch)) == ({"0": [2, 3]}, {})
    assert app.group.state_name() == "Stable"
    described = {it.member_id: it.assignment.active_tasks[0].partitions for it in app.describe().members}
    assert described == {"a": [0, 1], "b": [2, 3]}


def test_a_member_that_leaves_hands_its_tasks_over() -> None:
    app = counting(2)
    app.join("a")
    app.join("b")
    app.beat("a", 2)
    app.beat("a", 2, ({"0": [0]}, {}))
    app.beat("b", 3)
    left = app.leave("a")
    assert (left.member_epoch, left.status) == (-1, [])
    assert tasks(app.beat("b", 3)) == ({"0": [0, 1]}, {})
    app.leave("b")
    assert app.group.state_name() == "Empty"
    refused(ErrorCode.UNKNOWN_MEMBER_ID, lambda: app.leave("b"))


def test_a_silent_member_is_fenced_and_so_is_one_that_does_not_stop_its_tasks() -> None:
    app = counting(2)
    app.join("a", rebalance_timeout_ms=20_000)
    app.bench.advance(30_000)
    app.beat("a", 2)
    app.bench.advance(30_000)
    assert app.group.members, "a heartbeat restarts the session"
    app.join("b")
    assert app.beat("a", 2).member_epoch == 2
    app.bench.advance(10_000)
    app.beat("a", 2, ({"0": [0, 1]}, {}))
    app.bench.advance(10_000)
    assert list(app.group.members) == ["b"], "a still has both tasks"
    refused(ErrorCode.UNKNOWN_MEMBER_ID, lambda: app.beat("a", 2))
    app.bench.advance(45_000)
    assert not app.group.members


def test_epochs_of_the_past_and_the_future_are_fenced() -> None:
    app = counting(2)
    app.join("a")
    app.join("b")
    refused(ErrorCode.FENCED_MEMBER_EPOCH, lambda: app.beat("a", 9))
    app.beat("a", 2)
    app.beat("a", 2, ({"0": [0]}, {}))
    late = app.beat("a", 2, ({"0": [0]}, {}))
    assert late.member_epoch == 3, "the answer with the new epoch may have been lost"
    refused(ErrorCode.FENCED_MEMBER_EPOCH, lambda: app.beat("a", 2, ({"0": [0, 1]}, {})))
    refused(ErrorCode.FENCED_MEMBER_EPOCH, lambda: app.beat("a", 2))
    rejoined = app.join("a")
    assert tasks(rejoined) == ({"0": [0]}, {}), "it keeps its tasks"


def test_an_assignment_whose_answer_was_lost_is_repeated() -> None:
    app = counting(2)
    app.join("a")
    app.join("b")
    app.beat("a", 2)
    assert tasks(app.beat("a", 2, ({"0": [0, 1]}, {}))) == ({"0": [0]}, {}), "it still has to stop a task"
    app.beat("a", 2, ({"0": [0]}, {}))
    app.beat("b", 3)
    assert tasks(app.beat("b", 3, ({}, {}))) == ({"0": [1]}, {})
    assert tasks(app.beat("b", 3, ({"0": [1]}, {}))) is None


def test_a_task_moves_from_one_member_of_a_process_to_another_only_when_it_is_stopped() -> None:
    app = counting(2)
    app.join("thread-1", process_id="p")
    joined = app.join("thread-2", process_id="p")
    assert tasks(joined) == ({}, {})
    app.beat("thread-1", 2)
    app.beat("thread-1", 2, ({"0": [0]}, {}))
    assert tasks(app.beat("thread-2", 3)) == ({"0": [1]}, {})


def test_standbys_are_in_other_processes_and_follow_the_groups_config() -> None:
    app = Streams(group__streams__num__standby__replicas="1")
    app.bench.create_topic("words", partitions=2)
    app.bench.create_topic("app-store-changelog", partitions=2)
    sent = topology(subtopology("0", ["words"], changelogs=["app-store-changelog"]))
    app.join("a", sent)
    app.join("b", sent)
    app.beat("a", 2)
    app.beat("a", 2, ({"0": [0]}, {}))
    app.beat("b", 3)
    app.beat("a", 3, ({"0": [0]}, {}))
    held = {it.member_id: it.assigned for it in app.group.members.values()}
    assert {it: dict(tasks.standby) for it, tasks in held.items()} == {"a": {"0": {1}}, "b": {"0": {0}}}
    assert app.group.state_name() == "Stable"


# -- the first assignment waits


def test_the_first_assignment_waits_for_members_that_join_together() -> None:
    app = Streams(group__streams__initial__rebalance__delay__ms="3000")
    app.bench.create_topic("words", partitions=2)
    for member_id in ("a", "b"):
        joined = app.join(member_id)
        assert (joined.member_epoch, statuses(joined), tasks(joined)) == (1, [Status.ASSIGNMENT_DELAYED], ({}, {}))
    assert app.group.state_name() == "Assigning"
    app.bench.advance(3000)
    assert app.group.assignment_epoch == 3
    assert tasks(app.beat("a", 1, ({}, {}))) == ({"0": [0]}, {})
    assert tasks(app.beat("b", 1, ({}, {}))) == ({"0": [1]}, {}), "no task had to move"


def test_a_group_that_is_deleted_while_it_waits_is_forgotten() -> None:
    app = Streams(group__streams__initial__rebalance__delay__ms="3000")
    app.bench.create_topic("words")
    app.join("a")
    app.leave("a")
    deleted = app.bench.ask(app.bench.machine.delete, "app")
    assert isinstance(deleted, DeletableGroupResult)
    assert not [key for key in app.bench.timers.waiting if "streams" in str(key)]
    assert app.bench.machine.groups.get("app") is None


def test_assignments_keep_their_interval() -> None:
    app = counting(4, group__streams__assignment__interval__ms="1000")
    app.join("a")
    joined = app.join("b")
    assert statuses(joined) == [Status.ASSIGNMENT_DELAYED]
    app.bench.advance(1000)
    assert statuses(app.beat("b", joined.member_epoch)) == []
    assert app.group.assignment_epoch == app.group.epoch


def test_a_large_assignment_is_computed_and_written_in_turns() -> None:
    app = Streams()
    app.bench.create_topic("words", partitions=600)
    joined = app.join("a")
    assert (statuses(joined), tasks(joined)) == ([Status.ASSIGNMENT_DELAYED], ({}, {}))
    turns = 0
    while app.group.assignment_epoch < app.group.epoch:
        app.bench.take_turn(("streams-assignment", "app"))
        turns += 1
    assert turns >= 6, "of 200 tasks each"
    assert tasks(app.beat("a", 1)) == ({"0": list(range(600))}, {})


def test_members_that_come_and_go_during_a_large_assignment() -> None:
    app = Streams()
    app.bench.create_topic("words", partitions=1200)
    for member_id in ("a", "b"):
        app.join(member_id)
    app.bench.take_turn(("streams-assignment", "app"))
    app.leave("b")
    app.join("c")
    app.bench.advance(1000)
    assert (app.group.assignment_epoch, app.group.epoch) == (3, 5), "it was computed for a and b"
    assert app.group.targets.keys() == {"a"}
    app.beat("c", 1)
    app.bench.broken = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    app.bench.advance(1000)
    assert app.group.assignment_epoch == 3
    app.bench.broken = None
    app.bench.advance(1000)
    assert (app.group.assignment_epoch, app.group.targets.keys()) == (5, {"a", "c"})
    app.bench.reload()
    assert {it: len(target.active["0"]) for it, target in app.group.targets.items()} == {"a": 600, "c": 600}


def test_each_epoch_and_each_assignment_has_a_decision_note() -> None:
    app = Streams()
    app.join("a")
    app.bench.create_topic("words")
    app.beat("a", 2)
    app.leave("a")
    assert [it.sentence for it in app.bench.decisions.since(0, "group app")] == [
        "group app begins epoch 2: a joined",
        "group app has a new target assignment of epoch 2 for 1 members: the previous one had epoch 1; assignor sticky",
        "group app begins epoch 3: partitions or racks of its topics have changed",
        "group app has a new target assignment of epoch 3 for 1 members: the previous one had epoch 2; assignor sticky",
        "group app begins epoch 4: a left; no members remain",
    ]


# -- topologies


def test_without_its_source_topics_a_group_is_not_ready() -> None:
    app = Streams()
    joined = app.join("a")
    assert statuses(joined) == [Status.MISSING_SOURCE_TOPICS]
    assert joined.status is not None and joined.status[0].status_detail == "Source topics words are missing."
    assert app.group.state_name() == "NotReady"
    app.bench.create_topic("words", partitions=2)
    ready = app.beat("a", joined.member_epoch)
    assert (statuses(ready), tasks(ready)) == ([], ({"0": [0, 1]}, {}))
    app.bench.delete_topic("words")
    lost = app.beat("a", ready.member_epoch)
    assert (statuses(lost), tasks(lost)) == ([Status.MISSING_SOURCE_TOPICS], ({}, {}))


def test_internal_topics_are_asked_for_with_the_partitions_that_they_need() -> None:
    app = Streams()
    app.bench.create_topic("words", partitions=3)
    sent = topology(
        subtopology("0", ["words"], sinks=["app-by-key-repartition"]),
        subtopology(
            "1", repartitions={"app-by-key-repartition": 0}, changelogs=["app-counts-changelog"]
        ),
    )
    joined = app.join("a", sent)
    assert statuses(joined) == [Status.MISSING_INTERNAL_TOPICS]
    asked = {it.name: (it.num_partitions, it.replication_factor) for it in app.missing}
    assert asked == {"app-by-key-repartition": (3, -1), "app-counts-changelog": (3, -1)}
    app.create_missing()
    assert tasks(app.beat("a", joined.member_epoch)) == ({"0": [0, 1, 2], "1": [0, 1, 2]}, {})
    assert app.missing == ()
    [first, second] = app.describe().topology.subtopologies or []
    assert [(it.name, it.partitions) for it in second.repartition_source_topics] == [("app-by-key-repartition", 3)]
    assert first.repartition_sink_topics == ["app-by-key-repartition"]


def test_a_topic_that_grows_brings_new_tasks_or_a_wrong_changelog() -> None:
    app = counting(2)
    app.join("a")
    app.bench.delete_topic("words")
    app.bench.create_topic("words", partitions=4)
    assert tasks(app.beat("a", 2)) == ({"0": [0, 1, 2, 3]}, {})


def test_copartitioned_topics_must_have_the_same_number_of_partitions() -> None:
    app = Streams()
    app.bench.create_topic("left", partitions=2)
    app.bench.create_topic("right", partitions=3)
    joined = app.join("a", topology(subtopology("0", ["left", "right"], copartitioned=[([0, 1], [])])))
    assert statuses(joined) == [Status.INCORRECTLY_PARTITIONED_TOPICS]
    assert joined.status is not None
    assert joined.status[0].status_detail == (
        "Following topics do not have the same number of partitions: [{left=2, right=3}]"
    )


def test_a_topology_has_bounds_and_is_read_in_short_steps() -> None:
    app = counting()
    many = topology(*(subtopology(str(i), ["words"], changelogs=[f"log-{i}"]) for i in range(1600)))
    steps = app.bench.machine.streams.preparations.prepare(app.joining("a", many))
    assert sum(1 for _ in steps) >= 4 * 1600 * 3 // ELEMENTS_OF_ONE_STEP
    too_many = topology(*(subtopology(str(i), ["words"]) for i in range(2501)))
    assert "at most 5000 elements" in refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, lambda: app.join("a", too_many))
    app.bench.create_topic("wide", partitions=20_001)
    too_wide = topology(subtopology("0", ["wide"]))
    assert "at most 20000 tasks" in refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, lambda: app.join("a", too_wide))


def test_the_groups_topology_stays_until_the_group_is_deleted() -> None:
    app = counting()
    app.join("a", topology(subtopology("0", ["words"]), epoch=2))
    stale = app.join("b", topology(subtopology("0", ["other"]), epoch=1))
    assert statuses(stale)[0] == Status.STALE_TOPOLOGY
    other = topology(subtopology("1", ["words"]), epoch=2)
    message = refused(ErrorCode.INVALID_REQUEST, lambda: app.join("c", other))
    assert message == "Topology updates are not supported yet."


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (topology(subtopology("0", repartitions={"r": 0}, sinks=["r"])), "loops in the topology"),
        (topology(subtopology("0", ["words"], repartitions={"r": 0})), "never used as a sink topic"),
        (topology(subtopology("0", ["words"]), subtopology("0", ["words"])), "each of its subtopologies once"),
        (topology(subtopology("0", changelogs=["log"])), "No source topics found for subtopology 0"),
        (topology(subtopology("0", ["words"], copartitioned=[([7], [])])), "refers to topic 7 of 1"),
    ],
)
def test_topologies_that_cannot_work_are_refused(sent: Topology, message: str) -> None:
    app = counting()
    assert message in refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, lambda: app.join("a", sent))
    assert app.bench.machine.groups.get("app") is None


# -- requests


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"instance_id": "i"}, "Static membership is not yet supported."),
        ({"task_offsets": []}, "TaskOffsets are not supported yet."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"client_tags": tags(zone="z" * 70_000)}, "must have at most 65536 characters"),
    ],
)
def test_requests_that_kafka_refuses(fields: dict[str, object], message: str) -> None:
    app = counting()
    assert message in refused(ErrorCode.INVALID_REQUEST, lambda: app.join("a", **fields))


def test_a_member_cannot_report_tasks_that_do_not_exist() -> None:
    app = counting(2)
    app.join("a")
    assert "Task 2 for" in refused(ErrorCode.INVALID_REQUEST, lambda: app.beat("a", 2, ({"0": [2]}, {})))
    assert "Subtopology 9" in refused(ErrorCode.INVALID_REQUEST, lambda: app.beat("a", 2, ({"9": [0]}, {})))


def test_a_group_has_room_for_so_many_members() -> None:
    app = counting(2, group__streams__max__size="1")
    app.join("a")
    refused(ErrorCode.GROUP_MAX_SIZE_REACHED, lambda: app.join("b"))
    assert app.join("a").error_code == 0, "it is a member already"


def test_a_shutdown_that_one_member_requests_reaches_all() -> None:
    app = counting(2)
    app.join("a")
    app.join("b")
    app.leave("b", shutdown_application=True)
    answer = app.beat("a", 2)
    assert statuses(answer) == [Status.SHUTDOWN_APPLICATION]
    app.leave("a")
    assert statuses(app.join("a")) == [], "the group was empty in between"


# -- endpoints


def test_members_learn_the_partitions_behind_each_endpoint() -> None:
    app = counting(2)
    app.join("a", user_endpoint=endpoint("host-a"))
    first = app.beat("a", 2, endpoint_information_epoch=0)
    assert first.endpoint_information_epoch == 0
    app.join("b", user_endpoint=endpoint("host-b"))
    app.beat("a", 2)
    app.beat("a", 2, ({"0": [0]}, {}))
    learned = app.beat("b", 3, endpoint_information_epoch=0)
    assert learned.endpoint_information_epoch > 0
    found = {
        it.user_endpoint.host: [(each.topic, each.partitions) for each in it.active_partitions]
        for it in learned.partitions_by_user_endpoint or ()
    }
    assert found == {"host-a": [("words", [0])], "host-b": [("words", [1])]}
    known = app.beat("b", 3, endpoint_information_epoch=learned.endpoint_information_epoch)
    assert known.partitions_by_user_endpoint is None


# -- other kinds of groups


def classic_join(app: Streams, *, group_id: str = "app") -> list[object]:
    """A member with the classic protocol joins; the answers so far."""
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    answers: list[object] = []
    reply = Reply(answers.append, answers.append)
    try:
        app.bench.run(partial(app.bench.machine.classic.join, request, CLIENT, 3, reply))
    except KafkaError as error:
        answers.append(error.code)
    return answers


def test_a_classic_group_becomes_a_streams_group_only_if_it_is_empty_and_the_other_way_round() -> None:
    app = counting()
    app.bench.write(GroupMetadataKey(group="app"), GroupMetadataValue(protocol_type="consumer", generation=7), 3)
    assert tasks(app.join("a")) == ({"0": [0, 1, 2]}, {})
    app.bench.reload()
    assert app.group.members.keys() == {"a"}, "the tombstone of the classic group comes first"
    assert classic_join(app) == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
    app.leave("a")
    assert classic_join(app) == [], "the empty streams group gives way"
    message = refused(ErrorCode.GROUP_ID_NOT_FOUND, lambda: app.join("a"))
    assert message == "Group app is not a streams group."


def test_a_streams_group_is_no_consumer_group() -> None:
    app = counting()
    app.join("a")
    request = ConsumerGroupHeartbeatRequest(
        group_id="app", member_id="c", subscribed_topic_names=["words"], rebalance_timeout_ms=1, topic_partitions=[]
    )
    response = app.bench.ask(app.bench.machine.consumer.heartbeat, request, CLIENT, 1)
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    described = app.bench.machine.describe_classic("app", 6).group
    assert (described.error_code, described.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert described.error_message == "Group app is not a classic group."


def test_it_is_listed_by_its_type_and_state() -> None:
    app = counting()
    app.join("a")
    for types, states, found in ((["streams"], [], 1), (["Streams"], ["stable"], 1), (["consumer"], [], 0)):
        request = ListGroupsRequest(types_filter=types, states_filter=states)
        listed = [it for it in app.bench.machine.listed(request) if it is not None]
        assert len(listed) == found
    assert (app.group.protocol_type, app.group.state_name()) == ("streams", "Stable")


# -- offsets


def test_members_commit_in_their_epoch_or_in_one_since_which_they_had_the_task() -> None:
    app = counting(2)
    app.join("a")
    app.join("b")
    app.beat("a", 2)
    app.beat("a", 2, ({"0": [0]}, {}))
    in_app = partial(commit, app.bench, "words", group="app")
    in_app(5, member="a", generation=3)
    in_app(6, member="a", generation=2)
    assert fetch(app.bench, "words", group="app") == 6
    refused(ErrorCode.STALE_MEMBER_EPOCH, lambda: in_app(7, member="a", generation=4))
    refused(ErrorCode.STALE_MEMBER_EPOCH, lambda: in_app(7, member="a", generation=1))
    refused(ErrorCode.STALE_MEMBER_EPOCH, lambda: in_app(7, partition=1, member="a", generation=2))
    refused(ErrorCode.UNKNOWN_MEMBER_ID, lambda: in_app(7, member="x", generation=3))
    refused(ErrorCode.UNKNOWN_MEMBER_ID, lambda: in_app(7))
    app.leave("a")
    app.leave("b")
    in_app(8)
    assert fetch(app.bench, "words", group="app") == 8, "an empty group takes offsets from tools"


def test_offsets_of_topics_that_tasks_read_stay_and_cannot_be_deleted() -> None:
    app = counting(1, offsets__retention__minutes="1")
    app.bench.create_topic("former")
    app.join("a")
    for topic in ("words", "former"):
        commit(app.bench, topic, 5, group="app", member="a", generation=2)
    app.bench.create_topic("unused")
    assert delete_offsets(app.bench, "words", 0, group="app") == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    for _ in range(30):
        app.bench.advance(30_000)
        app.beat("a", 2)
    assert everything(app.bench, "app") == {("words", 0): 5}


def test_an_empty_group_ends_with_its_last_offset() -> None:
    app = counting(1, offsets__retention__minutes="1")
    app.join("a")
    commit(app.bench, "words", 5, group="app", member="a", generation=2)
    app.leave("a")
    app.bench.advance(20 * 60_000)
    assert app.bench.machine.groups.get("app") is None
    app.bench.reload()
    assert list(app.bench.machine.offsets.all_groups()) == []


# -- the log


def test_a_new_coordinator_finds_the_same_group() -> None:
    app = Streams(group__streams__num__standby__replicas="1")
    app.bench.create_topic("words", partitions=2)
    app.bench.create_topic("log", partitions=2)
    sent = topology(subtopology("0", ["words"], changelogs=["log"]))
    app.join("a", sent, rack_id="r", client_tags=tags(zone="z"), user_endpoint=endpoint("h"))
    app.join("b", sent)
    app.beat("a", 2)
    before = app.describe()
    app.bench.reload()
    after = app.describe()
    assert (after.members, after.group_epoch, after.assignment_epoch) == (before.members, 3, 3)
    assert app.group.state_name() == "Reconciling"
    app.beat("a", 2, ({"0": [0]}, {}))
    assert tasks(app.beat("b", 3)) == ({"0": [1]}, {"0": [0]})
    assert app.group.epoch == 3, "nothing has changed but the coordinator"
    app.bench.advance(45_000)
    assert not app.group.members, "sessions go on"


def test_a_write_that_fails_leaves_the_group_as_it_was() -> None:
    app = counting()
    app.bench.broken = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, lambda: app.join("a"))
    assert app.bench.machine.groups.get("app") is None
    app.bench.broken = None
    assert tasks(app.join("a", COUNTING)) == ({"0": [0, 1, 2]}, {})
