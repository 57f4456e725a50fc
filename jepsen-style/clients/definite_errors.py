"""After which errors surely nothing happened, by the names of Kafka's exceptions. A core.

For libraries that return no more than the error: our own client knows itself what may be in the log. An error that is
not here leaves it open: a timeout, a disconnect, UnknownServerError, and NotLeaderOrFollower, which may come after the
append (KAFKA-13574).
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
"""Definite errors of requests that change topics and configurations and are sent once."""
