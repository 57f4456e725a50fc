"""Core: the exceptions of the client: one class for each error of the protocol, named and related as in Java.

A `KafkaError` raised with a code is an instance of the class of that code once this module is imported, so `except
UnknownTopicOrPartitionException` works wherever the error was raised. `retriable`: the same call may succeed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.client.offsets import OffsetAndMetadata
from barnabas.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.client.producer.record_metadata import Outcome


class RetriableException(KafkaError):
    """The same call may succeed later."""


class RefreshRetriableException(RetriableException):
    """The same call may succeed once the client has looked up the right broker again."""


class InvalidMetadataException(RefreshRetriableException):
    """The client's metadata is stale: another broker has to be called."""


class ApplicationRecoverableException(KafkaError):
    """This client cannot go on; a new one may."""


class InvalidConfigurationException(KafkaError, code=ErrorCode.INVALID_CONFIG):
    """INVALID_CONFIG (40): a setting has an invalid value."""


class AuthorizationException(KafkaError):
    """This principal is not allowed to do that."""


class AuthenticationException(KafkaError):
    """The broker rejected the client's identity."""


class InvalidOffsetException(KafkaError):
    """There is nothing to read at that offset, and no reset policy is set."""


class OutOfOrderSequenceException(KafkaError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER): ...


class UnknownServerException(KafkaError, code=ErrorCode.UNKNOWN_SERVER_ERROR): ...


class OffsetOutOfRangeException(InvalidOffsetException, code=ErrorCode.OFFSET_OUT_OF_RANGE): ...


class CorruptRecordException(RetriableException, code=ErrorCode.CORRUPT_MESSAGE): ...


class UnknownTopicOrPartitionException(InvalidMetadataException, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): ...


class InvalidFetchSizeException(KafkaError, code=ErrorCode.INVALID_FETCH_SIZE): ...


class LeaderNotAvailableException(InvalidMetadataException, code=ErrorCode.LEADER_NOT_AVAILABLE): ...


class NotLeaderOrFollowerException(InvalidMetadataException, code=ErrorCode.NOT_LEADER_OR_FOLLOWER): ...


class TimeoutException(RetriableException, code=ErrorCode.REQUEST_TIMED_OUT): ...


class BrokerNotAvailableException(KafkaError, code=ErrorCode.BROKER_NOT_AVAILABLE): ...


class ReplicaNotAvailableException(InvalidMetadataException, code=ErrorCode.REPLICA_NOT_AVAILABLE): ...


class RecordTooLargeException(KafkaError, code=ErrorCode.MESSAGE_TOO_LARGE): ...


class ControllerMovedException(KafkaError, code=ErrorCode.STALE_CONTROLLER_EPOCH): ...


class OffsetMetadataTooLarge(KafkaError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE): ...


class NetworkException(InvalidMetadataException, code=ErrorCode.NETWORK_EXCEPTION): ...


class CoordinatorLoadInProgressException(RetriableException, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): ...


class CoordinatorNotAvailableException(RefreshRetriableException, code=ErrorCode.COORDINATOR_NOT_AVAILABLE): ...


class NotCoordinatorException(RefreshRetriableException, code=ErrorCode.NOT_COORDINATOR): ...


class InvalidTopicException(InvalidConfigurationException, code=ErrorCode.INVALID_TOPIC_EXCEPTION): ...


class RecordBatchTooLargeException(InvalidConfigurationException, code=ErrorCode.RECORD_LIST_TOO_LARGE): ...


class NotEnoughReplicasException(RetriableException, code=ErrorCode.NOT_ENOUGH_REPLICAS): ...


class NotEnoughReplicasAfterAppendException(RetriableException, code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND): ...


class InvalidRequiredAcksException(InvalidConfigurationException, code=ErrorCode.INVALID_REQUIRED_ACKS): ...


class IllegalGenerationException(ApplicationRecoverableException, code=ErrorCode.ILLEGAL_GENERATION): ...


class InconsistentGroupProtocolException(KafkaError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL): ...


class InvalidGroupIdException(KafkaError, code=ErrorCode.INVALID_GROUP_ID): ...


class UnknownMemberIdException(ApplicationRecoverableException, code=ErrorCode.UNKNOWN_MEMBER_ID): ...


class InvalidSessionTimeoutException(KafkaError, code=ErrorCode.INVALID_SESSION_TIMEOUT): ...


class RebalanceInProgressException(KafkaError, code=ErrorCode.REBALANCE_IN_PROGRESS): ...


class InvalidCommitOffsetSizeException(KafkaError, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE): ...


