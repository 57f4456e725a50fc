"""Settings of a producer: Kafka's names in snake_case, Kafka's defaults.

Some settings depend on others. A contradiction to a setting that was given is refused; a contradiction to a default
changes the default: `acks=1` turns idempotence off, and a long linger raises the delivery timeout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from barnabas.client.interceptors import ProducerInterceptor
from barnabas.client.producer.partitioner import Partitioner
from barnabas.client.schema_settings import SchemaWritingOptions, SchemaWritingSettings
from barnabas.client.serialization import SerializerOption
from barnabas.client.settings import ClientOptions
from barnabas.protocol.records.compression import Compression

IDEMPOTENT_IN_FLIGHT = 5
"""Number of batches of a producer that a broker remembers to detect duplicates."""

MAX_INT32 = 2**31 - 1


class ProducerSettings(SchemaWritingSettings):
    """The settings of one producer, after the dependent defaults are applied."""

    acks: str = Field("all", pattern="^(all|-1|0|1)$")
    """Replicas that must have a record: all in-sync ones, 1 the leader alone, 0 no acknowledgement at all."""
    batch_size: int = Field(16_384, ge=0, le=MAX_INT32)
    """Bytes; 0 sends each record in its own batch."""
    buffer_memory: int = Field(33_554_432, ge=0)
    compression_type: str = Field("none", pattern="^(none|gzip|snappy|lz4|zstd)$")
    compression_gzip_level: int = Field(-1, ge=-1, le=9)
    compression_lz4_level: int = Field(9, ge=1, le=17)
    compression_zstd_level: int = Field(3, ge=-131_072, le=22)
    delivery_timeout_ms: int = Field(120_000, ge=0, le=MAX_INT32)
    enable_idempotence: bool = True
    interceptors: tuple[ProducerInterceptor, ...] = ()
    """Kafka's `interceptor.classes`: here objects, not names of classes."""
    key_serializer: Any = "bytes"
    value_serializer: Any = "bytes"
    linger_ms: int = Field(5, ge=0)
    max_block_ms: int = Field(60_000, ge=0)
    max_in_flight_requests_per_connection: int = Field(5, ge=1)
    max_request_size: int = Field(1_048_576, ge=0, le=MAX_INT32)
    metadata_max_idle_ms: int = Field(300_000, ge=5_000)
    metrics_num_samples: int = Field(2, ge=1)
    metrics_sample_window_ms: int = Field(30_000, ge=0)
    partitioner_adaptive_partitioning_enable: bool = True
    partitioner_availability_timeout_ms: int = Field(0, ge=0)
    partitioner_class: Any = None
    """A `Partitioner`; None is Kafka's default: by key, sticky without a key."""
    partitioner_ignore_keys: bool = False
    retries: int = Field(MAX_INT32, ge=0, le=MAX_INT32)
    transaction_timeout_ms: int = Field(60_000, ge=1, le=MAX_INT32)
    transaction_two_phase_commit_enable: bool = False
    """An external coordinator decides about transactions (KIP-939): they have no timeout, and can be prepared."""
    transactional_id: str | None = Field(None, min_length=1)

    @field_validator("acks", mode="before")
    @classmethod
    def _acks_as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("interceptors", mode="before")
    @classmethod
    def _interceptors_as_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("compression_gzip_level")
    @classmethod
    def _gzip_has_no_level_0(cls, value: int) -> int:
        if value == 0:
            raise ValueError("must be 1 to 9, or -1 for gzip's default")
        return value

    @field_validator("partitioner_class")
    @classmethod
    def _partitioner_can_be_called(cls, value: object) -> object:
        if value is not None and not callable(value):
            raise ValueError("must be callable with (topic, key, value, partitions, available)")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        given = self.model_fields_set
        against = self._against_idempotence()
        if self.enable_idempotence and against:
            if "enable_idempotence" in given:
                raise ValueError(f"enable_idempotence needs {against}")
            self.__dict__["enable_idempotence"] = False
        if self.transactional_id is not None and not self.enable_idempotence:
            raise ValueError(
                f"transactional_id needs enable_idempotence, which {f'needs {against}' if against else 'is False'}"
            )
        if self.transaction_two_phase_commit_enable:
            if self.transactional_id is None:
                raise ValueError("transaction_two_phase_commit_enable needs a transactional_id")
            if "transaction_timeout_ms" in given:
                raise ValueError(
                    "transaction_timeout_ms cannot be set with transaction_two_phase_commit_enable: "
                    f"such transactions have no timeout; got {self.transaction_timeout_ms}"
                )
        if self.buffer_memory < self.batch_size:
            raise ValueError(f"buffer_memory must be at least batch_size ({self.batch_size}); got {self.buffer_memory}")
        least_ms = min(self.linger_ms + self.request_timeout_ms, MAX_INT32)
        if self.delivery_timeout_ms < least_ms:
            if "delivery_timeout_ms" in given:
                raise ValueError(
                    f"delivery_timeout_ms must be at least linger_ms + request_timeout_ms ({least_ms}); "
                    f"got {self.delivery_timeout_ms}"
                )
            self.__dict__["delivery_timeout_ms"] = least_ms
        return self

    def _against_idempotence(self) -> str:
        """The first need of idempotence that is not met, and the value in its place; "" if all are."""
        if self.required_acks != -1:
            return f"acks=all; got {self.acks}"
        if self.retries == 0:
            return "retries of at least 1; got 0"
        if self.max_in_flight_requests_per_connection > IDEMPOTENT_IN_FLIGHT:
            in_flight = self.max_in_flight_requests_per_connection
            return f"max_in_flight_requests_per_connection of at most {IDEMPOTENT_IN_FLIGHT}; got {in_flight}"
        return ""

    @property
    def required_acks(self) -> int:
        """Value in the protocol: -1 for all."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def compression(self) -> Compression:
        return Compression[self.compression_type.upper()]

    @property
    def compression_level(self) -> int | None:
        """Level of the codec in use; None if it has none."""
        levels = {
            Compression.GZIP: self.compression_gzip_level,
            Compression.LZ4: self.compression_lz4_level,
            Compression.ZSTD: self.compression_zstd_level,
        }
        return levels.get(self.compression)


class ProducerOptions(ClientOptions, SchemaWritingOptions, total=False):
    """Keyword arguments of `Producer`; `ProducerSettings` and `ClientSettings` have their meanings."""

    client_rack: str
    allow_auto_create_topics: bool
    acks: str | int
    batch_size: int
    buffer_memory: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    delivery_timeout_ms: int
    enable_idempotence: bool
    interceptors: Sequence[ProducerInterceptor]
    key_serializer: SerializerOption
    value_serializer: SerializerOption
    linger_ms: int
    max_block_ms: int
    max_in_flight_requests_per_connection: int
    max_request_size: int
    metadata_max_idle_ms: int
    metrics_num_samples: int
    metrics_sample_window_ms: int
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_class: Partitioner | None
    partitioner_ignore_keys: bool
    retries: int
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool
    transactional_id: str | None
