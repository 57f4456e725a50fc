"""Core: the exceptions of the client: one class for each error of the protocol, named and related as in Java.

A `KafkaError` raised with a code is an instance of the class of that code once this module is imported, so `except
UnknownTopicOrPartitionException` works wherever the error was raised. `retriable`: the same call may succeed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.client.offsets import OffsetAndMetadata
from protocol.errors import ErrorCode, KafkaError

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


class OutOfOrderSequenceException(KafkaError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """OUT_OF_ORDER_SEQUENCE_NUMBER (45)."""


class UnknownServerException(KafkaError, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    """UNKNOWN_SERVER_ERROR (-1)."""


class OffsetOutOfRangeException(InvalidOffsetException, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """OFFSET_OUT_OF_RANGE (1)."""


class CorruptRecordException(RetriableException, code=ErrorCode.CORRUPT_MESSAGE):
    """CORRUPT_MESSAGE (2)."""


class UnknownTopicOrPartitionException(InvalidMetadataException, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
    """UNKNOWN_TOPIC_OR_PARTITION (3)."""


class InvalidFetchSizeException(KafkaError, code=ErrorCode.INVALID_FETCH_SIZE):
    """INVALID_FETCH_SIZE (4)."""


class LeaderNotAvailableException(InvalidMetadataException, code=ErrorCode.LEADER_NOT_AVAILABLE):
    """LEADER_NOT_AVAILABLE (5)."""


class NotLeaderOrFollowerException(InvalidMetadataException, code=ErrorCode.NOT_LEADER_OR_FOLLOWER):
    """NOT_LEADER_OR_FOLLOWER (6)."""


class TimeoutException(RetriableException, code=ErrorCode.REQUEST_TIMED_OUT):
    """REQUEST_TIMED_OUT (7)."""


class BrokerNotAvailableException(KafkaError, code=ErrorCode.BROKER_NOT_AVAILABLE):
    """BROKER_NOT_AVAILABLE (8)."""


class ReplicaNotAvailableException(InvalidMetadataException, code=ErrorCode.REPLICA_NOT_AVAILABLE):
    """REPLICA_NOT_AVAILABLE (9)."""


class RecordTooLargeException(KafkaError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """MESSAGE_TOO_LARGE (10)."""


class ControllerMovedException(KafkaError, code=ErrorCode.STALE_CONTROLLER_EPOCH):
    """STALE_CONTROLLER_EPOCH (11)."""


class OffsetMetadataTooLarge(KafkaError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE):
    """OFFSET_METADATA_TOO_LARGE (12)."""


class NetworkException(InvalidMetadataException, code=ErrorCode.NETWORK_EXCEPTION):
    """NETWORK_EXCEPTION (13)."""


class CoordinatorLoadInProgressException(RetriableException, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
    """COORDINATOR_LOAD_IN_PROGRESS (14)."""


class CoordinatorNotAvailableException(RefreshRetriableException, code=ErrorCode.COORDINATOR_NOT_AVAILABLE):
    """COORDINATOR_NOT_AVAILABLE (15)."""


class NotCoordinatorException(RefreshRetriableException, code=ErrorCode.NOT_COORDINATOR):
    """NOT_COORDINATOR (16)."""


class InvalidTopicException(InvalidConfigurationException, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """INVALID_TOPIC_EXCEPTION (17)."""


class RecordBatchTooLargeException(InvalidConfigurationException, code=ErrorCode.RECORD_LIST_TOO_LARGE):
    """RECORD_LIST_TOO_LARGE (18)."""


class NotEnoughReplicasException(RetriableException, code=ErrorCode.NOT_ENOUGH_REPLICAS):
    """NOT_ENOUGH_REPLICAS (19)."""


class NotEnoughReplicasAfterAppendException(RetriableException, code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
    """NOT_ENOUGH_REPLICAS_AFTER_APPEND (20)."""


class InvalidRequiredAcksException(InvalidConfigurationException, code=ErrorCode.INVALID_REQUIRED_ACKS):
    """INVALID_REQUIRED_ACKS (21)."""


class IllegalGenerationException(ApplicationRecoverableException, code=ErrorCode.ILLEGAL_GENERATION):
    """ILLEGAL_GENERATION (22)."""


class InconsistentGroupProtocolException(KafkaError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
    """INCONSISTENT_GROUP_PROTOCOL (23)."""


class InvalidGroupIdException(KafkaError, code=ErrorCode.INVALID_GROUP_ID):
    """INVALID_GROUP_ID (24)."""


class UnknownMemberIdException(ApplicationRecoverableException, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """UNKNOWN_MEMBER_ID (25)."""


class InvalidSessionTimeoutException(KafkaError, code=ErrorCode.INVALID_SESSION_TIMEOUT):
    """INVALID_SESSION_TIMEOUT (26)."""


class RebalanceInProgressException(KafkaError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    """REBALANCE_IN_PROGRESS (27)."""


class InvalidCommitOffsetSizeException(KafkaError, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
    """INVALID_COMMIT_OFFSET_SIZE (28)."""


class TopicAuthorizationException(AuthorizationException, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """TOPIC_AUTHORIZATION_FAILED (29)."""


class GroupAuthorizationException(AuthorizationException, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    """GROUP_AUTHORIZATION_FAILED (30)."""


class ClusterAuthorizationException(AuthorizationException, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    """CLUSTER_AUTHORIZATION_FAILED (31)."""


class InvalidTimestampException(KafkaError, code=ErrorCode.INVALID_TIMESTAMP):
    """INVALID_TIMESTAMP (32)."""


class UnsupportedSaslMechanismException(AuthenticationException, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM):
    """UNSUPPORTED_SASL_MECHANISM (33)."""


class IllegalSaslStateException(AuthenticationException, code=ErrorCode.ILLEGAL_SASL_STATE):
    """ILLEGAL_SASL_STATE (34)."""


class UnsupportedVersionException(InvalidConfigurationException, code=ErrorCode.UNSUPPORTED_VERSION):
    """UNSUPPORTED_VERSION (35)."""


class TopicExistsException(KafkaError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """TOPIC_ALREADY_EXISTS (36)."""


class InvalidPartitionsException(KafkaError, code=ErrorCode.INVALID_PARTITIONS):
    """INVALID_PARTITIONS (37)."""


class InvalidReplicationFactorException(InvalidConfigurationException, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """INVALID_REPLICATION_FACTOR (38)."""


class InvalidReplicaAssignmentException(KafkaError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT):
    """INVALID_REPLICA_ASSIGNMENT (39)."""


class NotControllerException(RetriableException, code=ErrorCode.NOT_CONTROLLER):
    """NOT_CONTROLLER (41)."""


class InvalidRequestException(KafkaError, code=ErrorCode.INVALID_REQUEST):
    """INVALID_REQUEST (42)."""


class UnsupportedForMessageFormatException(
    InvalidConfigurationException, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
):
    """UNSUPPORTED_FOR_MESSAGE_FORMAT (43)."""


class PolicyViolationException(KafkaError, code=ErrorCode.POLICY_VIOLATION):
    """POLICY_VIOLATION (44)."""


class DuplicateSequenceException(KafkaError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
    """DUPLICATE_SEQUENCE_NUMBER (46)."""


class InvalidProducerEpochException(ApplicationRecoverableException, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """INVALID_PRODUCER_EPOCH (47)."""


class InvalidTxnStateException(KafkaError, code=ErrorCode.INVALID_TXN_STATE):
    """INVALID_TXN_STATE (48)."""


class InvalidPidMappingException(ApplicationRecoverableException, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING):
    """INVALID_PRODUCER_ID_MAPPING (49)."""


class InvalidTxnTimeoutException(KafkaError, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT):
    """INVALID_TRANSACTION_TIMEOUT (50)."""


class ConcurrentTransactionsException(RetriableException, code=ErrorCode.CONCURRENT_TRANSACTIONS):
    """CONCURRENT_TRANSACTIONS (51)."""


class TransactionCoordinatorFencedException(KafkaError, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED):
    """TRANSACTION_COORDINATOR_FENCED (52)."""


class TransactionalIdAuthorizationException(
    AuthorizationException, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
):
    """TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53)."""


class SecurityDisabledException(KafkaError, code=ErrorCode.SECURITY_DISABLED):
    """SECURITY_DISABLED (54)."""


class OperationNotAttemptedException(KafkaError, code=ErrorCode.OPERATION_NOT_ATTEMPTED):
    """OPERATION_NOT_ATTEMPTED (55)."""


class KafkaStorageException(InvalidMetadataException, code=ErrorCode.KAFKA_STORAGE_ERROR):
    """KAFKA_STORAGE_ERROR (56)."""


class LogDirNotFoundException(KafkaError, code=ErrorCode.LOG_DIR_NOT_FOUND):
    """LOG_DIR_NOT_FOUND (57)."""


class SaslAuthenticationException(AuthenticationException, code=ErrorCode.SASL_AUTHENTICATION_FAILED):
    """SASL_AUTHENTICATION_FAILED (58)."""


class UnknownProducerIdException(OutOfOrderSequenceException, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    """UNKNOWN_PRODUCER_ID (59)."""


class ReassignmentInProgressException(KafkaError, code=ErrorCode.REASSIGNMENT_IN_PROGRESS):
    """REASSIGNMENT_IN_PROGRESS (60)."""


class DelegationTokenDisabledException(KafkaError, code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
    """DELEGATION_TOKEN_AUTH_DISABLED (61)."""


class DelegationTokenNotFoundException(KafkaError, code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
    """DELEGATION_TOKEN_NOT_FOUND (62)."""


class DelegationTokenOwnerMismatchException(KafkaError, code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
    """DELEGATION_TOKEN_OWNER_MISMATCH (63)."""


class UnsupportedByAuthenticationException(KafkaError, code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED):
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (64)."""