class TopicAuthorizationException(AuthorizationException, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED): ...


class GroupAuthorizationException(AuthorizationException, code=ErrorCode.GROUP_AUTHORIZATION_FAILED): ...


class ClusterAuthorizationException(AuthorizationException, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED): ...


class InvalidTimestampException(KafkaError, code=ErrorCode.INVALID_TIMESTAMP): ...


class UnsupportedSaslMechanismException(AuthenticationException, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM): ...


class IllegalSaslStateException(AuthenticationException, code=ErrorCode.ILLEGAL_SASL_STATE): ...


class UnsupportedVersionException(InvalidConfigurationException, code=ErrorCode.UNSUPPORTED_VERSION): ...


class TopicExistsException(KafkaError, code=ErrorCode.TOPIC_ALREADY_EXISTS): ...


class InvalidPartitionsException(KafkaError, code=ErrorCode.INVALID_PARTITIONS): ...


class InvalidReplicationFactorException(InvalidConfigurationException, code=ErrorCode.INVALID_REPLICATION_FACTOR): ...


class InvalidReplicaAssignmentException(KafkaError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT): ...


class NotControllerException(RetriableException, code=ErrorCode.NOT_CONTROLLER): ...


class InvalidRequestException(KafkaError, code=ErrorCode.INVALID_REQUEST): ...


class UnsupportedForMessageFormatException(
    InvalidConfigurationException, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
): ...


class PolicyViolationException(KafkaError, code=ErrorCode.POLICY_VIOLATION): ...


class DuplicateSequenceException(KafkaError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER): ...


class InvalidProducerEpochException(ApplicationRecoverableException, code=ErrorCode.INVALID_PRODUCER_EPOCH): ...


class InvalidTxnStateException(KafkaError, code=ErrorCode.INVALID_TXN_STATE): ...


class InvalidPidMappingException(ApplicationRecoverableException, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING): ...


class InvalidTxnTimeoutException(KafkaError, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT): ...


class ConcurrentTransactionsException(RetriableException, code=ErrorCode.CONCURRENT_TRANSACTIONS): ...


class TransactionCoordinatorFencedException(KafkaError, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED): ...


class TransactionalIdAuthorizationException(
    AuthorizationException, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
): ...


class SecurityDisabledException(KafkaError, code=ErrorCode.SECURITY_DISABLED): ...


class OperationNotAttemptedException(KafkaError, code=ErrorCode.OPERATION_NOT_ATTEMPTED): ...


class KafkaStorageException(InvalidMetadataException, code=ErrorCode.KAFKA_STORAGE_ERROR): ...


class LogDirNotFoundException(KafkaError, code=ErrorCode.LOG_DIR_NOT_FOUND): ...


class SaslAuthenticationException(AuthenticationException, code=ErrorCode.SASL_AUTHENTICATION_FAILED): ...


class UnknownProducerIdException(OutOfOrderSequenceException, code=ErrorCode.UNKNOWN_PRODUCER_ID): ...


class ReassignmentInProgressException(KafkaError, code=ErrorCode.REASSIGNMENT_IN_PROGRESS): ...


class DelegationTokenDisabledException(KafkaError, code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED): ...


class DelegationTokenNotFoundException(KafkaError, code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND): ...


class DelegationTokenOwnerMismatchException(KafkaError, code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH): ...


class UnsupportedByAuthenticationException(KafkaError, code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED): ...


class DelegationTokenAuthorizationException(
    AuthorizationException, code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
): ...


class DelegationTokenExpiredException(KafkaError, code=ErrorCode.DELEGATION_TOKEN_EXPIRED): ...


class InvalidPrincipalTypeException(KafkaError, code=ErrorCode.INVALID_PRINCIPAL_TYPE): ...


class GroupNotEmptyException(KafkaError, code=ErrorCode.NON_EMPTY_GROUP): ...


class GroupIdNotFoundException(KafkaError, code=ErrorCode.GROUP_ID_NOT_FOUND): ...


class FetchSessionIdNotFoundException(RetriableException, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND): ...


class InvalidFetchSessionEpochException(RetriableException, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH): ...


class ListenerNotFoundException(InvalidMetadataException, code=ErrorCode.LISTENER_NOT_FOUND): ...


class TopicDeletionDisabledException(KafkaError, code=ErrorCode.TOPIC_DELETION_DISABLED): ...


class FencedLeaderEpochException(InvalidMetadataException, code=ErrorCode.FENCED_LEADER_EPOCH): ...


class UnknownLeaderEpochException(RetriableException, code=ErrorCode.UNKNOWN_LEADER_EPOCH): ...


