"""The cluster as a whole: brokers, features, and the quorum of controllers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from barnabas.client.admin.acl_values import AclOperation, operations_of
from barnabas.client.admin.calls import Anywhere, Part, Question
from barnabas.client.admin.results import Results, changed, refusal
from barnabas.client.admin.routes import CertainBrokers, uuid_of
from barnabas.protocol.broker_hosts import named_host
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import add_raft_voter as adding
from barnabas.protocol.messages import describe_cluster as describing
from barnabas.protocol.messages import describe_quorum as counting
from barnabas.protocol.messages import update_features as updating
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.primitives import ZERO_UUID, uuid_to_string
from barnabas.runtime.channel import CLIENT_SOFTWARE_NAME, CLIENT_SOFTWARE_VERSION

METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker and its address for clients; `is_fenced`: it is registered and does not serve."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False
    shared_host: str | None = None
    """Name of the host that it shares with other brokers (`barnabas.host`); None: none is known."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Description of a cluster. `controller` is a broker that forwards requests to the active controller."""

    cluster_id: str
    controller: BrokerNode | None
    nodes: tuple[BrokerNode, ...]
    """By id; fenced ones only on request."""
    authorized_operations: tuple[AclOperation, ...] | None


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """Progress of a node in the metadata log. Times are None if they are unknown, and for the leader."""

    replica_id: int
    replica_directory_id: str | None
    log_end_offset: int
    last_fetch_timestamp_ms: int | None
    last_caught_up_timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class Endpoint:
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """The quorum of the metadata log."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]
    nodes: Mapping[int, tuple[Endpoint, ...]]
    """Listeners of the voters; empty from an old cluster."""


@dataclass(frozen=True, slots=True)
class SupportedVersionRange:
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class FinalizedVersionRange:
    min_version_level: int
    max_version_level: int


@dataclass(frozen=True, slots=True)
class FeatureMetadata:
    """Finalized levels of the cluster, and the levels that the answering broker supports."""

    finalized_features: Mapping[str, FinalizedVersionRange]
    finalized_features_epoch: int | None
    supported_features: Mapping[str, SupportedVersionRange]


@dataclass(frozen=True, slots=True)
class ApiVersion:
    """Versions of one API that a broker supports."""

    api_key: int
    min_version: int
    max_version: int


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """Target level of a feature; 0 disables it, which is a downgrade."""

    max_version_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class Brokers(Part):
    """Methods for brokers and the cluster as a whole."""

    async def describe_cluster(
        self, *, include_authorized_operations: bool = False, include_fenced_brokers: bool = False
    ) -> ClusterDescription:

        def ask(_: int) -> describing.DescribeClusterRequest:
            return describing.DescribeClusterRequest(
                include_cluster_authorized_operations=include_authorized_operations,
                include_fenced_brokers=include_fenced_brokers,
            )

        def read(response: describing.DescribeClusterResponse) -> ClusterDescription | KafkaError:
            return refusal(response.error_code, response.error_message, "the cluster") or _description(response)

        return await self._calls.one("the cluster", ask, read)

    async def describe_metadata_quorum(self) -> QuorumInfo:
        """The voters and observers of the metadata log, and their progress."""

        def ask(_: int) -> counting.DescribeQuorumRequest:
            log = counting.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[counting.RequestPartitionData()])
            return counting.DescribeQuorumRequest(topics=[log])

        return await self._calls.one("the quorum", ask, _quorum)

    async def add_raft_voter(
        self, voter_id: int, voter_directory_id: str, endpoints: Iterable[Endpoint], *, cluster_id: str | None = None
    ) -> None:
        """Make a controller a voter (KIP-853). DuplicateVoterException;
        UnsupportedVersionException if the voters of the cluster are fixed.
        """
        listeners = [adding.Listener(name=it.name, host=it.host, port=it.port) for it in endpoints]

        def ask(timeout_ms: int) -> adding.AddRaftVoterRequest:
            return adding.AddRaftVoterRequest(
                cluster_id=cluster_id,
                timeout_ms=timeout_ms,
                voter_id=voter_id,
                voter_directory_id=uuid_of(voter_directory_id),
                listeners=listeners,
            )

        await self._calls.one(f"voter {voter_id}", ask, _error_or_true(f"voter {voter_id}"))

    async def remove_raft_voter(self, voter_id: int, voter_directory_id: str, *, cluster_id: str | None = None) -> None:
        """Remove a controller from the voters (KIP-853). VoterNotFoundException; UnsupportedVersionException if the
        voters of the cluster are fixed.
        """

        def ask(_: int) -> RemoveRaftVoterRequest:
            return RemoveRaftVoterRequest(
                cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=uuid_of(voter_directory_id)
            )

        await self._calls.one(f"voter {voter_id}", ask, _error_or_true(f"voter {voter_id}"))

    async def describe_features(self) -> FeatureMetadata:
        """Feature levels of the cluster, and those that the answering broker supports."""

        def ask(_: int) -> ApiVersionsRequest:
            return _versions_request()

        def read(response: ApiVersionsResponse) -> FeatureMetadata | KafkaError:
            epoch = response.finalized_features_epoch
            return refusal(response.error_code, None, "features") or FeatureMetadata(
                {
                    it.name: FinalizedVersionRange(it.min_version_level, it.max_version_level)
                    for it in response.finalized_features
                },
                epoch if epoch >= 0 else None,
                {it.name: SupportedVersionRange(it.min_version, it.max_version) for it in response.supported_features},
            )

        return await self._calls.one("features", ask, read)

    async def api_versions(self, broker_id: int) -> tuple[ApiVersion, ...]:
        """Versions of the APIs that a broker supports, by key. BrokerNotAvailableException."""

        def ask(_: list[int], __: int) -> ApiVersionsRequest:
            return _versions_request()

        def read(
            response: ApiVersionsResponse, keys: list[int]
        ) -> Iterator[tuple[int, tuple[ApiVersion, ...] | KafkaError]]:
            for key in keys:
                versions = tuple(
                    ApiVersion(it.api_key, it.min_version, it.max_version)
                    for it in sorted(response.api_keys, key=lambda it: it.api_key)
                )
                yield key, refusal(response.error_code, None, f"broker {key}") or versions

        there = CertainBrokers[int](self._calls, lambda node_id: node_id)
        return (await self._calls.ask([broker_id], there, Question("broker", ask, read)))[broker_id]

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False, raise_errors: bool = True
    ) -> Results[str, None]:
        """Raise or lower the levels of features: all or, since Kafka 4.0, none. FeatureUpdateFailedException,
        InvalidUpdateVersionException.
        """

        def ask(names: list[str], timeout_ms: int) -> updating.UpdateFeaturesRequest:
            return updating.UpdateFeaturesRequest(
                timeout_ms=timeout_ms,
                feature_updates=[
                    updating.FeatureUpdateKey(
                        feature=name,
                        max_version_level=updates[name].max_version_level,
                        upgrade_type=updates[name].upgrade_type,
                    )
                    for name in names
                ],
                validate_only=validate_only,
            )

        def read(
            response: updating.UpdateFeaturesResponse, names: list[str]
        ) -> Iterator[tuple[str, KafkaError | None]]:
            error = refusal(response.error_code, response.error_message, "features")
            yield from ((name, error) for name in names)
            for it in response.results:
                if error is None:
                    yield it.feature, refusal(it.error_code, it.error_message, f"feature {it.feature}")

        question = Question[str, None]("feature", ask, read)
        return changed(await self._calls.ask(updates, Anywhere(), question), raise_errors)

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a broker that will not return. BrokerIdNotRegisteredException."""

        what = f"broker {broker_id}"
        await self._calls.one(what, lambda _: UnregisterBrokerRequest(broker_id=broker_id), _error_or_true(what))


