"""Core: the state of each replica, derived from the image of the metadata.

Before KRaft the controller kept a state machine of replicas (New, Online, Offline, and three states of a deletion).
Here nothing is kept: an image has the assignment, the ISR and the brokers, and a replica that is deleted leaves the
image at once; its broker removes the files by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from barnabas.kraft.metadata.image import BrokerImage, PartitionImage


class ReplicaState(Enum):
    """A replica that an image does not name does not exist (Kafka's NonExistentReplica)."""

    NEW = "new"
    """A reassignment adds it, and it was not in sync yet."""
    ONLINE = "online"
    """Its broker serves; in sync or catching up."""
    OFFLINE = "offline"
    """Its broker is fenced or not registered, or its log directory is gone."""


def replica_states(partition: PartitionImage, brokers: Mapping[int, BrokerImage]) -> dict[int, ReplicaState]:
    """By broker id, in the order of the assignment."""
    states = {}
    for replica, directory in zip(partition.replicas, partition.directories, strict=False):
        broker = brokers.get(replica)
        if broker is None or broker.fenced or not broker.has_online_directory(directory):
            states[replica] = ReplicaState.OFFLINE
        elif replica in partition.adding_replicas and replica not in partition.isr:
            states[replica] = ReplicaState.NEW
        else:
            states[replica] = ReplicaState.ONLINE
    return states
