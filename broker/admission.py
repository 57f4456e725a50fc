"""What a topic's configuration asks of a produced batch before it is appended.

The head is checked, then every record is scanned, as a stock consumer relies on it (`barnabas.validate.records=head`
leaves the records out). Small batches are admitted at once. What would hold up the event loop is admitted in steps,
with a turn for everybody else after each, and is decompressed and compressed in a worker thread. Only where the topic
asks for a compression of its own the bytes on disk are not those the producer sent.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

import trio

from broker.traffic import Conversions
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchHeader, read_header
from protocol.records.builder import build_batch
from protocol.records.compression import Compression, UnfoldsTooFar
from protocol.records.record import decode_records
from protocol.records.record_check import BYTES_IN_STEP, ProduceLimits, RecordCheck
from protocol.records.validation import validate_produce
from runtime.worker import Worker
from settings.topic import TopicConfig

Batches = list[tuple[int, BatchHeader]]

STEPS_AT_ONCE: Final = 10_000
"""Of the checks for one request, before the event loop gets a turn: some 5 ms where nothing is compiled."""
STEPS_IN_SLICE: Final = 1_000
BYTES_AT_ONCE: Final = 1 << 20
"""A batch that unfolds to more is unfolded in a worker thread."""
_STEPS_TO_COMPRESS: Final = 10
"""To decode a record and to build it again takes as long as so many checks."""

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class NeedsTime(Exception):
    """The batch may be right, but to find out would take longer than one turn of the event loop may."""


class Allowance:
    """How many steps the batches of one request may still take at once."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = STEPS_AT_ONCE

    def take(self, steps: int) -> None:
        """Raises `NeedsTime` if they are more than are left."""
        if steps > self.left:
            self.left = 0  # what comes later in the request must not come first
            raise NeedsTime
        self.left -= steps


class _Log(Protocol):
    @property
    def config(self) -> TopicConfig: ...


class Target(Protocol):
    """What admission asks of a partition."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> _Log: ...
    @property
    def produce_limits(self) -> ProduceLimits: ...


class Admission:
    """One batch of a produce request for a partition."""

    __slots__ = ("_batches", "_buffer", "_check", "_config", "_conversions", "_limits")

    def __init__(
        self,
        records: memoryview | bytes | None,
        target: Target,
        produce_version: int,
        now_ms: int,
        conversions: Conversions,
    ) -> None:
        """Checks the head. Raises KafkaError with Kafka's code if the batch may not be appended.

        Records that get another compression are counted.
        """
        if records is None or not len(records):
            raise KafkaError(ErrorCode.INVALID_RECORD, "no records for this partition")
        limits = target.produce_limits
        self._buffer = records if isinstance(records, memoryview) else memoryview(bytearray(records))
        self._config = target.log.config
        self._limits = limits
        self._conversions = conversions
        self._batches = validate_produce(self._buffer, limits, now_ms, produce_version)
        self._check: RecordCheck | None = None
        if not limits.head_only or limits.keys_required or self._config.compression_type != "producer":
            self._check = RecordCheck(self._buffer, self._batches[0][1], limits, now_ms, target.name)

    @property
    def _wanted(self) -> Compression | None:
        """The compression that the batch has to get."""
        if self._config.compression_type == "producer":
            return None
        wanted = _CODECS[self._config.compression_type]
        return wanted if wanted != self._batches[0][1].compression else None

    def at_once(self, allowance: Allowance) -> tuple[memoryview, Batches]:
        """The batch as it is to be appended, and its heads. Raises KafkaError, `NeedsTime`."""
        count = self._batches[0][1].records_count
        wanted = self._wanted
        check = self._check
        if check is not None:
            allowance.take(count)
            if check.is_compressed:
                self._unfold_at_once(check, allowance)
            else:
                check.unfold(self._limits.unfolded_limit_bytes)
            if not check.go_on(count):
                allowance.left = 0
                raise NeedsTime
        if wanted is not None:
            allowance.take(_STEPS_TO_COMPRESS * count + len(self._buffer) // BYTES_IN_STEP)
            self._recompress(wanted)
        return self._buffer, self._batches

    def _unfold_at_once(self, check: RecordCheck, allowance: Allowance) -> None:
        limit = min(BYTES_AT_ONCE, allowance.left * BYTES_IN_STEP)
        if not limit:
            raise NeedsTime
        try:
            allowance.take(check.unfold(limit) // BYTES_IN_STEP)
        except UnfoldsTooFar:
            allowance.left = 0
            raise NeedsTime from None

    async def in_steps(self, worker: Worker) -> tuple[memoryview, Batches]:
        """As `at_once`, with turns for others. Raises KafkaError.

        The worker is held for the whole batch: only one is unfolded at a time, and all connections together get one
        slice of each turn.
        """
        async with worker.reserved() as run:
            check, self._check = self._check, None
            if check is not None:
                unfold = partial(check.unfold, self._limits.unfolded_limit_bytes)
                if check.is_compressed:
                    await run(unfold)
                else:
                    unfold()
                while not check.go_on(STEPS_IN_SLICE):
                    await trio.lowlevel.checkpoint()
            wanted = self._wanted
            if wanted is not None:
                await run(partial(self._recompress, wanted))
        return self._buffer, self._batches

    def _recompress(self, codec: Compression) -> None:
        began = self._conversions.stopwatch()
        buffer = _recompressed(self._buffer, self._batches[0][1], codec, self._config, self._limits)
        self._buffer, self._batches = buffer, [(0, read_header(buffer))]
        self._conversions.records += self._batches[0][1].records_count
        self._conversions.spread.took(self._conversions.stopwatch() - began)


def limits_of(config: TopicConfig) -> ProduceLimits:
    """What the topic's configuration says, in the words of `validate_produce`."""
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
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(rebuilt)} bytes when compressed as the topic asks")
    return memoryview(bytearray(rebuilt))
