"""After which errors surely nothing happened, by the names of Kafka's exceptions. A core.

For libraries that tell no more than the error: our own client says itself what may be in the log. Whatever is not here
leaves it open: a timeout, a disconnect, UnknownServerError, and NotLeaderOrFollower, which may come after the append
(KAFKA-13574).
"""

from __future__ import annotations

OF_SENDS = frozenset(
    {
        "OutOfOrderSequenceException",
        "ProducerFencedException",
        "TopicAuthorizationException",
        "ClusterAuthorizationException",
        "TransactionalIdAuthorizationException",
        "InvalidTopicException",
        "UnknownTopicOrPartitionException",
        "RecordTooLargeException",
        "SerializationException",
    }
)

OF_CHANGES = frozenset(
    {
        "TopicExistsException",
        "UnknownTopicOrPartitionException",
        "UnknownTopicIdException",
        "InvalidTopicException",
        "InvalidPartitionsException",
        "InvalidReplicationFactorException",
        "InvalidReplicaAssignmentException",
        "InvalidConfigurationException",
        "InvalidRequestException",
        "PolicyViolationException",
        "TopicAuthorizationException",
        "ClusterAuthorizationException",
        "TopicDeletionDisabledException",
    }
)
"""Of requests that change topics and configurations, where they are sent once."""
