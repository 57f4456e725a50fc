"""Core: the items of a request that its sender has a right to, and the answer with those that it has not."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode


class May(Protocol):
    """`Call.may`."""

    def __call__(
        self, operation: AclOperation, resource_type: AclResourceType, name: str, *, audited: bool = True
    ) -> bool: ...


@dataclass(slots=True)
class Permitted:
    """The request that is left, and the results of what was taken out."""

    request: Any
    field_name: str = ""
    """The list of the response that gets the results."""
    refused: list[Any] = field(default_factory=list)
    hidden_configs: frozenset[str] = frozenset()
    """Topics that may be created by a client that may not see their configs."""

    def complete(self, response: Any) -> Any:
        """The response to the whole request, from the one to what was left of it."""
        if self.hidden_configs:
            for topic in response.topics:
                if topic.name in self.hidden_configs and not topic.error_code:
                    topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    topic.num_partitions = topic.replication_factor = -1
                    topic.configs = None
        if self.refused:
            getattr(response, self.field_name).extend(self.refused)
        return response


Checking = Generator[None, None, Permitted]
"""A check in steps."""

Check = Callable[[Any, May, MetadataImage], Checking]
