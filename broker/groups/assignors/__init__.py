"""Server-side assignors of consumer groups, by name (group.consumer.assignors).

They ignore racks, as Kafka's do since 4.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.groups.assignors.assignor import Assign
from barnabas.broker.groups.assignors.range import assign_ranges
from barnabas.broker.groups.assignors.uniform import assign_uniformly

ASSIGNORS: Mapping[str, Assign] = {"uniform": assign_uniformly, "range": assign_ranges}
NAMES_OF_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""Kafka's class names, which group.consumer.assignors also accepts. Members request assignors by name."""
