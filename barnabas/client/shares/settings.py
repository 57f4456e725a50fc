"""Settings of a share consumer: Kafka's names in snake_case, Kafka's defaults."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from barnabas.client.consumer.completed_fetch import Unpacking
from barnabas.client.groups.membership import GroupSettings
from barnabas.client.serialization import DeserializerOption, deserializer_of
from barnabas.client.settings import ClientOptions, ClientSettings
from barnabas.client.shares.share_session import FetchTerms
from barnabas.protocol.records.record import CLIENT_LIMIT_BYTES


class ShareConsumerSettings(ClientSettings):
    """The settings of one share consumer. Start offsets, isolation and locks are configs of the group."""

    group_id: str
    share_acknowledgement_mode: str = Field("implicit", pattern="^(implicit|explicit)$")
    """`implicit`: the next poll or commit accepts all records of the last poll. `explicit`: the application
    acknowledges each record."""
    share_acquire_mode: str = Field("batch_optimized", pattern="^(batch_optimized|record_limit)$")
    """`record_limit`: a poll returns at most max_poll_records. `batch_optimized`: it may return more, because batches
    stay whole."""
    max_poll_records: int = Field(500, ge=1)
    max_poll_interval_ms: int = Field(300_000, ge=1)
    """A member that does not poll for this long, and holds no record, leaves its group until it polls again."""
    fetch_min_bytes: int = Field(1, ge=0)
    fetch_max_bytes: int = Field(52_428_800, ge=0)
    fetch_max_wait_ms: int = Field(500, ge=0)
    check_crcs: bool = True
    max_batch_unfolded_bytes: int = Field(CLIENT_LIMIT_BYTES, ge=1)
    """Largest decompressed size of a batch; larger ones are rejected. Not a setting of Kafka."""
    default_api_timeout_ms: int = Field(60_000, ge=0)
    key_deserializer: Any = "bytes"
    value_deserializer: Any = "bytes"
    reject_on: tuple[type[Exception], ...] = ()
    """Exceptions after which `async with record` rejects the record; others release it. Not a setting of Kafka."""

    @field_validator("share_acknowledgement_mode", "share_acquire_mode", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("group_id")
    @classmethod
    def _check_group_id(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be blank")
        return value

    @property
    def is_explicit(self) -> bool:
        return self.share_acknowledgement_mode == "explicit"

    @property
    def keeps_batches_whole(self) -> bool:
        return self.share_acquire_mode == "batch_optimized"

    @property
    def unpacking(self) -> Unpacking:
        """Rules for making records from bytes."""
        keys = None if self.key_deserializer == "bytes" else deserializer_of(self.key_deserializer, "key_deserializer")
        values = None if self.value_deserializer == "bytes" else deserializer_of(self.value_deserializer)
        return Unpacking(self.check_crcs, keys, values, most_batch_bytes=self.max_batch_unfolded_bytes)

    def fetch_terms(self, max_records: int) -> FetchTerms:
        return FetchTerms(
            self.fetch_max_wait_ms,
            self.fetch_min_bytes,
            self.fetch_max_bytes,
            max_records,
            0 if self.keeps_batches_whole else 1,
        )

    @property
    def group(self) -> GroupSettings:
        """Settings of the group membership."""
        return GroupSettings(
            self.group_id,
            group_protocol="share",
            max_poll_interval_ms=self.max_poll_interval_ms,
            client_rack=self.client_rack,
            metadata_max_age_ms=self.metadata_max_age_ms,
            default_api_timeout_ms=self.default_api_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
        )


class ShareConsumerOptions(ClientOptions, total=False):
    """Keyword arguments of `ShareConsumer`; `ShareConsumerSettings` and `ClientSettings` have their meanings."""

    client_rack: str
    allow_auto_create_topics: bool
    group_id: str
    share_acknowledgement_mode: str
    share_acquire_mode: str
    max_poll_records: int
    max_poll_interval_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    check_crcs: bool
    max_batch_unfolded_bytes: int
    default_api_timeout_ms: int
    key_deserializer: DeserializerOption
    value_deserializer: DeserializerOption
    reject_on: tuple[type[Exception], ...]
