"""Kafka's broker and our `RemoteMetadata` on one `__remote_log_metadata`: each acts on what the other has written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
import trio

from barnabas.broker.remote.metadata_topic import RemoteMetadata, RemoteMetadataPorts
from barnabas.broker.replication.partitions import Partitions
from barnabas.cluster.probe import ask
from barnabas.kraft.metadata.image import MetadataImage, PartitionImage, TopicImage, TopicsImage
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.background import Background
from barnabas.runtime.channel import Channel
from barnabas.runtime.real import real_world
from barnabas.settings.broker import BrokerSettings, load_broker_settings
from barnabas.settings.properties import render_properties
from barnabas.settings.remote_metadata import REMOTE_METADATA_TOPIC
from barnabas.storage.remote.segment import RemotePartitionKey, RemoteSegment, SegmentState, SegmentUpdate
from tests.compat.available import ROOT
from tests.compat.java import Java
from tests.compat.mixed import MixedCluster, MixedNode

pytestmark = [pytest.mark.compat, pytest.mark.client("java", "confluent-kafka"), pytest.mark.feature("TS-04")]

TIERED_STORAGE = ROOT / ".cache" / "kafka-tiered-storage"
FORMATTER = (
    "org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde$RemoteLogMetadataFormatter"
)
OUR_ID = 77
SEGMENT_BYTES = 1_048_576
STORE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


@pytest.fixture
def kafka(libs: Path, tmp_path: Path) -> Iterator[tuple[MixedCluster, MixedNode]]:
    """One node of Kafka with tiered storage."""
    if not any(TIERED_STORAGE.glob("*.jar")):
        pytest.skip("Kafka's LocalTieredStorage is not on this machine; tests/compat/install.sh fetches it")
    with MixedCluster(libs, tmp_path, more_libs=(TIERED_STORAGE,)) as cluster:
        node = cluster.add_combined(
            1,
            remote__log__storage__system__enable="true",
            remote__log__storage__manager__class__name=STORE,
            remote__log__metadata__manager__listener__name="PLAINTEXT",
            remote__log__manager__task__interval__ms="300",
            log__initial__task__delay__ms="300",
            log__retention__check__interval__ms="500",
            rsm__config__dir=str(tmp_path / "store"),
            rlmm__config__remote__log__metadata__topic__num__partitions="3",
            rlmm__config__remote__log__metadata__topic__replication__factor="1",
            rlmm__config__remote__log__metadata__topic__min__isr="1",
        )
        cluster.format_standalone(node)
        cluster.start(node)
        cluster.wait_for_brokers(node)
        yield cluster, node


def create_tiered(cluster: MixedCluster, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    config = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES), "local.retention.ms": "-2"}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for created in admin.create_topics([NewTopic(topic, 1, 1, config=config)]).values():
        created.result(30)


def produce(cluster: MixedCluster, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 5})
    for _ in range(count):
        producer.produce(topic, bytes(10_000))
        producer.poll(0)
    assert producer.flush(60) == 0


def image_of(node: MixedNode, *names: str) -> MetadataImage:
    """These topics, as Kafka's broker describes them."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    found = ask(node.port, request, MetadataResponse).topics
    topics = [
        TopicImage(
            topic.name or "",
            topic.topic_id,
            {
                each.partition_index: PartitionImage(
                    replicas=(each.leader_id,),
                    directories=(bytes(16),),
                    isr=(each.leader_id,),
                    leader=each.leader_id,
                    leader_epoch=each.leader_epoch,
                )
                for each in topic.partitions
            },
        )
        for topic in found
        if topic.error_code == 0
    ]
    return MetadataImage(topics=TopicsImage({it.name: it for it in topics}, {it.id: it for it in topics}))


class NoPartitions:
    """Our broker leads nothing here."""

    def find(self, topic: bytes | str, index: int) -> None:
        return None


