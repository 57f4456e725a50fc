"""Checks that a produced batch may be appended, under the topic's configuration.

The batch header is checked, then every record, for all that stock consumers rely on
(`barnabas.validate.records=head` skips the records). Small batches are admitted at once. Batches that would block the
event loop are admitted in steps, and are decompressed and compressed in a worker thread. The bytes on disk are those
that the producer sent, unless the topic's compression.type differs.
"""

from __future__ import annotations

from array import array
from functools import partial
from typing import Final, NamedTuple, Protocol

import trio

from barnabas.broker.traffic import Conversions
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    COMPRESSION_MASK,
    LEAST_MESSAGE_BYTES,
    BatchHeader,
    is_compressed_message,
    read_header,
)
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import Compression, UnfoldsTooFar
from barnabas.protocol.records.conversion import up_convert
from barnabas.protocol.records.delivery_time import HEADER_HINT, delivery_times, refuse_transactional
from barnabas.protocol.records.record import decode_records
from barnabas.protocol.records.record_check import BYTES_IN_STEP, ProduceLimits, RecordCheck
from barnabas.protocol.records.validation import validate_produce
from barnabas.runtime.worker import Worker
from barnabas.settings.topic import TopicConfig

STEPS_AT_ONCE: Final = 10_000
"""Checks for one request before the event loop runs: some 5 ms in pure Python."""
STEPS_IN_SLICE: Final = 1_000
BYTES_AT_ONCE: Final = 1 << 20
"""A batch that decompresses to more is decompressed in a worker thread."""
BATCHES_FROM_VERSION: Final = 3
"""Older Produce requests have message sets, which are converted to batches."""
_CONVERTED_AT_ONCE_BYTES: Final = 16 << 10
_STEPS_TO_COMPRESS: Final = 10
"""Decoding a record and building it again takes as long as this many checks."""

_STEPS_TO_READ_HEADERS: Final = 5
"""Reading the delivery time of a record takes as long as this many checks."""

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class NeedsTime(Exception):
    """The checks of the batch would take longer than one step of the event loop may."""


class ProducedBatch(NamedTuple):
    """A batch that may be appended."""

    buffer: memoryview
    batches: list[tuple[int, BatchHeader]]
    """(position, header) of the batch, in the form in which a log takes many; a produce has one for each partition."""
    times: array[int] | None = None
    """Delivery times of its records (`protocol.records.delivery_time`), if some of them are not due."""

    @property
    def header(self) -> BatchHeader:
        return self.batches[0][1]


class Allowance:
    """Checks that the batches of one request may still take at once."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = STEPS_AT_ONCE

    def take(self, steps: int) -> None:
        """Raises `NeedsTime` if fewer are left."""
        if steps > self.left:
            self.left = 0  # later batches of the request must not overtake this one
            raise NeedsTime
        self.left -= steps


class _Log(Protocol):
    @property
    def config(self) -> TopicConfig: ...


class Target(Protocol):
    """The part of a `Partition` that admission uses."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> _Log: ...
    @property
    def produce_limits(self) -> ProduceLimits: ...