class UnsupportedCompressionTypeException(KafkaError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE): ...


class StaleBrokerEpochException(KafkaError, code=ErrorCode.STALE_BROKER_EPOCH): ...


class OffsetNotAvailableException(RetriableException, code=ErrorCode.OFFSET_NOT_AVAILABLE): ...


class MemberIdRequiredException(KafkaError, code=ErrorCode.MEMBER_ID_REQUIRED): ...


class PreferredLeaderNotAvailableException(InvalidMetadataException, code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE): ...


class GroupMaxSizeReachedException(KafkaError, code=ErrorCode.GROUP_MAX_SIZE_REACHED): ...


class FencedInstanceIdException(ApplicationRecoverableException, code=ErrorCode.FENCED_INSTANCE_ID): ...


class EligibleLeadersNotAvailableException(InvalidMetadataException, code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE): ...


class ElectionNotNeededException(InvalidMetadataException, code=ErrorCode.ELECTION_NOT_NEEDED): ...


class NoReassignmentInProgressException(KafkaError, code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS): ...


class GroupSubscribedToTopicException(KafkaError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC): ...


class InvalidRecordException(InvalidConfigurationException, code=ErrorCode.INVALID_RECORD): ...


class UnstableOffsetCommitException(RetriableException, code=ErrorCode.UNSTABLE_OFFSET_COMMIT): ...


class ThrottlingQuotaExceededException(RetriableException, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED): ...


class ProducerFencedException(ApplicationRecoverableException, code=ErrorCode.PRODUCER_FENCED): ...


class ResourceNotFoundException(KafkaError, code=ErrorCode.RESOURCE_NOT_FOUND): ...


class DuplicateResourceException(KafkaError, code=ErrorCode.DUPLICATE_RESOURCE): ...


class UnacceptableCredentialException(KafkaError, code=ErrorCode.UNACCEPTABLE_CREDENTIAL): ...


class InconsistentVoterSetException(KafkaError, code=ErrorCode.INCONSISTENT_VOTER_SET): ...


class InvalidUpdateVersionException(KafkaError, code=ErrorCode.INVALID_UPDATE_VERSION): ...


class FeatureUpdateFailedException(KafkaError, code=ErrorCode.FEATURE_UPDATE_FAILED): ...


class PrincipalDeserializationException(KafkaError, code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE): ...


class SnapshotNotFoundException(KafkaError, code=ErrorCode.SNAPSHOT_NOT_FOUND): ...


class PositionOutOfRangeException(KafkaError, code=ErrorCode.POSITION_OUT_OF_RANGE): ...


class UnknownTopicIdException(InvalidMetadataException, code=ErrorCode.UNKNOWN_TOPIC_ID): ...


class DuplicateBrokerRegistrationException(KafkaError, code=ErrorCode.DUPLICATE_BROKER_REGISTRATION): ...


class BrokerIdNotRegisteredException(KafkaError, code=ErrorCode.BROKER_ID_NOT_REGISTERED): ...


class InconsistentTopicIdException(InvalidMetadataException, code=ErrorCode.INCONSISTENT_TOPIC_ID): ...


class InconsistentClusterIdException(KafkaError, code=ErrorCode.INCONSISTENT_CLUSTER_ID): ...


class TransactionalIdNotFoundException(KafkaError, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND): ...


class FetchSessionTopicIdException(RetriableException, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR): ...


class IneligibleReplicaException(KafkaError, code=ErrorCode.INELIGIBLE_REPLICA): ...


class NewLeaderElectedException(KafkaError, code=ErrorCode.NEW_LEADER_ELECTED): ...


class OffsetMovedToTieredStorageException(KafkaError, code=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE): ...


class FencedMemberEpochException(KafkaError, code=ErrorCode.FENCED_MEMBER_EPOCH): ...


class UnreleasedInstanceIdException(KafkaError, code=ErrorCode.UNRELEASED_INSTANCE_ID): ...


class UnsupportedAssignorException(KafkaError, code=ErrorCode.UNSUPPORTED_ASSIGNOR): ...


class StaleMemberEpochException(KafkaError, code=ErrorCode.STALE_MEMBER_EPOCH): ...


class MismatchedEndpointTypeException(KafkaError, code=ErrorCode.MISMATCHED_ENDPOINT_TYPE): ...


class UnsupportedEndpointTypeException(KafkaError, code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE): ...


class UnknownControllerIdException(KafkaError, code=ErrorCode.UNKNOWN_CONTROLLER_ID): ...


