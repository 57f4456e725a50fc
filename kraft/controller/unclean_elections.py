"""Core: counts unclean elections in metadata deltas, as Kafka's ControllerMetricsChanges does."""

from __future__ import annotations

from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import NO_LEADER, PartitionImage


def unclean_elections(delta: MetadataDelta) -> int:
    """Partitions whose new leader was neither in the ISR nor in the ELR before."""
    return sum(
        _is_unclean(before, partition)
        for topic in delta.changed_topics.values()
        for index, partition in topic.changed_partitions.items()
        if (before := topic.previous(index)) is not None
    )


def _is_unclean(before: PartitionImage, after: PartitionImage) -> bool:
    return after.leader not in (NO_LEADER, before.leader, *before.isr, *before.elr)