def our_settings() -> BrokerSettings:
    keys = {
        "process.roles": "broker",
        "node.id": str(OUR_ID),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:1",
        "listeners": "PLAINTEXT://127.0.0.1:1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    }
    return load_broker_settings(render_properties(keys), "node.properties")[0]


def remote_metadata(node: MixedNode, image: MetadataImage, nursery: trio.Nursery) -> RemoteMetadata:
    world = real_world()
    settings = our_settings()
    return RemoteMetadata(
        RemoteMetadataPorts(
            world=world,
            background=Background(nursery),
            node_id=OUR_ID,
            image=lambda: image,
            partitions=cast(Partitions, NoPartitions()),
            channel_to=lambda _: Channel(world, nursery, "127.0.0.1", node.port, client_id="remote-metadata"),
            create_internal=lambda _: None,
            settings=lambda: settings,
        )
    )


async def until(holds: Callable[[], object], what: str) -> None:
    with trio.move_on_after(40):
        while not holds():
            await trio.sleep(0.05)
        return
    pytest.fail(f"not within 40 s: {what}")


def test_each_acts_on_what_the_other_has_written(kafka: tuple[MixedCluster, MixedNode], tmp_path: Path) -> None:
    cluster, node = kafka
    create_tiered(cluster, "orders")
    produce(cluster, "orders", 600)
    cluster.wait(lambda: any((tmp_path / "store").rglob("*.log")), "Kafka copies segments")
    image = image_of(node, "orders", REMOTE_METADATA_TOPIC)
    key = RemotePartitionKey(image.topics.by_name["orders"].id, "orders", 0)
    trio.run(partial(tell_each_other, node, image, key, tmp_path / "store"))
    java = Java(cluster.libs, cluster.bootstrap_servers)
    words = ("--topic", REMOTE_METADATA_TOPIC, "--from-beginning", "--formatter", FORMATTER, "--timeout-ms", "8000")
    printed = java.ask("console-consumer", *words, expected="terminating consumer process").out
    assert "brokerId=77" in printed
    assert "startOffset=1000000, endOffset=1000099, brokerId=77" in printed


async def tell_each_other(node: MixedNode, image: MetadataImage, key: RemotePartitionKey, store: Path) -> None:
    async with trio.open_nursery() as nursery:
        remote = remote_metadata(node, image, nursery)
        remote.follow([key])

        def finished() -> list[RemoteSegment]:
            segments = remote.segments(key)
            found = [] if segments is None else list(segments.referenced(0))
            return [each for each in found if each.state is SegmentState.COPY_SEGMENT_FINISHED]

        # Kafka has written, we read.
        await until(lambda: len(finished()) >= 3, "three segments of Kafka are known")
        copied = finished()
        assert copied[0].start_offset == 0
        assert all(later.start_offset == each.end_offset + 1 for each, later in pairwise(copied))
        assert all(each.broker_id == node.id and 0 < each.size_bytes <= SEGMENT_BYTES for each in copied)
        # We have written, Kafka acts: it finishes the deletion that our record begins.
        first = copied[0]
        files = f"*{uuid_to_string(first.segment_id)}*"
        assert list(store.rglob(files))
        await remote.publish(
            SegmentUpdate(key, first.segment_id, 1, SegmentState.DELETE_SEGMENT_STARTED, OUR_ID, first.custom_metadata)
        )
        segments = remote.segments(key)
        assert segments is not None
        assert segments.segment_for(0, 0) is None
        await until(lambda: segments.state_of(first.segment_id) is None, "Kafka has finished the deletion")
        assert not list(store.rglob(files))
        # A segment of ours, as Kafka's tool prints it.
        ours = replace(
            first,
            segment_id=bytes(15) + b"\x07",
            start_offset=1_000_000,
            end_offset=1_000_099,
            broker_id=OUR_ID,
            state=SegmentState.COPY_SEGMENT_STARTED,
            leader_epochs=((0, 1_000_000),),
        )
        await remote.publish(ours)
        assert segments.state_of(ours.segment_id) is SegmentState.COPY_SEGMENT_STARTED
        nursery.cancel_scope.cancel()
