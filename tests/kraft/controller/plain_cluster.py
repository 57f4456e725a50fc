"""A small cluster in any state that a controller may find, and plain statements of what a decision makes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from barnabas.kraft.controller.partition_change import Election, PartitionChange, PartitionRules
from barnabas.kraft.controller.partitions import list_partition_reassignments
from barnabas.kraft.controller.state import ControllerResult
from barnabas.kraft.metadata.features import SUPPORTED_FEATURES
from barnabas.kraft.metadata.image import (
    LEADER_RECOVERING,
    LOST_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from barnabas.kraft.metadata.snapshot import partition_record
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.metadata_log import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from barnabas.protocol.schema import Message
from barnabas.runtime.at_once import at_once
from barnabas.runtime.decisions import DecisionKind
from tests.kraft.controller.conftest import Cluster, finish
from tests.kraft.controller.test_plain_changes import Draw, Wanted, a_partition, plain, some_of

BROKERS = (1, 2, 3, 4, 5)
TOPICS = {"a": b"a" * 16, "b": b"b" * 16}
FOREIGN = b"f" * 16
"""A directory that no broker has."""
UNCLEAN = "unclean.leader.election.enable"
SELDOM = st.integers(0, 5).map(lambda drawn: drawn == 5)

Place = tuple[str, int]
Expected = dict[Place, PartitionImage]
"""Partitions after a decision; the others stay as they are."""


def directories_of(broker: int) -> tuple[bytes, bytes]:
    return bytes([broker, 1]) * 8, bytes([broker, 2]) * 8


@dataclass(frozen=True)
class Moves:
    """Brokers that come and go with a decision."""

    leaving: tuple[int, ...] = ()
    returning: tuple[int, ...] = ()
    unclean: int = NO_LEADER
    """Came back after an unclean stop, with `directories`."""
    directories: tuple[bytes, ...] = ()


class Scene:
    """One controller; brokers, topics and configs that are drawn and written without asking it."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.has_elr = draw(st.booleans())
        self.level = draw(st.sampled_from([23, 29, 30, 30, 30] if self.has_elr else [17, 22, 29, 30, 30]))
        levels = {"metadata.version": self.level, "eligible.leader.replicas.version": int(self.has_elr)}
        self.cluster = Cluster(
            levels=levels, min_insync_replicas=draw(st.integers(1, 3)), unclean_leader_election_enable=draw(SELDOM)
        )
        records: list[Message] = []
        for broker in BROKERS:
            if broker == 1 or draw(st.integers(0, 5)):
                records.append(self._a_broker(broker))
        records += self._broker_configs()
        for name, topic_id in TOPICS.items():
            records.append(TopicRecord(name=name, topic_id=topic_id))
            records += self._configs(name)
            for index in range(draw(st.integers(1, 2))):
                records.append(partition_record(topic_id, index, self._a_partition(), self.level))
        self.cluster.append(ControllerResult(None, records))
        self.steps = 0
        """Steps of the last decision."""
        for broker_id, broker in self.image.cluster.brokers.items():
            if not broker.fenced:
                self.cluster.controller.sessions.start(broker_id, broker.epoch, self.cluster.now_ms)
                self._fill(broker)

    @property
    def image(self) -> MetadataImage:
        return self.cluster.image

    def _a_broker(self, broker: int) -> RegisterBrokerRecord:
        fenced = self.draw(st.integers(0, 3)) == 0
        return RegisterBrokerRecord(
            broker_id=broker,
            incarnation_id=bytes([broker]) * 16,
            broker_epoch=100 + broker,
            rack=None,
            end_points=[BrokerEndpoint(name="PLAINTEXT", host="host", port=9092)],
            features=[
                BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            ],
            fenced=fenced,
            in_controlled_shutdown=not fenced and self.draw(st.integers(0, 5)) == 0,
            log_dirs=list(directories_of(broker)[: self.draw(st.integers(1, 2))]),
        )

    def _a_partition(self) -> PartitionImage:
        partition = a_partition(self.draw, elr=self.has_elr)
        places = [
            self.draw(st.sampled_from([*directories_of(it)] * 3 + [UNASSIGNED_DIRECTORY, LOST_DIRECTORY, FOREIGN]))
            for it in partition.replicas
        ]
        return replace(partition, directories=tuple(places), leader_epoch=5, partition_epoch=7)

    def _configs(self, topic: str) -> list[Message]:
        found: list[Message] = []
        if self.draw(st.booleans()):
            unclean = self.draw(st.sampled_from(["true", "false"]))
            found.append(ConfigRecord(resource_type=2, resource_name=topic, name=UNCLEAN, value=unclean))
        if self.draw(st.booleans()):
            least = str(self.draw(st.integers(1, 3)))
            found.append(ConfigRecord(resource_type=2, resource_name=topic, name="min.insync.replicas", value=least))
        return found

    def _broker_configs(self) -> list[Message]:
        """Those of this controller's node, of another node, and of all."""
        found: list[Message] = []
        for node in ("100", "1", ""):
            for key, values in (("min.insync.replicas", ["1", "2"]), (UNCLEAN, [" True", "false"])):
                is_one_for_all = self.has_elr and key == "min.insync.replicas"
                if (is_one_for_all and node) or not self.draw(SELDOM):
                    continue
                value = self.draw(st.sampled_from(values))
                found.append(ConfigRecord(resource_type=4, resource_name=node, name=key, value=value))
        return found

    def _fill(self, broker: BrokerImage) -> None:
        session = self.cluster.controller.sessions.get(broker.id)
        assert session is not None
        if self.draw(st.integers(0, 3)) == 0:
            session.full_directories = some_of(self.draw, broker.log_directories, least=1)

    # -- what there is

    def places(self) -> list[Place]:
        return [(topic.name, index) for topic in self.image.topics.by_name.values() for index in topic.partitions]

    def topic(self, place: Place) -> TopicImage:
        return self.image.topics.by_name[place[0]]

    def partition(self, place: Place) -> PartitionImage:
        return self.topic(place).partitions[place[1]]

    def is_unclean(self, topic: str) -> bool:
        text = self.effective(topic, UNCLEAN)
        default = self.cluster.controller.defaults.unclean_leader_election_enable
        return text.strip().lower() == "true" if text else default

    def election(self, topic: str, partition: PartitionImage) -> Election:
        """The kind of election that the configs allow. After some restores an operator decides, and no config does."""
        waits = partition.leader == NO_LEADER and not (partition.isr or partition.elr or partition.last_known_elr)
        waits = waits and partition.leader_recovery_state == LEADER_RECOVERING
        return Election.UNCLEAN if self.is_unclean(topic) and not waits else Election.ONLINE

    def effective(self, topic: str, key: str) -> str | None:
        """The topic's own value, or that of this controller's node, or that of all nodes."""
        for resource in ((2, topic), (4, "100"), (4, "")):
            if key in self.image.config(*resource):
                return self.image.config(*resource)[key]
        return None

    def least_in_sync(self, topic: TopicImage) -> int:
        """The effective min.insync.replicas."""
        default = self.cluster.controller.defaults.min_insync_replicas
        wanted = int(self.effective(topic.name, "min.insync.replicas") or default)
        return min(wanted, len(topic.partitions[0].replicas))

    def full(self, broker: int) -> tuple[bytes, ...]:
        session = self.cluster.controller.sessions.get(broker)
        return () if session is None else session.full_directories

    # -- rules

    def is_online(self, broker: int, directory: bytes) -> bool:
        known = self.image.cluster.brokers[broker].log_directories
        return directory == UNASSIGNED_DIRECTORY or directory in known

    def may_lead(self, partition: PartitionImage, broker: int, moves: Moves) -> bool:
        found = self.image.cluster.brokers.get(broker)
        if found is None or broker in moves.leaving or broker == moves.unclean or broker not in partition.replicas:
            return False
        works = not found.fenced and not found.in_controlled_shutdown
        return (works or broker in moves.returning) and self.is_online(broker, partition.directory_of(broker))

    def has_room(self, partition: PartitionImage, broker: int, full: tuple[bytes, ...] | None = None) -> bool:
        full = self.full(broker) if full is None else full
        if not full or broker not in partition.replicas:
            return True
        found = self.image.cluster.brokers.get(broker)
        if found is not None and set(found.log_directories) <= {*full}:
            return False
        return partition.directory_of(broker) not in full

    def directory_of_new(self, broker: int) -> bytes:
        found = self.image.cluster.brokers.get(broker)
        known = () if found is None else found.log_directories
        return known[0] if len(known) == 1 else UNASSIGNED_DIRECTORY

    def change(
        self, place: Place, moves: Moves = Moves(), partition: PartitionImage | None = None, **targets: object
    ) -> PartitionChange:
        """A change under plain rules; `targets` are its fields. `partition`: what it was before, if not what it is."""
        topic, partition = self.topic(place), partition or self.partition(place)
        rules = PartitionRules(
            lambda broker: self.may_lead(partition, broker, moves),
            lambda broker: self.has_room(partition, broker),
            self.directory_of_new,
            self.least_in_sync(topic),
            self.has_elr,
            self.level,
        )
        change = PartitionChange(topic.id, place[1], partition, rules)
        for name, value in targets.items():
            setattr(change, name, value)
        return change

    def after(self, change: PartitionChange) -> PartitionImage:
        """The partition after the change."""
        before, rules = change.partition, change.rules
        able = frozenset(it for it in BROKERS if rules.may_lead(it))
        found = plain(Wanted(change, able, frozenset(it for it in BROKERS if rules.has_room(it))))
        known = dict(zip(before.replicas, before.directories, strict=True))
        result = PartitionImage(
            replicas=found.replicas,
            directories=tuple(known.get(it) or rules.default_directory(it) for it in found.replicas),
            isr=found.isr,
            removing_replicas=found.removing,
            adding_replicas=found.adding,
            elr=found.elr,
            last_known_elr=found.last_known,
            leader=found.leader,
            leader_recovery_state=found.recovery,
            leader_epoch=before.leader_epoch + found.bumps_epoch,
            partition_epoch=before.partition_epoch,
        )
        return result if result == before else replace(result, partition_epoch=before.partition_epoch + 1)

    def moved(self, moves: Moves, places: Iterable[Place]) -> Expected:
        """These partitions after brokers came and went."""
        expected: Expected = {}
        for place in places:
            partition = self.partition(place)
            gone = {*moves.leaving, moves.unclean}
            change = self.change(place, moves, isr=tuple(it for it in partition.isr if it not in gone))
            change.election = self.election(place[0], partition)
            if moves.unclean != NO_LEADER:
                change.unclean_restarts = (moves.unclean,)
                directory = partition.directory_of(moves.unclean)
                if directory != UNASSIGNED_DIRECTORY and directory not in moves.directories:
                    change.emptied = change.unclean_restarts
            expected[place] = self.after(change)
        return expected

    # -- decisions

    def decide(self, request: Message, version: int | None = None) -> ControllerResult[Message]:
        """The decision, which is not appended yet."""
        version = request.VERSIONS.highest if version is None else version
        cluster = self.cluster
        self.steps = 0
        return finish(cluster.controller.decide(request, version, len(cluster.log), cluster.now_ms), self._took)

    def _took(self) -> None:
        self.steps += 1

    def check_moves(self) -> None:
        """Those that move are listed, and no others."""
        listed = at_once(list_partition_reassignments(self.image, ListPartitionReassignmentsRequest(topics=None)))
        moving = {
            (topic.name, it.partition_index): (it.replicas, it.adding_replicas, it.removing_replicas)
            for topic in listed.topics
            for it in topic.partitions
        }
        known = {place: self.partition(place) for place in self.places()}
        assert moving == {
            place: (list(it.replicas), list(it.adding_replicas), list(it.removing_replicas))
            for place, it in known.items()
            if it.adding_replicas or it.removing_replicas
        }

    def changed(self, result: ControllerResult[Message]) -> list[Place]:
        """The partitions that the records of a decision change, in their order."""
        names = {topic_id: name for name, topic_id in TOPICS.items()}
        return [(names[it.topic_id], it.partition_id) for it in result.records if isinstance(it, PartitionChangeRecord)]

    def take(self, result: ControllerResult[Message], expected: Expected, *because_of: int) -> None:
        """Append the decision; partitions and notes of them are as expected. The notes concern the brokers that the
        changes are because of."""
        before = {place: self.partition(place) for place in self.places()}
        self.cluster.append(result)
        self.check_moves()
        for place, old in before.items():
            new = expected.get(place, old)
            assert self.partition(place) == new, f"{place}: {old}"
            name = f"{place[0]}-{place[1]}"
            notes = [note for note in result.notes if note.subject == name]
            kinds = []
            if new.leader != old.leader:
                kinds.append(DecisionKind.ELECTION)
            elif (new.isr, new.elr) != (old.isr, old.elr):
                kinds.append(DecisionKind.ISR)
            if (new.replicas, new.adding_replicas, new.removing_replicas) != (
                old.replicas,
                old.adding_replicas,
                old.removing_replicas,
            ):
                kinds.append(DecisionKind.REASSIGNMENT)
            assert [note.kind for note in notes] == kinds
            for note in notes:
                if because_of and note.kind is not DecisionKind.REASSIGNMENT:
                    assert note.also == tuple(f"broker {broker}" for broker in because_of)
                found = {key: note.facts[key] for key in ("leader", "leader_before", "isr", "isr_before", "replicas")}
                assert found == {
                    "leader": new.leader,
                    "leader_before": old.leader,
                    "isr": new.isr,
                    "isr_before": old.isr,
                    "replicas": new.replicas,
                }
                assert (note.facts["leader_epoch"], note.facts["partition_epoch"]) == (
                    new.leader_epoch,
                    new.partition_epoch,
                )
                assert note.facts.get("elr", ()) == new.elr and note.facts.get("elr_before", ()) == old.elr
                assert note.text.split()[0] != "" and name in note.text and note.cause
