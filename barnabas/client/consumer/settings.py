"""Settings of a consumer: Kafka's names in snake_case, Kafka's defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from barnabas.client.consumer.completed_fetch import Unpacking
from barnabas.client.consumer.reading_settings import ReadingSettings
from barnabas.client.consumer.reset_policy import ResetPolicy
from barnabas.client.groups.assignors import AssignorOption, assignors_of
from barnabas.client.groups.membership import GroupSettings
from barnabas.client.interceptors import ConsumerInterceptor
from barnabas.client.offset_lookup import Isolation
from barnabas.client.schema_settings import SchemaReadingOptions, SchemaReadingSettings
from barnabas.client.serialization import DeserializerOption
from barnabas.client.settings import ClientOptions
from barnabas.protocol.records.record import CLIENT_LIMIT_BYTES

OF_CLASSIC_GROUPS = ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy")
"""Settings that the broker has in consumer groups."""


class ConsumerSettings(SchemaReadingSettings):
    """The settings of one consumer."""

    group_id: str | None = None
    """None: no group. Then partitions are assigned by hand, and nothing is committed."""
    group_instance_id: str | None = Field(None, min_length=1)
    """Makes it a static member (KIP-345): a restart within the session moves no partition."""
    group_protocol: str = "classic"
    """`classic` or `consumer` (KIP-848)."""
    group_remote_assignor: str | None = None
    """Server-side assignor of a consumer group; None leaves the choice to the broker."""
    partition_assignment_strategy: tuple[Any, ...] = ("range", "cooperative-sticky")
    """Assignors of a classic group: `range`, `roundrobin`, `sticky`, `cooperative-sticky`, or `Assignor` objects."""
    session_timeout_ms: int = Field(45_000, gt=0)
    heartbeat_interval_ms: int = Field(3_000, gt=0)
    max_poll_interval_ms: int = Field(300_000, ge=1)
    """A member that does not poll for this long leaves its group until it polls again."""
    max_poll_records: int = Field(500, ge=1)
    enable_auto_commit: bool = True
    """Without a group_id nothing is committed."""
    auto_commit_interval_ms: int = Field(5_000, ge=0)
    auto_offset_reset: str = "latest"
    """Start without a committed offset: latest, earliest, none or by_duration:PnDTnHnMn.nS."""
    isolation_level: str = Field("read_uncommitted", pattern="^(read_uncommitted|read_committed)$")
    fetch_min_bytes: int = Field(1, ge=0)
    fetch_max_bytes: int = Field(52_428_800, ge=0)
    max_partition_fetch_bytes: int = Field(1_048_576, ge=0)
    fetch_max_wait_ms: int = Field(500, ge=0)
    check_crcs: bool = True
    on_unreadable_batch: str = Field("stop", pattern="^(stop|skip)$")
    """Reaction to an intact batch whose records cannot be read: `stop` raises UnreadableBatchException and stays before
    it, `skip` logs a warning and skips it. Not a setting of Kafka."""
    max_batch_unfolded_bytes: int = Field(CLIENT_LIMIT_BYTES, ge=1)
    """Largest decompressed size of a batch; larger ones cannot be read. Not a setting of Kafka."""
    default_api_timeout_ms: int = Field(60_000, ge=0)
    exclude_internal_topics: bool = True
    """A pattern matches no internal topics; they can be subscribed to by name."""
    key_deserializer: Any = "bytes"
    value_deserializer: Any = "bytes"
    interceptors: tuple[Any, ...] = ()

    @field_validator("group_protocol", "isolation_level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("group_protocol")
    @classmethod
    def _check_protocol(cls, value: str) -> str:
        if value not in ("classic", "consumer"):
            raise ValueError("must be classic or consumer")
        return value

    @field_validator("auto_offset_reset")
    @classmethod
    def _check_reset(cls, value: str) -> str:
        ResetPolicy.parse(value)
        return value

    @field_validator("partition_assignment_strategy", mode="before")
    @classmethod
    def _check_assignors(cls, value: object) -> object:
        options = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        return tuple(options) if isinstance(options, Sequence) else (options,)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        assignors_of(self.partition_assignment_strategy)
        if self.group_protocol == "classic":
            if self.group_remote_assignor:
                raise ValueError(f"group_remote_assignor needs group_protocol=consumer; got {self.group_protocol}")
            if self.group_id is not None and self.heartbeat_interval_ms >= self.session_timeout_ms:
                raise ValueError(
                    f"heartbeat_interval_ms must be less than session_timeout_ms ({self.session_timeout_ms}); "
                    f"got {self.heartbeat_interval_ms}"
                )
        for name in OF_CLASSIC_GROUPS:
            if self.group_protocol == "consumer" and name in self.model_fields_set:
                raise ValueError(f"{name} needs group_protocol=classic; got consumer")
        if self.group_id is not None and not self.group_id.strip():
            raise ValueError(
                f"group_id must not be blank; got {self.group_id!r} (leave it out for a consumer without a group)"
            )
        if self.group_id is None and self.enable_auto_commit and "enable_auto_commit" in self.model_fields_set:
            raise ValueError("enable_auto_commit needs a group_id; got none")
        return self

    @property
    def commits_by_itself(self) -> bool:
        return self.enable_auto_commit and self.group_id is not None

    @property
    def reads_committed(self) -> bool:
        return self.isolation_level == "read_committed"

    @property
    def reset_policy(self) -> ResetPolicy:
        return ResetPolicy.parse(self.auto_offset_reset)

    @property
    def reading(self) -> ReadingSettings:
        """Settings of the reader."""
        keys = None if self.key_deserializer == "bytes" else self.deserializer("key", self.key_deserializer)
        values = None if self.value_deserializer == "bytes" else self.deserializer("value", self.value_deserializer)
        return ReadingSettings(
            isolation=Isolation.READ_COMMITTED if self.reads_committed else Isolation.READ_UNCOMMITTED,
            reset=self.reset_policy,
            fetch_min_bytes=self.fetch_min_bytes,
            fetch_max_bytes=self.fetch_max_bytes,
            max_partition_fetch_bytes=self.max_partition_fetch_bytes,
            fetch_max_wait_ms=self.fetch_max_wait_ms,
            default_api_timeout_ms=self.default_api_timeout_ms,
            client_rack=self.client_rack,
            metadata_max_age_ms=self.metadata_max_age_ms,
            unpacking=Unpacking(
                self.check_crcs,
                keys,
                values,
                skips_unreadable=self.on_unreadable_batch == "skip",
                most_batch_bytes=self.max_batch_unfolded_bytes,
            ),
        )

    def group(self, group_id: str) -> GroupSettings:
        """Settings of the group membership."""
        return GroupSettings(
            group_id,
            group_instance_id=self.group_instance_id,
            group_protocol=self.group_protocol,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            max_poll_interval_ms=self.max_poll_interval_ms,
            partition_assignors=self.partition_assignment_strategy,
            group_remote_assignor=self.group_remote_assignor,
            client_rack=self.client_rack,
            metadata_max_age_ms=self.metadata_max_age_ms,
            default_api_timeout_ms=self.default_api_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
        )


class ConsumerOptions(ClientOptions, SchemaReadingOptions, total=False):
    """Keyword arguments of `Consumer`; `ConsumerSettings` and `ClientSettings` have their meanings."""

    client_rack: str
    allow_auto_create_topics: bool
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    partition_assignment_strategy: str | Sequence[AssignorOption]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    isolation_level: str
    fetch_min_bytes: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    fetch_max_wait_ms: int
    check_crcs: bool
    on_unreadable_batch: str
    max_batch_unfolded_bytes: int
    default_api_timeout_ms: int
    exclude_internal_topics: bool
    key_deserializer: DeserializerOption
    value_deserializer: DeserializerOption
    interceptors: Sequence[ConsumerInterceptor]