class DelegationTokenAuthorizationException(
    AuthorizationException, code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
):
    """DELEGATION_TOKEN_AUTHORIZATION_FAILED (65)."""


class DelegationTokenExpiredException(KafkaError, code=ErrorCode.DELEGATION_TOKEN_EXPIRED):
    """DELEGATION_TOKEN_EXPIRED (66)."""


class InvalidPrincipalTypeException(KafkaError, code=ErrorCode.INVALID_PRINCIPAL_TYPE):
    """INVALID_PRINCIPAL_TYPE (67)."""


class GroupNotEmptyException(KafkaError, code=ErrorCode.NON_EMPTY_GROUP):
    """NON_EMPTY_GROUP (68)."""


class GroupIdNotFoundException(KafkaError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    """GROUP_ID_NOT_FOUND (69)."""


class FetchSessionIdNotFoundException(RetriableException, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
    """FETCH_SESSION_ID_NOT_FOUND (70)."""


class InvalidFetchSessionEpochException(RetriableException, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH):
    """INVALID_FETCH_SESSION_EPOCH (71)."""


class ListenerNotFoundException(InvalidMetadataException, code=ErrorCode.LISTENER_NOT_FOUND):
    """LISTENER_NOT_FOUND (72)."""


class TopicDeletionDisabledException(KafkaError, code=ErrorCode.TOPIC_DELETION_DISABLED):
    """TOPIC_DELETION_DISABLED (73)."""


class FencedLeaderEpochException(InvalidMetadataException, code=ErrorCode.FENCED_LEADER_EPOCH):
    """FENCED_LEADER_EPOCH (74)."""


class UnknownLeaderEpochException(RetriableException, code=ErrorCode.UNKNOWN_LEADER_EPOCH):
    """UNKNOWN_LEADER_EPOCH (75)."""


class UnsupportedCompressionTypeException(KafkaError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
    """UNSUPPORTED_COMPRESSION_TYPE (76)."""


class StaleBrokerEpochException(KafkaError, code=ErrorCode.STALE_BROKER_EPOCH):
    """STALE_BROKER_EPOCH (77)."""


class OffsetNotAvailableException(RetriableException, code=ErrorCode.OFFSET_NOT_AVAILABLE):
    """OFFSET_NOT_AVAILABLE (78)."""


class MemberIdRequiredException(KafkaError, code=ErrorCode.MEMBER_ID_REQUIRED):
    """MEMBER_ID_REQUIRED (79)."""


class PreferredLeaderNotAvailableException(InvalidMetadataException, code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE):
    """PREFERRED_LEADER_NOT_AVAILABLE (80)."""


class GroupMaxSizeReachedException(KafkaError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    """GROUP_MAX_SIZE_REACHED (81)."""


class FencedInstanceIdException(ApplicationRecoverableException, code=ErrorCode.FENCED_INSTANCE_ID):
    """FENCED_INSTANCE_ID (82)."""


class EligibleLeadersNotAvailableException(InvalidMetadataException, code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE):
    """ELIGIBLE_LEADERS_NOT_AVAILABLE (83)."""


class ElectionNotNeededException(InvalidMetadataException, code=ErrorCode.ELECTION_NOT_NEEDED):
    """ELECTION_NOT_NEEDED (84)."""


class NoReassignmentInProgressException(KafkaError, code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
    """NO_REASSIGNMENT_IN_PROGRESS (85)."""


class GroupSubscribedToTopicException(KafkaError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
    """GROUP_SUBSCRIBED_TO_TOPIC (86)."""


class InvalidRecordException(InvalidConfigurationException, code=ErrorCode.INVALID_RECORD):
    """INVALID_RECORD (87)."""


class UnstableOffsetCommitException(RetriableException, code=ErrorCode.UNSTABLE_OFFSET_COMMIT):
    """UNSTABLE_OFFSET_COMMIT (88)."""


class ThrottlingQuotaExceededException(RetriableException, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED):
    """THROTTLING_QUOTA_EXCEEDED (89)."""


class ProducerFencedException(ApplicationRecoverableException, code=ErrorCode.PRODUCER_FENCED):
    """PRODUCER_FENCED (90)."""


class ResourceNotFoundException(KafkaError, code=ErrorCode.RESOURCE_NOT_FOUND):
    """RESOURCE_NOT_FOUND (91)."""


class DuplicateResourceException(KafkaError, code=ErrorCode.DUPLICATE_RESOURCE):
    """DUPLICATE_RESOURCE (92)."""


class UnacceptableCredentialException(KafkaError, code=ErrorCode.UNACCEPTABLE_CREDENTIAL):
    """UNACCEPTABLE_CREDENTIAL (93)."""


class InconsistentVoterSetException(KafkaError, code=ErrorCode.INCONSISTENT_VOTER_SET):
    """INCONSISTENT_VOTER_SET (94)."""


class InvalidUpdateVersionException(KafkaError, code=ErrorCode.INVALID_UPDATE_VERSION):
    """INVALID_UPDATE_VERSION (95)."""


class FeatureUpdateFailedException(KafkaError, code=ErrorCode.FEATURE_UPDATE_FAILED):
    """FEATURE_UPDATE_FAILED (96)."""


class PrincipalDeserializationException(KafkaError, code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE):
    """PRINCIPAL_DESERIALIZATION_FAILURE (97)."""


class SnapshotNotFoundException(KafkaError, code=ErrorCode.SNAPSHOT_NOT_FOUND):
    """SNAPSHOT_NOT_FOUND (98)."""


class PositionOutOfRangeException(KafkaError, code=ErrorCode.POSITION_OUT_OF_RANGE):
    """POSITION_OUT_OF_RANGE (99)."""


class UnknownTopicIdException(InvalidMetadataException, code=ErrorCode.UNKNOWN_TOPIC_ID):
    """UNKNOWN_TOPIC_ID (100)."""


class DuplicateBrokerRegistrationException(KafkaError, code=ErrorCode.DUPLICATE_BROKER_REGISTRATION):
    """DUPLICATE_BROKER_REGISTRATION (101)."""


class BrokerIdNotRegisteredException(KafkaError, code=ErrorCode.BROKER_ID_NOT_REGISTERED):
    """BROKER_ID_NOT_REGISTERED (102)."""


class InconsistentTopicIdException(InvalidMetadataException, code=ErrorCode.INCONSISTENT_TOPIC_ID):
    """INCONSISTENT_TOPIC_ID (103)."""


class InconsistentClusterIdException(KafkaError, code=ErrorCode.INCONSISTENT_CLUSTER_ID):
    """INCONSISTENT_CLUSTER_ID (104)."""


class TransactionalIdNotFoundException(KafkaError, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
    """TRANSACTIONAL_ID_NOT_FOUND (105)."""


class FetchSessionTopicIdException(RetriableException, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR):
    """FETCH_SESSION_TOPIC_ID_ERROR (106)."""


class IneligibleReplicaException(KafkaError, code=ErrorCode.INELIGIBLE_REPLICA):
    """INELIGIBLE_REPLICA (107)."""


class NewLeaderElectedException(KafkaError, code=ErrorCode.NEW_LEADER_ELECTED):
    """NEW_LEADER_ELECTED (108)."""


class OffsetMovedToTieredStorageException(KafkaError, code=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE):
    """OFFSET_MOVED_TO_TIERED_STORAGE (109)."""


class FencedMemberEpochException(KafkaError, code=ErrorCode.FENCED_MEMBER_EPOCH):
    """FENCED_MEMBER_EPOCH (110)."""


class UnreleasedInstanceIdException(KafkaError, code=ErrorCode.UNRELEASED_INSTANCE_ID):
    """UNRELEASED_INSTANCE_ID (111)."""


class UnsupportedAssignorException(KafkaError, code=ErrorCode.UNSUPPORTED_ASSIGNOR):
    """UNSUPPORTED_ASSIGNOR (112)."""


class StaleMemberEpochException(KafkaError, code=ErrorCode.STALE_MEMBER_EPOCH):
    """STALE_MEMBER_EPOCH (113)."""


class MismatchedEndpointTypeException(KafkaError, code=ErrorCode.MISMATCHED_ENDPOINT_TYPE):
    """MISMATCHED_ENDPOINT_TYPE (114)."""


class UnsupportedEndpointTypeException(KafkaError, code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE):
    """UNSUPPORTED_ENDPOINT_TYPE (115)."""


class UnknownControllerIdException(KafkaError, code=ErrorCode.UNKNOWN_CONTROLLER_ID):
    """UNKNOWN_CONTROLLER_ID (116)."""


class UnknownSubscriptionIdException(KafkaError, code=ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
    """UNKNOWN_SUBSCRIPTION_ID (117)."""


class TelemetryTooLargeException(KafkaError, code=ErrorCode.TELEMETRY_TOO_LARGE):
    """TELEMETRY_TOO_LARGE (118)."""


class InvalidRegistrationException(KafkaError, code=ErrorCode.INVALID_REGISTRATION):
    """INVALID_REGISTRATION (119)."""


class TransactionAbortableException(KafkaError, code=ErrorCode.TRANSACTION_ABORTABLE):
    """TRANSACTION_ABORTABLE (120)."""


class InvalidRecordStateException(KafkaError, code=ErrorCode.INVALID_RECORD_STATE):
    """INVALID_RECORD_STATE (121)."""


class ShareSessionNotFoundException(RetriableException, code=ErrorCode.SHARE_SESSION_NOT_FOUND):
    """SHARE_SESSION_NOT_FOUND (122)."""


class InvalidShareSessionEpochException(RetriableException, code=ErrorCode.INVALID_SHARE_SESSION_EPOCH):
    """INVALID_SHARE_SESSION_EPOCH (123)."""


class FencedStateEpochException(KafkaError, code=ErrorCode.FENCED_STATE_EPOCH):
    """FENCED_STATE_EPOCH (124)."""


class InvalidVoterKeyException(KafkaError, code=ErrorCode.INVALID_VOTER_KEY):
    """INVALID_VOTER_KEY (125)."""


class DuplicateVoterException(KafkaError, code=ErrorCode.DUPLICATE_VOTER):
    """DUPLICATE_VOTER (126)."""


class VoterNotFoundException(KafkaError, code=ErrorCode.VOTER_NOT_FOUND):
    """VOTER_NOT_FOUND (127)."""


class InvalidRegularExpression(KafkaError, code=ErrorCode.INVALID_REGULAR_EXPRESSION):
    """INVALID_REGULAR_EXPRESSION (128)."""


class RebootstrapRequiredException(KafkaError, code=ErrorCode.REBOOTSTRAP_REQUIRED):
    """REBOOTSTRAP_REQUIRED (129)."""


class StreamsInvalidTopologyException(KafkaError, code=ErrorCode.STREAMS_INVALID_TOPOLOGY):
    """STREAMS_INVALID_TOPOLOGY (130)."""


class StreamsInvalidTopologyEpochException(KafkaError, code=ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH):
    """STREAMS_INVALID_TOPOLOGY_EPOCH (131)."""


class StreamsTopologyFencedException(KafkaError, code=ErrorCode.STREAMS_TOPOLOGY_FENCED):
    """STREAMS_TOPOLOGY_FENCED (132)."""


class ShareSessionLimitReachedException(RetriableException, code=ErrorCode.SHARE_SESSION_LIMIT_REACHED):
    """SHARE_SESSION_LIMIT_REACHED (133)."""


# Raised by the client alone


class ConfigException(InvalidConfigurationException):
    """A client got an unknown setting, or an invalid value."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)


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
        """Where the log diverges from the one that was read; None if it is unknown."""


class CommitFailedException(KafkaError):
    """The group has rebalanced without this member: others read again what it read since its last commit."""
