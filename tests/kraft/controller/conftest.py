"""A controller on its own: no log, no network. Requests go in, are decided, committed, and the answer comes
back."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import pytest

from barnabas.kraft.controller.controller import QuorumController
from barnabas.kraft.controller.partition_notes import is_alarming
from barnabas.kraft.controller.state import STEP_ITEMS, Asked, ControllerDefaults, ControllerResult, Steps
from barnabas.kraft.metadata.bootstrap import bootstrap_records
from barnabas.kraft.metadata.features import SUPPORTED_FEATURES
from barnabas.kraft.metadata.image import MetadataImage, PartitionImage
from barnabas.kraft.metadata.record_versions import encode_records
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.records.metadata import decode_metadata_record
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.identity import ANONYMOUS, Principal

CLUSTER_ID = "kraft-cluster-id-00001"

R = TypeVar("R")


def finish(steps: Steps[R], took: Callable[[], None] = lambda: None) -> R:
    """The result of a decision, all of whose steps are taken now; `took` is called after each."""
    result = None
    while True:
        try:
            work = steps.send(result)
        except StopIteration as finished:
            value: R = finished.value
            return value
        finally:
            took()
        result = None if work is None else work()


class PlainPace:
    """Counts the items of one decision: a step ends after the item that makes it full."""

    def __init__(self, step_items: int = STEP_ITEMS) -> None:
        self.step_items = step_items
        self.items = Fraction(0)
        self.steps = 0

    def add(self, items: int = 1, per_item: int = 1) -> None:
        self.items += Fraction(items, per_item)
        if self.items >= self.step_items:
            self.items, self.steps = Fraction(0), self.steps + 1


class Cluster:
    """One active controller and its brokers. Everything commits at once unless `hold` is
    set."""

    def __init__(self, seed: int = 0, levels: dict[str, int] | None = None, **settings: Any) -> None:
        defaults = ControllerDefaults(node_id=100, cluster_id=CLUSTER_ID, **{"quorum_ids": (100,)} | settings)
        self.chance = random.Random(seed)
        self.controller = QuorumController(defaults, self.chance, bootstrap_records(levels))
        self.now_ms = 1_000_000
        self.wall_ms = 1_700_000_000_000
        self.log: list[Message] = []
        self.committed = 0
        self.hold = False
        self.epochs: dict[int, int] = {}
        self.incarnations: dict[int, bytes] = {}
        self.decisions = Decisions("controller-100", lambda: self.now_ms)
        self.alarms: list[str] = []
        """Subjects of alarming decisions."""
        self.activate(1)

    @property
    def image(self) -> MetadataImage:
        return self.controller.pending

    def activate(self, epoch: int) -> None:
        """This controller becomes active in `epoch`."""
        records = self.controller.activate(epoch, len(self.log), self.now_ms)
        self.append(ControllerResult(None, records))

    def append(self, result: ControllerResult[Any]) -> None:
        records, notes = result.records, result.notes
        facts = {"metadata_offset": len(self.log) + len(records) - 1} if records else {}
        self.decisions.take(notes, **facts)
        self.alarms += [note.subject for note in notes if is_alarming(note)]
        if records:
            self.check_versions(records)
            preview = finish(self.controller.preview(records, len(self.log) + len(records) - 1, self.now_ms))
            self.log += records
            self.controller.appended(preview, self.now_ms)
        for effect in result.effects:
            effect()
        if not self.hold:
            self.commit()

    def check_versions(self, records: Sequence[Message]) -> None:
        """Records of the present metadata.version are read back as they were written."""
        level = self.image.features.metadata_version
        written = list(encode_records(records, level))
        assert [decode_metadata_record(value)[0] for value in written] == list(records), f"at level {level}"

    def commit(self) -> None:
        """Everything that was appended is committed."""
        self.hold = False
        if self.committed < len(self.log):
            finish(
                self.controller.handle_commit(
                    self.committed, max(self.controller.epoch, 1), self.now_ms, self.log[self.committed :]
                )
            )
            self.committed = len(self.log)

    def fail_over(self, epoch: int) -> None:
        """Leadership goes away and comes back; what was not committed is gone."""
        self.controller.resign()
        del self.log[self.committed :]
        self.hold = False
        self.activate(epoch)

    def send(self, request: Message, version: int | None = None, by: Principal = ANONYMOUS) -> Any:
        """The answer to a request."""
        version = request.VERSIONS.highest if version is None else version
        asked = Asked(by, self.wall_ms)
        result = finish(self.controller.decide(request, version, len(self.log), self.now_ms, asked))
        self.append(result)
        return result.response

    def work(self) -> None:
        """Do what is due by the clock."""
        while True:
            result = finish(self.controller.run_periodic(len(self.log), self.now_ms, self.wall_ms))
            self.append(result)
            if not result.response:
                return

    def story(self, subject: str) -> list[str]:
        """Decisions about a subject."""
        return [it.sentence for it in self.decisions.since(0, subject)]

    # Brokers

    def registration(self, broker_id: int, **fields: Any) -> BrokerRegistrationRequest:
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=self.chance.randbytes(16),
            rack=None,
            listeners=[Listener(name="PLAINTEXT", host=f"broker{broker_id}", port=9092)],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            ],
            log_dirs=[bytes([broker_id, 1]) * 8],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    def register(self, broker_id: int, **fields: Any) -> Any:
        request = self.registration(broker_id, **fields)
        response = self.send(request)
        if response.error_code == 0:
            self.epochs[broker_id] = response.broker_epoch
            self.incarnations[broker_id] = request.incarnation_id
        return response

    def heartbeat(self, broker_id: int, **fields: Any) -> Any:
        """A heartbeat of a broker that has applied the whole log."""
        request = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=self.epochs[broker_id], current_metadata_offset=len(self.log)
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return self.send(request)

    def start(self, *broker_ids: int, racks: dict[int, str] | None = None) -> None:
        """Brokers register and are unfenced."""
        for broker_id in broker_ids:
            assert self.register(broker_id, rack=(racks or {}).get(broker_id)).error_code == 0
            assert not self.heartbeat(broker_id).is_fenced

    def restart(self, broker_id: int, clean: bool, **fields: Any) -> None:
        """The process comes back as another incarnation; a heartbeat will let it in."""
        self.controller.sessions.end(broker_id)
        previous = self.epochs[broker_id] if clean else -1
        assert self.register(broker_id, previous_broker_epoch=previous, **fields).error_code == 0

    def die(self, broker_id: int) -> None:
        """The process is known to be gone."""
        epoch = self.epochs[broker_id]
        self.append(self.fence(broker_id, epoch))

    def fence(self, broker_id: int, broker_epoch: int) -> ControllerResult[bool]:
        """The decision on evidence that the process of this incarnation is gone."""
        decision = self.controller.fence_broker(broker_id, broker_epoch, "its port refuses", len(self.log), self.now_ms)
        return finish(decision)

    # Topics

    def create_topic(
        self,
        name: str,
        *assignments: list[int],
        partitions: int = -1,
        factor: int = -1,
        configs: dict[str, str] | None = None,
    ) -> Any:
        """One topic, placed by hand if assignments are given; the result of it."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in enumerate(assignments)
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        return self.send(CreateTopicsRequest(topics=[topic])).topics[0]

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        return self.image.topics.by_name[name].partitions[index]

    def propose_isr(self, name: str, isr: Sequence[int], **fields: Any) -> ResponsePartitionData:
        """The leader of partition 0 proposes an ISR with current epochs, unless `fields` say
        otherwise."""
        partition = self.partition(name)
        leader = fields.pop("broker_id", partition.leader)
        wanted = RequestPartitionData(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=it, broker_epoch=self.epochs.get(it, -1)) for it in isr],
            leader_recovery_state=0,
        )
        for field, value in fields.items():
            setattr(wanted, field, value)
        topic_id = self.image.topics.by_name[name].id
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=self.epochs[leader],
            topics=[RequestTopicData(topic_id=topic_id, partitions=[wanted])],
        )
        response = self.send(request)
        assert response.error_code == 0
        answer = response.topics[0].partitions[0]
        assert isinstance(answer, ResponsePartitionData)
        return answer


@pytest.fixture
def make_cluster() -> Callable[..., Cluster]:
    return Cluster


@pytest.fixture
def cluster() -> Cluster:
    """Three unfenced brokers, min.insync.replicas 2, eligible leader replicas enabled."""
    cluster = Cluster(min_insync_replicas=2)
    cluster.start(1, 2, 3)
    return cluster