class Admission:
    """One batch of a produce request for a partition."""

    __slots__ = (
        "_batches",
        "_buffer",
        "_check",
        "_config",
        "_conversions",
        "_is_old",
        "_limits",
        "_name",
        "_now_ms",
        "_times",
    )

    def __init__(
        self,
        records: memoryview | bytes | None,
        target: Target,
        produce_version: int,
        now_ms: int,
        conversions: Conversions,
    ) -> None:
        """Check the batch header. Raises KafkaError with Kafka's code if the batch may not be appended.

        Records that are compressed again, or converted from an older format, are counted in `conversions`.
        """
        if records is None or not len(records):
            raise KafkaError(ErrorCode.INVALID_RECORD, "the request has no records for this partition")
        limits = target.produce_limits
        self._buffer = records if isinstance(records, memoryview) else memoryview(bytearray(records))
        self._config = target.log.config
        self._limits = limits
        self._conversions = conversions
        self._now_ms = now_ms
        self._times: array[int] | None = None
        self._name = target.name
        self._batches: list[tuple[int, BatchHeader]] = []
        self._check: RecordCheck | None = None
        self._is_old = produce_version < BATCHES_FROM_VERSION
        """The buffer is a message set that has to be converted first."""
        if not self._is_old:
            self._begin(produce_version)

    def _begin(self, produce_version: int) -> None:
        limits = self._limits
        self._batches = batches = validate_produce(self._buffer, limits, self._now_ms, produce_version)
        if not limits.head_only or limits.keys_required or self._delays or self._config.compression_type != "producer":
            self._check = RecordCheck(self._buffer, batches[0][1], limits, self._now_ms, self._name)

    def _convert(self) -> None:
        """Make the message set one batch. Raises KafkaError."""
        began = self._conversions.stopwatch()
        batch, records = up_convert(self._buffer, self._limits.unfolded_limit_bytes)
        self._conversions.records += records
        self._conversions.spread.took(self._conversions.stopwatch() - began)
        self._buffer, self._is_old = memoryview(bytearray(batch)), False
        self._begin(BATCHES_FROM_VERSION)

    @property
    def _header(self) -> BatchHeader:
        return self._batches[0][1]

    @property
    def _wanted(self) -> Compression | None:
        """The compression to convert the batch to; None if it stays as it is."""
        if self._config.compression_type == "producer":
            return None
        wanted = _CODECS[self._config.compression_type]
        return wanted if wanted != self._header.compression else None

    @property
    def _delays(self) -> bool:
        return self._config.barnabas_delayed_delivery_enable

    def _read_times(self, check: RecordCheck) -> None:
        """Raises KafkaError."""
        header, most_ms = self._header, self._config.barnabas_delayed_delivery_max_ms
        self._times = delivery_times(
            check.unfolded, header.records_count, header.base_timestamp, self._now_ms, most_ms
        )
        if self._times is not None and header.is_transactional:
            raise refuse_transactional()

    def at_once(self, allowance: Allowance) -> ProducedBatch:
        """The batch as it is to be appended. Raises KafkaError, `NeedsTime`."""
        if self._is_old:
            if len(self._buffer) > _CONVERTED_AT_ONCE_BYTES or is_compressed_message(self._buffer):
                allowance.left = 0
                raise NeedsTime
            allowance.take(_STEPS_TO_COMPRESS * (1 + len(self._buffer) // LEAST_MESSAGE_BYTES))
            self._convert()
        header, config = self._batches[0][1], self._config
        count = header.records_count
        wanted = None if config.compression_type == "producer" else self._wanted
        check = self._check
        if check is not None:
            allowance.take(count)
            if header.attributes & COMPRESSION_MASK:
                self._unfold_at_once(check, allowance)
            else:
                check.unfold()
            if not check.go_on(count):
                allowance.left = 0
                raise NeedsTime
            if config.barnabas_delayed_delivery_enable and HEADER_HINT in check.unfolded:
                allowance.take(_STEPS_TO_READ_HEADERS * count)
                self._read_times(check)
        if wanted is not None:
            allowance.take(_STEPS_TO_COMPRESS * count + len(self._buffer) // BYTES_IN_STEP)
            self._recompress(wanted)
        return ProducedBatch(self._buffer, self._batches, self._times)

    def _unfold_at_once(self, check: RecordCheck, allowance: Allowance) -> None:
        limit = min(BYTES_AT_ONCE, allowance.left * BYTES_IN_STEP)
        if not limit:
            raise NeedsTime
        try:
            allowance.take(check.unfold(limit) // BYTES_IN_STEP)
        except UnfoldsTooFar:
            allowance.left = 0
            raise NeedsTime from None

    async def in_steps(self, worker: Worker) -> ProducedBatch:
        """`at_once` in steps between which the event loop runs. Raises KafkaError.

        The worker is reserved for the whole batch, so that at most one is decompressed in memory, and all connections
        share one slice of each pass of the event loop.
        """
        async with worker.reserved() as run:
            if self._is_old:
                await run(self._convert)
            check, self._check = self._check, None
            if check is not None:
                unfold = partial(check.unfold, self._limits.unfolded_limit_bytes)
                if check.is_compressed:
                    await run(unfold)
                else:
                    unfold()
                while not check.go_on(STEPS_IN_SLICE):
                    await trio.lowlevel.checkpoint()
                if self._delays:
                    await run(partial(self._read_times, check))
            wanted = self._wanted
            if wanted is not None:
                await run(partial(self._recompress, wanted))
        return ProducedBatch(self._buffer, self._batches, self._times)

    def _recompress(self, codec: Compression) -> None:
        began = self._conversions.stopwatch()
        buffer = _recompressed(self._buffer, self._header, codec, self._config, self._limits)
        self._buffer, self._batches = buffer, [(0, read_header(buffer))]
        self._conversions.records += self._header.records_count
        self._conversions.spread.took(self._conversions.stopwatch() - began)


def limits_of(config: TopicConfig) -> ProduceLimits:
    """The topic's configuration in the form that `validate_produce` takes."""
    return ProduceLimits(
        max_message_bytes=config.max_message_bytes,
        log_append_time=config.log_append_time,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        keys_required=config.compacts,
        head_only=config.barnabas_validate_records == "head",
    )


def _recompressed(
    buffer: memoryview, header: BatchHeader, codec: Compression, config: TopicConfig, limits: ProduceLimits
) -> memoryview:
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    rebuilt = build_batch(
        decode_records(buffer, 0, limits.unfolded_limit_bytes),
        compression=codec,
        compression_level=levels.get(codec),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    if len(rebuilt) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {len(rebuilt)} bytes in the topic's compression"
        )
    return memoryview(bytearray(rebuilt))
