"""Core: the rights on the cluster that requests need, by API, on controllers and on brokers.

One of the operations suffices. A request that is in no table, or has no operations in it, is served to everybody, or
its handler checks the rights on each resource that it names (on controllers: `permitted.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.protocol.acls import AclOperation
from barnabas.protocol.api_keys import ApiKey

Requirements = Mapping[ApiKey, tuple[AclOperation, ...]]

_OF_NODES = (AclOperation.CLUSTER_ACTION,)
_DESCRIBE = (AclOperation.DESCRIBE,)
_ALTER = (AclOperation.ALTER,)
_BY_ITEM: tuple[AclOperation, ...] = ()

ON_CONTROLLERS: Requirements = {
    # The quorum.
    ApiKey.FETCH: _OF_NODES,
    ApiKey.FETCH_SNAPSHOT: _OF_NODES,
    ApiKey.VOTE: _OF_NODES,
    ApiKey.BEGIN_QUORUM_EPOCH: _OF_NODES,
    ApiKey.END_QUORUM_EPOCH: _OF_NODES,
    ApiKey.UPDATE_RAFT_VOTER: _OF_NODES,
    ApiKey.DESCRIBE_QUORUM: _DESCRIBE,
    ApiKey.ADD_RAFT_VOTER: _ALTER,
    ApiKey.REMOVE_RAFT_VOTER: _ALTER,
    # Nodes.
    ApiKey.BROKER_REGISTRATION: _OF_NODES,
    ApiKey.BROKER_HEARTBEAT: _OF_NODES,
    ApiKey.CONTROLLER_REGISTRATION: _OF_NODES,
    ApiKey.ALTER_PARTITION: _OF_NODES,
    ApiKey.ALLOCATE_PRODUCER_IDS: _OF_NODES,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _OF_NODES,
    ApiKey.ENVELOPE: _OF_NODES,
    # The cluster.
    ApiKey.DESCRIBE_CLUSTER: _ALTER,
    ApiKey.UNREGISTER_BROKER: _ALTER,
    ApiKey.UPDATE_FEATURES: _ALTER,
    ApiKey.ELECT_LEADERS: _ALTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE,
    ApiKey.DESCRIBE_ACLS: _DESCRIBE,
    ApiKey.CREATE_ACLS: _ALTER,
    ApiKey.DELETE_ACLS: _ALTER,
    ApiKey.ALTER_CLIENT_QUOTAS: (AclOperation.ALTER_CONFIGS,),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER,
    # CREATE_TOKENS on the user who owns it, or none if that is the client itself.
    ApiKey.CREATE_DELEGATION_TOKEN: _BY_ITEM,
    # The owner and the renewers.
    ApiKey.RENEW_DELEGATION_TOKEN: _BY_ITEM,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _BY_ITEM,
    # CREATE on the cluster, or on each topic.
    ApiKey.CREATE_TOPICS: _BY_ITEM,
    # DELETE on the cluster, or on each topic, and DESCRIBE to see it.
    ApiKey.DELETE_TOPICS: _BY_ITEM,
    # ALTER on each topic.
    ApiKey.CREATE_PARTITIONS: _BY_ITEM,
    # ALTER_CONFIGS on each topic or group, and on the cluster for those of brokers and of client metrics.
    ApiKey.ALTER_CONFIGS: _BY_ITEM,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _BY_ITEM,
    # DESCRIBE_CONFIGS, likewise.
    ApiKey.DESCRIBE_CONFIGS: _BY_ITEM,
}

ON_BROKERS: Requirements = {
    ApiKey.WRITE_TXN_MARKERS: (AclOperation.ALTER, AclOperation.CLUSTER_ACTION),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _OF_NODES,
    ApiKey.READ_SHARE_GROUP_STATE: _OF_NODES,
    ApiKey.WRITE_SHARE_GROUP_STATE: _OF_NODES,
    ApiKey.DELETE_SHARE_GROUP_STATE: _OF_NODES,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _OF_NODES,
    ApiKey.DESCRIBE_ACLS: _DESCRIBE,
}
"""Requests whose handlers on a broker check nothing else."""
