"""How the partitions of a consumer group are shared out among its members, by name (group.consumer.assignors).

Racks do not count: Kafka took them out of its server-side assignors before 4.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.groups.assignors.assignor import Assign
from broker.groups.assignors.range import assign_ranges
from broker.groups.assignors.uniform import assign_uniformly

ASSIGNORS: Mapping[str, Assign] = {"uniform": assign_uniformly, "range": assign_ranges}
NAMES_OF_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""Kafka's own classes: the key takes them, too. Members ask by name."""