def _error_or_true(what: str) -> Callable[[Any], bool | KafkaError]:
    """Reads a response that has nothing but an error."""
    return lambda response: refusal(response.error_code, response.error_message, what) or True


def _versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(
        client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
    )


def _description(response: describing.DescribeClusterResponse) -> ClusterDescription:
    nodes = {
        it.broker_id: BrokerNode(it.broker_id, it.host, it.port, it.rack, it.is_fenced, named_host(it))
        for it in sorted(response.brokers, key=lambda it: it.broker_id)
    }
    return ClusterDescription(
        response.cluster_id,
        nodes.get(response.controller_id),
        tuple(nodes.values()),
        operations_of(response.cluster_authorized_operations),
    )


def _quorum(response: counting.DescribeQuorumResponse) -> QuorumInfo | KafkaError:
    error = refusal(response.error_code, response.error_message, "the quorum")
    parts = [part for topic in response.topics for part in topic.partitions]
    if error is None and len(parts) != 1:
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"DescribeQuorum returned {len(parts)} entries, expected 1")
    if error is not None:
        return error
    (it,) = parts
    return refusal(it.error_code, it.error_message, "the quorum") or QuorumInfo(
        it.leader_id,
        it.leader_epoch,
        it.high_watermark,
        tuple(map(_replica, it.current_voters)),
        tuple(map(_replica, it.observers)),
        {
            node.node_id: tuple(Endpoint(each.name, each.host, each.port) for each in node.listeners)
            for node in response.nodes
        },
    )


def _replica(it: counting.ReplicaState) -> ReplicaState:
    directory = it.replica_directory_id
    return ReplicaState(
        it.replica_id,
        None if directory == ZERO_UUID else uuid_to_string(directory),
        it.log_end_offset,
        it.last_fetch_timestamp if it.last_fetch_timestamp >= 0 else None,
        it.last_caught_up_timestamp if it.last_caught_up_timestamp >= 0 else None,
    )
