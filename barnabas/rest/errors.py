"""Core: errors of the REST interface, with the codes of Confluent's REST Proxy v3."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode, KafkaError

_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (404, 40403),
    ErrorCode.GROUP_ID_NOT_FOUND: (404, 40403),
    ErrorCode.TOPIC_ALREADY_EXISTS: (400, 40002),
    ErrorCode.INVALID_PARTITIONS: (400, 40002),
    ErrorCode.INVALID_REPLICATION_FACTOR: (400, 40002),
    ErrorCode.INVALID_CONFIG: (400, 40002),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (400, 40002),
    ErrorCode.INVALID_REQUEST: (400, 40002),
    ErrorCode.POLICY_VIOLATION: (400, 40002),
    ErrorCode.MESSAGE_TOO_LARGE: (413, 41301),
    ErrorCode.INVALID_RECORD: (422, 42206),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (403, 40301),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (403, 40301),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (403, 40301),
}
_SERVER_ERROR = (500, 50002)


class RestError(Exception):
    """An answer that is an error; the message is one line."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def to_json(self) -> dict[str, object]:
        return {"error_code": self.code, "message": str(self)}


def refused(message: str) -> RestError:
    """The request is not as it must be."""
    return RestError(400, 400, message)


def of_kafka(error: KafkaError) -> RestError:
    status, code = _STATUS.get(ErrorCode(error.code), _SERVER_ERROR)
    return RestError(status, code, " ".join(str(error).split()))
