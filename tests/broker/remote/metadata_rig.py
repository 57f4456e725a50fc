"""`RemoteMetadata` on the brokers of a simulated cluster, without the rest of tiered storage."""

from __future__ import annotations

from functools import partial

from barnabas.broker.parts import BrokerParts
from barnabas.broker.remote.metadata_topic import RemoteMetadata, RemoteMetadataPorts
from barnabas.broker.replication.partition import Partition
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.storage.remote.segment import RemotePartitionKey
from tests.broker.apis.rig import Rig
from tests.storage.remote.remote_rig import numbers

TOPIC = "__remote_log_metadata"
FEW = {
    "rlmm__config__remote__log__metadata__topic__num__partitions": "3",
    "rlmm__config__remote__log__metadata__topic__min__isr": "2",
}


def attached(broker: BrokerParts) -> RemoteMetadata:
    """Gets the news of this broker from now on."""
    remote = RemoteMetadata(
        RemoteMetadataPorts(
            world=broker.world,
            background=broker.background,
            node_id=broker.settings.node_id,
            image=lambda: broker.metadata.image,
            partitions=broker.partitions,
            channel_to=partial(broker.channel_to, purpose="remote-metadata"),
            create_internal=broker.coordination.auto_topics.create_internal,
            settings=broker.current_settings,
        )
    )
    changed, committed = broker.coordination.metadata_changed, broker.shares.partition_changed

    def both_changed(delta: MetadataDelta) -> None:
        changed(delta)
        remote.metadata_changed(delta)

    def both_committed(partition: Partition) -> None:
        committed(partition)
        remote.partition_committed(partition)

    broker.coordination.metadata_changed = both_changed  # type: ignore[method-assign]
    broker.shares.partition_changed = both_committed
    return remote


def known(remote: RemoteMetadata, key: RemotePartitionKey) -> list[int] | None:
    """Numbers of the segments; None before they are read."""
    segments = remote.segments(key)
    return None if segments is None else sorted(numbers(segments.all()))


async def all_know(rig: Rig, remotes: list[RemoteMetadata], key: RemotePartitionKey, wanted: list[int]) -> None:
    await rig.until(lambda: all(known(remote, key) == wanted for remote in remotes))
