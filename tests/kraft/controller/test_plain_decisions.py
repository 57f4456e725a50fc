"""Decisions about partitions of a cluster in any state, beside plain statements of what each must make of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.controller.partition_change import Election
from barnabas.kraft.controller.partitions import TOPICS_PER_ITEM
from barnabas.kraft.controller.request_limits import COUNTED_PER_ITEM
from barnabas.kraft.controller.state import ControllerResult
from barnabas.kraft.full_directories import report_full
from barnabas.kraft.metadata.image import LEADER_RECOVERED, LEADER_RECOVERING, NO_LEADER, PartitionImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_partition as alter
from barnabas.protocol.messages import alter_partition_reassignments as reassign
from barnabas.protocol.messages import assign_replicas_to_dirs as assign
from barnabas.protocol.messages import elect_leaders as elect
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.schema import Message
from tests.examples import examples
from tests.kraft.controller.conftest import PlainPace, finish
from tests.kraft.controller.plain_cluster import (
    BROKERS,
    FOREIGN,
    TOPICS,
    Expected,
    Moves,
    Place,
    Scene,
    directories_of,
)
from tests.kraft.controller.test_plain_changes import some_of

SELDOM = st.sampled_from([0, 0, 0, 0, 0, 1, -1])
"""Added to an epoch."""
STEP_ITEMS, REPLICAS_PER_ITEM = 2, 2
"""Steps are short here."""


def asked_places(scene: Scene) -> list[Place]:
    """Some partitions, each once; perhaps some that do not exist."""
    known = [*scene.places(), ("a", 7), ("c", 0)]
    return list(some_of(scene.draw, tuple(known), least=1))  # type: ignore[arg-type]


def check_steps(scene: Scene, result: ControllerResult[Message], pace: PlainPace) -> None:
    """The decision took as many steps as its items fill, and one more for the rest."""
    assert scene.steps == 1 + pace.steps and result.is_long == (pace.steps > 0)


def by_topic(places: list[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, index in places:
        found.setdefault(name, []).append(index)
    return found


# -- AlterPartition


def a_proposal(scene: Scene, place: Place, leader: int) -> alter.RequestPartitionData:
    draw = scene.draw
    partition = scene.image.topics.partition(*place)
    if partition is None:
        return alter.RequestPartitionData(partition_index=place[1])
    isr = [leader, *(it for it in partition.replicas if it != leader and draw(st.integers(0, 3)))]
    if draw(st.integers(0, 5)) == 0:
        isr = [draw(st.sampled_from(BROKERS)) for _ in range(3)]
    members = []
    for broker in isr:
        known = scene.image.cluster.brokers.get(broker)
        epoch = -1 if known is None else known.epoch
        members.append(alter.BrokerState(broker_id=broker, broker_epoch=draw(st.sampled_from([epoch] * 9 + [-1, 3]))))
    recovery = draw(st.sampled_from([partition.leader_recovery_state] * 4 + [0, 1, 2]))
    return alter.RequestPartitionData(
        partition_index=place[1],
        leader_epoch=partition.leader_epoch + draw(SELDOM),
        partition_epoch=partition.partition_epoch + draw(SELDOM),
        new_isr=isr,
        new_isr_with_epochs=members,
        leader_recovery_state=recovery,
    )


def error_of(scene: Scene, place: Place, leader: int, wanted: alter.RequestPartitionData, version: int) -> ErrorCode:
    """The first of the rules that a proposal breaks."""
    if place[0] not in scene.image.topics.by_name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = scene.topic(place).partitions.get(place[1])
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    isr = [it.broker_id for it in wanted.new_isr_with_epochs]

    def is_eligible(member: alter.BrokerState) -> bool:
        broker = scene.image.cluster.brokers.get(member.broker_id)
        epoch = member.broker_epoch if version >= 3 else -1
        return (
            broker is not None
            and broker.active
            and epoch in (-1, broker.epoch)
            and (member.broker_id in partition.isr or scene.has_room(partition, member.broker_id))
        )

    recovery = wanted.leader_recovery_state
    rules = [
        (wanted.leader_epoch > partition.leader_epoch, ErrorCode.NOT_CONTROLLER),
        (wanted.partition_epoch > partition.partition_epoch, ErrorCode.NOT_CONTROLLER),
        (wanted.leader_epoch != partition.leader_epoch, ErrorCode.FENCED_LEADER_EPOCH),
        (leader != partition.leader, ErrorCode.INVALID_REQUEST),
        (wanted.partition_epoch != partition.partition_epoch, ErrorCode.INVALID_UPDATE_VERSION),
        (leader not in isr or len(isr) > len(set(isr)), ErrorCode.INVALID_REQUEST),
        (not set(isr) <= set(partition.replicas), ErrorCode.INVALID_REQUEST),
        (recovery not in (LEADER_RECOVERED, LEADER_RECOVERING), ErrorCode.INVALID_REQUEST),
        (recovery == LEADER_RECOVERING and isr != [leader], ErrorCode.INVALID_REQUEST),
        (recovery == LEADER_RECOVERING != partition.leader_recovery_state, ErrorCode.INVALID_REQUEST),
        (not all(map(is_eligible, wanted.new_isr_with_epochs)), ErrorCode.INELIGIBLE_REPLICA),
    ]
    return next((code for is_broken, code in rules if is_broken), ErrorCode.NONE)


def alter_partition(scene: Scene) -> None:
    draw = scene.draw
    leaders = [scene.partition(it).leader for it in scene.places()]
    leader = draw(st.sampled_from([it for it in leaders if it in scene.image.cluster.brokers] or [1]))
    version = draw(st.sampled_from([2, 3]))
    places = asked_places(scene)
    epoch = scene.image.cluster.brokers[leader].epoch + draw(SELDOM)
    request = alter.AlterPartitionRequest(broker_id=leader, broker_epoch=epoch)
    for name, indexes in by_topic(places).items():
        proposals = [a_proposal(scene, (name, index), leader) for index in indexes]
        request.topics.append(alter.RequestTopicData(topic_id=TOPICS.get(name, b"?" * 16), partitions=proposals))
    pace = PlainPace(STEP_ITEMS)
    for place in places if epoch == scene.image.cluster.brokers[leader].epoch else ():
        pace.add(int(place[0] in TOPICS))
    result = scene.decide(request, version)
    response = result.response
    assert isinstance(response, alter.AlterPartitionResponse)
    check_steps(scene, result, pace)
    if epoch != scene.image.cluster.brokers[leader].epoch:
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH and not result.records
        return
    expected: Expected = {}
    for topic, (name, _) in zip(request.topics, by_topic(places).items(), strict=True):
        answer = next(it for it in response.topics if it.topic_id == topic.topic_id)
        for wanted, found in zip(topic.partitions, answer.partitions, strict=True):
            place = (name, wanted.partition_index)
            code = error_of(scene, place, leader, wanted, version)
            if code is ErrorCode.NONE:
                change = scene.change(place, isr=tuple(it.broker_id for it in wanted.new_isr_with_epochs))
                change.leader_recovery_state = wanted.leader_recovery_state
                if scene.is_unclean(name):
                    change.election = Election.UNCLEAN
                after = expected[place] = scene.after(change)
                if after.leader != leader:
                    code = ErrorCode.NEW_LEADER_ELECTED
            assert (found.partition_index, found.error_code) == (place[1], code)
            if code is ErrorCode.NONE:
                assert as_answered(found) == as_answered(expected[place])
    scene.take(result, expected)


def as_answered(it: alter.ResponsePartitionData | PartitionImage) -> tuple[object, ...]:
    leader = it.leader if isinstance(it, PartitionImage) else it.leader_id
    return leader, it.leader_epoch, list(it.isr), it.leader_recovery_state, it.partition_epoch


# -- reassignments


def begun(scene: Scene, place: Place, wanted: list[int], *, may_grow: bool) -> PartitionImage | ErrorCode:
    partition = scene.partition(place)
    if not may_grow and len(wanted) != len(set(partition.replicas) - set(partition.removing_replicas)):
        return ErrorCode.INVALID_REPLICATION_FACTOR
    if not wanted or len(set(wanted)) < len(wanted) or not set(wanted) <= scene.image.cluster.brokers.keys():
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    held = set(partition.replicas) - set(partition.adding_replicas)
    leaving = tuple(sorted(set(partition.replicas) - set(wanted)))
    change = scene.change(place, removing_replicas=leaving, adding_replicas=tuple(sorted(set(wanted) - held)))
    change.replicas = (*wanted, *leaving)
    return scene.after(change)


def cancelled(scene: Scene, place: Place) -> PartitionImage | ErrorCode:
    partition = scene.partition(place)
    if not partition.adding_replicas and not partition.removing_replicas:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    original = tuple(it for it in partition.replicas if it not in partition.adding_replicas)
    isr = tuple(it for it in partition.isr if it in original)
    unclean = scene.is_unclean(place[0])
    if partition.isr and not isr:
        if not (unclean and original):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        isr = (original[0],)
    change = scene.change(place, replicas=original, isr=isr, adding_replicas=(), removing_replicas=())
    change.election = Election.UNCLEAN if unclean else Election.ONLINE
    return scene.after(change)


def reassignments(scene: Scene) -> None:
    draw = scene.draw
    may_grow = draw(st.booleans())
    asked: dict[Place, list[int] | None] = {}
    for place in asked_places(scene):
        wanted: list[int] | None = list(some_of(draw, BROKERS, least=1))
        if draw(st.integers(0, 4)) == 0:
            wanted = draw(st.sampled_from([[], [1, 1], [1, 99], [2, 3, 2]]))
        partition = scene.image.topics.partition(*place)
        moving = partition is not None and partition.is_reassigning
        asked[place] = None if draw(st.integers(0, 1 if moving else 4)) == 0 else wanted
    request = reassign.AlterPartitionReassignmentsRequest(allow_replication_factor_change=may_grow)
    for name, indexes in by_topic(list(asked)).items():
        partitions = [reassign.ReassignablePartition(partition_index=it, replicas=asked[name, it]) for it in indexes]
        request.topics.append(reassign.ReassignableTopic(name=name, partitions=partitions))
    pace = PlainPace(STEP_ITEMS)
    for _ in request.topics:
        pace.add(per_item=COUNTED_PER_ITEM)
    for topic in request.topics:
        for each in topic.partitions:
            pace.add(1 + len(each.replicas or ()) // REPLICAS_PER_ITEM)
    result = scene.decide(request)
    response = result.response
    assert isinstance(response, reassign.AlterPartitionReassignmentsResponse)
    check_steps(scene, result, pace)
    assert response.allow_replication_factor_change == may_grow
    answers = {(it.name, each.partition_index): each for it in response.responses for each in it.partitions}
    assert answers.keys() == asked.keys()
    expected: Expected = {}
    for place, replicas in asked.items():
        after: PartitionImage | ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if place in scene.places():
            after = cancelled(scene, place) if replicas is None else begun(scene, place, replicas, may_grow=may_grow)
        if isinstance(after, PartitionImage):
            expected[place], after = after, ErrorCode.NONE
        assert answers[place].error_code == after
        assert (answers[place].error_message is None) == (after is ErrorCode.NONE)
    scene.take(result, expected)


# -- elections


def elections(scene: Scene) -> None:
    draw = scene.draw
    kind = draw(st.integers(0, 2))
    every = draw(st.booleans())
    places = scene.places() if every else asked_places(scene)
    topics = [elect.TopicPartitions(topic=name, partitions=found) for name, found in by_topic(places).items()]
    request = elect.ElectLeadersRequest(election_type=kind, topic_partitions=None if every else topics)
    pace = PlainPace(STEP_ITEMS)
    for _ in topics:
        pace.add(per_item=TOPICS_PER_ITEM if every else COUNTED_PER_ITEM)
    for _ in places if kind < 2 else ():
        pace.add()
    result = scene.decide(request)
    response = result.response
    assert isinstance(response, elect.ElectLeadersResponse)
    if kind == 2:
        assert response.error_code == ErrorCode.INVALID_REQUEST and not result.records
        return
    check_steps(scene, result, pace)
    found = {
        (it.topic, each.partition_id): (ErrorCode(each.error_code), each.error_message)
        for it in response.replica_election_results
        for each in it.partition_result
    }
    expected: Expected = {}
    codes: dict[Place, ErrorCode] = {}
    for place in places:
        if place not in scene.places():
            codes[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        partition = scene.partition(place)
        if partition.leader == partition.replicas[0] if kind == 0 else partition.leader != NO_LEADER:
            if not every:
                codes[place] = ErrorCode.ELECTION_NOT_NEEDED
            continue
        election = Election.PREFERRED if kind == 0 else Election.UNCLEAN
        after = expected[place] = scene.after(scene.change(place, election=election))
        missing = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if kind == 0 else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        codes[place] = missing if after == partition else ErrorCode.NONE
    assert {place: code for place, (code, _) in found.items()} == codes
    reasons = {
        (ErrorCode.NONE, kind): None,
        (ErrorCode.ELECTION_NOT_NEEDED, 0): "the preferred leader leads already",
        (ErrorCode.ELECTION_NOT_NEEDED, 1): "the partition has a leader",
        (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 0): "the preferred leader is not in sync or not active",
        (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, 1): "no replica is active",
    }
    for (name, index), (code, reason) in found.items():
        assert reason == reasons.get((code, kind), f"there is no partition {name}-{index}")
    cause = f"{'a preferred' if kind == 0 else 'an unclean'} election, a client asked for it"
    assert all(cause in note.cause for note in result.notes)
    scene.take(result, expected)


def balance(scene: Scene) -> None:
    """Periodic work: each kind of it, when its time has come and not before."""
    controller, cluster = scene.cluster.controller, scene.cluster
    for broker in scene.image.cluster.brokers.values():
        if not broker.fenced and not controller.sessions.is_valid(broker.id, broker.epoch, cluster.now_ms + 300_000):
            controller.sessions.touch(broker.id, broker.epoch, 0, cluster.now_ms + 300_000)
    cluster.now_ms += 299_999
    early = finish(controller.run_periodic(len(cluster.log), cluster.now_ms))
    assert not [it for it in early.notes if it.subject.startswith(("a-", "b-"))]
    cluster.now_ms += 1
    for kind in (0, 1):
        expected: Expected = {}
        for place in scene.places():
            partition = scene.partition(place)
            if kind == 0 and partition.leader != partition.replicas[0]:
                expected[place] = scene.after(scene.change(place, election=Election.PREFERRED))
            if kind == 1 and partition.leader == NO_LEADER and scene.election(place[0], partition) is Election.UNCLEAN:
                expected[place] = scene.after(scene.change(place, election=Election.UNCLEAN))
        result = finish(controller.run_periodic(len(cluster.log), cluster.now_ms))
        assert result.response
        scene.take(result, expected)  # type: ignore[arg-type]
    for _ in range(5):
        result = finish(controller.run_periodic(len(cluster.log), cluster.now_ms))
        cluster.append(result)
    due_ms = controller.next_periodic_ms(cluster.now_ms)
    assert not result.response and due_ms is not None and due_ms > cluster.now_ms, "all is done for now"


# -- directories


def assign_directories(scene: Scene) -> None:
    draw = scene.draw
    broker = draw(st.sampled_from(sorted(scene.image.cluster.brokers)))
    request = assign.AssignReplicasToDirsRequest(
        broker_id=broker, broker_epoch=scene.image.cluster.brokers[broker].epoch
    )
    wanted = {place: draw(st.sampled_from([*directories_of(broker), FOREIGN])) for place in asked_places(scene)}
    for directory in dict.fromkeys(wanted.values()):
        asked = assign.RequestDirectoryData(id=directory)
        for name, indexes in by_topic([it for it in wanted if wanted[it] == directory]).items():
            partitions = [assign.RequestPartitionData(partition_index=it) for it in indexes]
            asked.topics.append(assign.RequestTopicData(topic_id=TOPICS.get(name, b"?" * 16), partitions=partitions))
        request.directories.append(asked)
    result = scene.decide(request)
    response = result.response
    assert isinstance(response, assign.AssignReplicasToDirsResponse)
    names = {topic_id: name for name, topic_id in TOPICS.items()} | {b"?" * 16: "c"}
    found = {
        (names[topic.topic_id], each.partition_index): (it.id, each.error_code)
        for it in response.directories
        for topic in it.topics
        for each in topic.partitions
    }
    codes: dict[Place, ErrorCode] = {}
    for place in wanted:
        partition = scene.image.topics.partition(*place)
        codes[place] = ErrorCode.NONE
        if place[0] not in TOPICS:
            codes[place] = ErrorCode.UNKNOWN_TOPIC_ID
        elif partition is None:
            codes[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif broker not in partition.replicas:
            codes[place] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert found == {place: (wanted[place], codes[place]) for place in wanted}
    online = scene.image.cluster.brokers[broker].log_directories
    expected: Expected = {}
    for place, code in codes.items():
        if code is ErrorCode.NONE:
            expected[place] = assigned(scene, place, broker, wanted[place], is_online=wanted[place] in online)
    scene.take(result, expected)  # type: ignore[arg-type]


def assigned(scene: Scene, place: Place, broker: int, directory: bytes, *, is_online: bool) -> PartitionImage:
    """The partition with that directory; if it is offline, the broker leaves the ISR as well."""
    partition = scene.partition(place)
    if partition.directory_of(broker) != directory:
        directories = list(partition.directories)
        directories[partition.replicas.index(broker)] = directory
        epoch = partition.partition_epoch + 1
        partition = replace(partition, directories=tuple(directories), partition_epoch=epoch)
    if is_online:
        return partition
    change = scene.change(place, Moves(leaving=(broker,)), partition)
    change.isr = tuple(it for it in partition.isr if it != broker)
    change.election = scene.election(place[0], partition)
    return scene.after(change)


# -- brokers


def brokers_leave(scene: Scene) -> None:
    """A process is gone, or an administrator removes it."""
    broker = scene.draw(st.sampled_from(sorted(scene.image.cluster.brokers)))
    known = scene.image.cluster.brokers[broker]
    held = [place for place in scene.places() if broker in scene.partition(place).isr]
    expected = scene.moved(Moves(leaving=(broker,)), held)
    leads = {place: scene.partition(place).leader == broker for place in held}
    led_first = sorted(held, key=lambda place: not leads[place])
    order = [place for place in led_first if expected[place] != scene.partition(place)]
    if scene.draw(st.booleans()):
        result = scene.decide(UnregisterBrokerRequest(broker_id=broker))
        assert scene.changed(result) == order
        scene.take(result, expected, broker)
        assert broker not in scene.image.cluster.brokers
    else:
        fenced = scene.cluster.fence(broker, known.epoch)
        assert fenced.response == (not known.fenced)
        assert scene.changed(fenced) == ([] if known.fenced else order)  # type: ignore[arg-type]
        scene.take(fenced, {} if known.fenced else expected, broker)  # type: ignore[arg-type]
        assert scene.image.cluster.brokers[broker].fenced


def sessions_end(scene: Scene) -> None:
    """Some brokers are silent for too long. With ELR all are fenced together, without it one after the other."""
    cluster, sessions = scene.cluster, scene.cluster.controller.sessions
    serving = [it for it in scene.image.cluster.brokers.values() if not it.fenced]
    cluster.now_ms += sessions.session_timeout_ms + 1
    silent: list[tuple[int, int]] = []
    for broker in serving:
        session = sessions.get(broker.id)
        assert session is not None
        session.last_contact_ms = cluster.now_ms - sessions.session_timeout_ms - scene.draw(st.integers(-1, 2))
        if cluster.now_ms > session.last_contact_ms + sessions.session_timeout_ms:
            silent.append((session.last_contact_ms, broker.id))
    left = [broker for _, broker in sorted(silent)]
    while left:
        together = left if scene.has_elr else left[:1]
        held = [place for place in scene.places() if {*together} & {*scene.partition(place).isr}]
        expected = scene.moved(Moves(leaving=tuple(together)), held)
        result = finish(cluster.controller.run_periodic(len(cluster.log), cluster.now_ms))
        assert result.response
        scene.take(result, expected, *together)  # type: ignore[arg-type]
        left = left[len(together) :]
        fenced = [it.id for it in serving if scene.image.cluster.brokers[it.id].fenced]
        assert {*fenced} == {broker for _, broker in silent} - {*left}


def broker_returns(scene: Scene) -> None:
    """A new process of a broker registers, which stopped cleanly or not."""
    draw = scene.draw
    broker = draw(st.sampled_from(BROKERS))
    known = scene.image.cluster.brokers.get(broker)
    scene.cluster.controller.sessions.end(broker)
    was_clean = draw(st.booleans()) and known is not None
    directories = directories_of(broker)[: draw(st.integers(1, 2))]
    request = scene.cluster.registration(broker, log_dirs=list(directories))
    if was_clean and known is not None:
        request.previous_broker_epoch = known.epoch
    expected: Expected = {}
    for place in scene.places():
        partition = scene.partition(place)
        if broker not in (*partition.isr, *partition.elr):
            continue
        lost = scene.has_elr and not was_clean
        if scene.has_elr and was_clean:
            directory = partition.directory_of(broker)
            lost = not (directory in directories or directory == bytes(15) + b"\1")
        moves = Moves(unclean=broker, directories=directories) if lost else Moves(leaving=(broker,))
        if lost or broker in partition.isr:
            expected |= scene.moved(moves, [place])
    result = scene.decide(request)
    scene.take(result, expected, broker)
    after = scene.image.cluster.brokers[broker]
    assert after.fenced and after.log_directories == tuple(sorted(directories))
    assert after.epoch == len(scene.cluster.log) - 1, "the offset of the registration"


def beats(scene: Scene) -> None:
    """A heartbeat: the broker wants to be fenced, to stop, to serve, or has lost a log directory."""
    draw = scene.draw
    broker = draw(st.sampled_from(sorted(scene.image.cluster.brokers)))
    known = scene.image.cluster.brokers[broker]
    request = BrokerHeartbeatRequest(
        broker_id=broker, broker_epoch=known.epoch, current_metadata_offset=known.epoch + draw(st.integers(-1, 1))
    )
    leads = any(scene.partition(place).leader == broker for place in scene.places())
    held = [place for place in scene.places() if broker in scene.partition(place).isr]
    leaves = scene.moved(Moves(leaving=(broker,)), held)
    session = scene.cluster.controller.sessions.get(broker)
    if session is not None:
        session.full_directories = ()
        leaves = scene.moved(Moves(leaving=(broker,)), held)
    expected: Expected = {}
    stops = False
    cordoned = known.cordoned_log_directories
    wish = draw(st.sampled_from(["fence", "stop", "serve", "lost", "cordon"]))
    if wish == "fence":
        request.want_fence = True
        expected = {} if known.fenced else leaves
    elif wish == "stop":
        request.want_shut_down = True
        stops = known.fenced or not leads
        expected = {} if known.fenced else leaves
    elif wish == "lost":
        request.want_fence = known.fenced
        request.offline_log_dirs = [known.log_directories[0]]
        lost = [place for place in held if scene.partition(place).directory_of(broker) == known.log_directories[0]]
        expected = scene.moved(Moves(leaving=(broker,)), lost)
    elif wish == "cordon":
        request.want_fence = known.fenced
        request.cordoned_log_dirs = list(some_of(draw, known.log_directories))
        cordoned = tuple(sorted(request.cordoned_log_dirs)) if scene.level >= 30 else ()
    elif known.fenced and request.current_metadata_offset >= known.epoch:
        leaderless = [place for place in scene.places() if scene.partition(place).leader == NO_LEADER]
        expected = scene.moved(Moves(returning=(broker,)), leaderless)
    result = scene.decide(request)
    assert bool(result.records) == (cordoned != known.cordoned_log_directories) or wish != "cordon"
    scene.take(result, expected, broker)
    after = scene.image.cluster.brokers[broker]
    assert after.cordoned_log_directories == cordoned
    if wish == "lost" and result.records:
        (note,) = [it for it in result.notes if it.subject == f"broker {broker}"]
        left = len(known.log_directories) - 1
        assert note.text == f"1 log directories of broker {broker} are offline, {left} remain"
        assert note.facts["partitions"] == len(lost)
    assert result.response.should_shut_down == stops  # type: ignore[attr-defined]
    is_served = wish == "serve" and request.current_metadata_offset >= known.epoch
    begins_to_stop = wish == "stop" and not stops
    gone = wish in ("fence", "stop") and not begins_to_stop
    assert after.fenced == ((known.fenced and not is_served) or gone)
    if wish == "lost" and len(known.log_directories) > 1:
        assert after.log_directories == known.log_directories[1:]


def fills(scene: Scene) -> None:
    """A heartbeat reports which log directories are full: others lead there, and no write waits for such a replica."""
    draw = scene.draw
    broker = draw(st.sampled_from(sorted(scene.image.cluster.brokers)))
    known = scene.image.cluster.brokers[broker]
    request = BrokerHeartbeatRequest(broker_id=broker, broker_epoch=known.epoch, current_metadata_offset=known.epoch)
    request.want_fence = known.fenced
    reported = some_of(draw, (*directories_of(broker), FOREIGN))
    report_full(request, reported)
    full = tuple(sorted({*reported} & {*known.log_directories}))
    session = scene.cluster.controller.sessions.get(broker)
    before = () if session is None else session.full_directories
    expected: Expected = {}
    if session is not None and not known.fenced:
        session.full_directories = full
        for place in scene.places():
            partition = scene.partition(place)
            if broker not in partition.isr or scene.has_room(partition, broker):
                continue
            change = scene.change(place)
            room = tuple(it for it in partition.isr if scene.has_room(partition, it))
            able = [it for it in room if scene.may_lead(partition, it, Moves())]
            if able:
                change.isr = room if len(able) >= change.rules.min_insync_replicas else partition.isr
                expected[place] = scene.after(change)
        session.full_directories = before
    result = scene.decide(request)
    notes = [(it.text, it.cause) for it in result.notes if it.subject == f"broker {broker}"]
    may = "may lead only where nobody else in sync can" if full else "has room"
    why = f"{len(full)} log directories of broker {broker} are full" if full else "all of them have room again"
    noted = [(f"broker {broker} {may}", f"its heartbeat reports it: {why}")]
    assert notes == (noted if full != before else [])
    scene.take(result, expected, broker)
    assert scene.full(broker) == full


DECISIONS = (
    alter_partition,
    alter_partition,
    reassignments,
    reassignments,
    elections,
    balance,
    assign_directories,
    brokers_leave,
    sessions_end,
    broker_returns,
    beats,
    fills,
)


@pytest.mark.feature("RE-08", "RE-18", "RE-19", "MB-13")
@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_a_decision_makes_of_each_partition_what_the_rules_state(data: st.DataObject) -> None:
    scene = Scene(data.draw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("barnabas.kraft.controller.state.STEP_ITEMS", STEP_ITEMS)
        patch.setattr("barnabas.kraft.controller.reassignment.REPLICAS_PER_ITEM", REPLICAS_PER_ITEM)
        for _ in range(data.draw(st.integers(1, 3))):
            data.draw(st.sampled_from(DECISIONS))(scene)