class UnknownSubscriptionIdException(KafkaError, code=ErrorCode.UNKNOWN_SUBSCRIPTION_ID): ...


class TelemetryTooLargeException(KafkaError, code=ErrorCode.TELEMETRY_TOO_LARGE): ...


class InvalidRegistrationException(KafkaError, code=ErrorCode.INVALID_REGISTRATION): ...


class TransactionAbortableException(KafkaError, code=ErrorCode.TRANSACTION_ABORTABLE): ...


class InvalidRecordStateException(KafkaError, code=ErrorCode.INVALID_RECORD_STATE): ...


class ShareSessionNotFoundException(RetriableException, code=ErrorCode.SHARE_SESSION_NOT_FOUND): ...


class InvalidShareSessionEpochException(RetriableException, code=ErrorCode.INVALID_SHARE_SESSION_EPOCH): ...


class FencedStateEpochException(KafkaError, code=ErrorCode.FENCED_STATE_EPOCH): ...


class InvalidVoterKeyException(KafkaError, code=ErrorCode.INVALID_VOTER_KEY): ...


class DuplicateVoterException(KafkaError, code=ErrorCode.DUPLICATE_VOTER): ...


class VoterNotFoundException(KafkaError, code=ErrorCode.VOTER_NOT_FOUND): ...


class InvalidRegularExpression(KafkaError, code=ErrorCode.INVALID_REGULAR_EXPRESSION): ...


class RebootstrapRequiredException(KafkaError, code=ErrorCode.REBOOTSTRAP_REQUIRED): ...


class StreamsInvalidTopologyException(KafkaError, code=ErrorCode.STREAMS_INVALID_TOPOLOGY): ...


class StreamsInvalidTopologyEpochException(KafkaError, code=ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH): ...


class StreamsTopologyFencedException(KafkaError, code=ErrorCode.STREAMS_TOPOLOGY_FENCED): ...


class ShareSessionLimitReachedException(RetriableException, code=ErrorCode.SHARE_SESSION_LIMIT_REACHED): ...


# Raised by the client alone


class ConfigException(InvalidConfigurationException):
    """A client got an unknown setting, or an invalid value."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)


class SslAuthenticationException(AuthenticationException):
    """The TLS handshake with a broker failed: one side does not trust the other's certificate, or its name is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)

    def __str__(self) -> str:
        return str(self.message)


class IllegalStateException(KafkaError):
    """A call at the wrong time: the client is closed or not open yet, or no transaction is open."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)

    def __str__(self) -> str:
        return str(self.message)


class SerializationException(KafkaError):
    """The serializer does not accept a key or value, or the deserializer does not accept the bytes."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class RecordDeserializationException(SerializationException):
    """The deserializer does not accept a key or value. The position stays before the record; seek to `offset` + 1 to
    skip it.
    """

    def __init__(self, message: str, topic: str, partition: int, offset: int) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class UnreadableBatchException(KafkaError):
    """The records of a batch in the log cannot be read: its producer wrote something else, or it decompresses to more
    than is allowed. The position stays before it; seek to `next_offset` to skip it, or set on_unreadable_batch="skip".
    """

    def __init__(self, message: str, topic: str, partition: int, offset: int, next_offset: int) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        """First offset that the batch claims."""
        self.next_offset = next_offset


class BufferExhaustedException(TimeoutException):
    """buffer.memory was full for all of max.block.ms: records are sent faster than the brokers accept them."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class NotAllSentException(KafkaError):
    """Not all records that were sent together were acknowledged. `outcomes` gives for each, in order, whether it is in
    the log (`Acked`), certainly is not (`Failed`), or may be (`Unknown`).
    """

    def __init__(self, outcomes: Sequence[Outcome], not_acked: int, first: Exception) -> None:
        code = first.code if isinstance(first, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        super().__init__(code, f"{not_acked} of {len(outcomes)} records were not acknowledged; the first: {first}")
        self.outcomes = list(outcomes)


class NoOffsetForPartitionException(InvalidOffsetException):
    """The group has committed nothing for a partition, and auto.offset.reset is `none`."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)


class LogTruncationException(OffsetOutOfRangeException):
    """The log was truncated below the position, and auto.offset.reset is `none` (KIP-320). Records that were read no
    longer exist; seek to `divergent` to accept that.
    """

    def __init__(self, message: str, topic: str, partition: int, divergent: OffsetAndMetadata | None) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.topic = topic
        self.partition = partition
        self.divergent = divergent
        """Position at which the log diverges from the one that was read; None if it is unknown."""


class CommitFailedException(KafkaError):
    """The group has rebalanced without this member: others read again what it read since its last commit."""
