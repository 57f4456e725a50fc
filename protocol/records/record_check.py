"""Core: the check of produced records by a leader, before it appends them. Codes and messages are Kafka's.

A check continues from where it stopped, so that a large batch can be checked in steps between which others have a turn,
and be unfolded elsewhere. It is bounded by the steps that were counted, not by the claims of the head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records import scan
from barnabas.protocol.records.batch import NO_TIMESTAMP, BatchHeader, CorruptBatch
from barnabas.protocol.records.compression import UnfoldsTooFar
from barnabas.protocol.records.record import COMPILED, SERVED_LIMIT_BYTES, SERVED_LIMIT_RECORDS, payload_of
from barnabas.protocol.records.runs import check_in_runs

MOST_RECORD_ERRORS: Final = 10_000
"""Most errors that are listed; all are counted."""
BYTES_IN_STEP: Final = 256
"""Unfolding this many bytes takes about as long as checking one record."""

_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1

_check = scan.check if COMPILED else check_in_runs


@dataclass(frozen=True, slots=True)
class ProduceLimits:
    """The limits that the configuration of a topic sets for batches."""

    max_message_bytes: int = 1048588
    log_append_time: bool = False
    """The broker stamps the batch, so the producer's timestamps do not matter."""
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3600000
    keys_required: bool = False
    """The topic is compacted."""
    head_only: bool = False
    """Records are not checked, unless another config of the topic needs it."""

    @property
    def unfolded_limit_bytes(self) -> int:
        return max(SERVED_LIMIT_BYTES, self.max_message_bytes)

    def earliest(self, now_ms: int) -> int:
        return max(now_ms - self.timestamp_before_max_ms, _INT64_MIN)

    def latest(self, now_ms: int) -> int:
        return min(now_ms + self.timestamp_after_max_ms, _INT64_MAX)


class RecordsRefused(KafkaError):
    """Some records of a batch are refused, with their places (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.errors = errors
        """(place in the batch, message), at most the first `MOST_RECORD_ERRORS`."""


class RecordCheck:
    """The check of one complete batch whose head is valid. Raises KafkaError."""

    __slots__ = (
        "_buffer",
        "_data",
        "_errors",
        "_errors_found",
        "_header",
        "_highest",
        "_is_well_formed",
        "_keyless",
        "_limits",
        "_lowest",
        "_next",
        "_partition",
        "_position",
        "_reach",
        "_timestamps_are_wrong",
    )

    def __init__(
        self, buffer: memoryview, header: BatchHeader, limits: ProduceLimits, now_ms: int, partition: str
    ) -> None:
        """`partition` is named in errors."""
        count, most = header.records_count, SERVED_LIMIT_RECORDS
        if count > most:
            reason = f"{count} records in a batch for {partition}; at most {most} are allowed"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, reason)
        self._buffer = buffer
        self._header = header
        self._limits = limits
        self._partition = partition
        self._data: bytes | None = None
        self._position = 0
        self._next = 0
        """Number of the next record."""
        self._reach = 0
        self._keyless = 0
        self._is_well_formed = False
        """All records are; what remains is to find those that the topic refuses."""
        self._errors: list[tuple[int, str]] = []
        self._errors_found = 0
        self._timestamps_are_wrong = False
        self._lowest, self._highest = _INT64_MIN, _INT64_MAX
        """The first and the last timestamp that are allowed."""
        if not limits.log_append_time:
            self._lowest, self._highest = limits.earliest(now_ms), limits.latest(now_ms)

    @property
    def is_compressed(self) -> bool:
        return self._header.compression != 0

    @property
    def unfolded(self) -> bytes:
        """The records without compression, once they are unfolded."""
        assert self._data is not None, "the records are not unfolded"
        return self._data

    def unfold(self, limit_bytes: int | None = None) -> int:
        """Decompress the records; returns their size in bytes. `UnfoldsTooFar` if that is more than `limit_bytes`
        and less than the topic allows."""
        allowed = self._limits.unfolded_limit_bytes
        limit_bytes = allowed if limit_bytes is None else min(limit_bytes, allowed)
        try:
            self._data = payload_of(self._buffer, self._header, 0, limit_bytes)
        except UnfoldsTooFar:
            if limit_bytes < allowed:
                raise
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch for {self._partition} unfolds to more than {allowed} bytes, which is the most allowed",
            ) from None
        except CorruptBatch as error:
            raise self._malformed(error.message) from None
        return len(self._data)

    def go_on(self, steps: int) -> bool:
        """Check at most so many more of the unfolded records; True if all are checked."""
        if not self._is_well_formed and not self._scan(steps):
            return False
        return self._find_refused(steps)

    def _scan(self, steps: int) -> bool:
        """True if all records are known to be well formed. Then the search for refused ones begins, if there may be
        any."""
        assert self._data is not None, "the records are not unfolded"
        data, count, first = self._data, self._header.records_count, self._next
        try:
            self._position, self._next, reach, keyless = _check(data, self._position, first, min(steps, count - first))
        except IndexError:
            raise self._malformed("the records end too soon") from None
        except CorruptBatch as error:
            raise self._malformed(error.message) from None
        self._reach = max(self._reach, reach)
        self._keyless += keyless
        if self._next < count:
            return False
        if self._position != len(data):
            raise self._malformed(f"{len(data) - self._position} bytes lie behind the last record")
        self._is_well_formed = True
        self._position = 0
        self._next = count if self._are_all_taken() else 0
        return True

    def _are_all_taken(self) -> bool:
        """True if no record can be refused. If in doubt, False."""
        base, reach = self._header.base_timestamp, self._reach
        are_in_time = self._lowest <= base - reach and base + reach <= self._highest
        return are_in_time and not (self._keyless and self._limits.keys_required)

    def _find_refused(self, steps: int) -> bool:
        """Search at most so many more records for those that the topic refuses; True if all are searched."""
        data, header = self._data, self._header
        assert data is not None
        base, keyed = header.base_timestamp, self._limits.keys_required
        lowest, highest = self._lowest, self._highest
        stop = min(self._next + steps, header.records_count)
        while self._next < stop:
            passed, self._position, delta, timestamp_delta, has_key = scan.seek(
                data, self._position, stop - self._next, lowest - base, highest - base, keyed
            )
            self._next += passed
            if delta < 0:
                break
            if keyed and not has_key:
                self._refuse(f"Compacted topic cannot accept message without key in topic partition {self._partition}")
                continue
            timestamp = base + timestamp_delta
            if timestamp == NO_TIMESTAMP:
                continue
            if self._limits.log_append_time:
                raise self._malformed(f"the timestamp of record {self._next - 1} is wider than 64 bits")
            self._timestamps_are_wrong = True
            self._refuse(
                f"Timestamp {timestamp} of message with offset {self._next - 1} is out of range. "
                f"The timestamp should be within [{lowest}, {highest}]"
            )
        if self._next < header.records_count:
            return False
        self._conclude(lowest, highest)
        return True

    def _refuse(self, message: str) -> None:
        """Refuse the record that was checked last."""
        self._errors_found += 1
        if len(self._errors) < MOST_RECORD_ERRORS:
            self._errors.append((self._next - 1, message))

    def _conclude(self, earliest: int, latest: int) -> None:
        errors, count = self._errors, self._errors_found
        if self._timestamps_are_wrong:
            message = "One or more records have been rejected due to invalid timestamp"
            raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, message, errors)
        if errors:
            first = ", ".join(f"RecordError(batchIndex={place}, message='{message}')" for place, message in errors[:3])
            raise RecordsRefused(
                ErrorCode.INVALID_RECORD,
                f"One or more records have been rejected due to {count} record errors in total, "
                f"and only showing the first three errors at most: [{first}]",
                errors,
            )
        timestamp = self._header.max_timestamp
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"the head's largest timestamp {timestamp} is not within [{earliest}, {latest}]",
            )

    def _malformed(self, reason: str | None) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_RECORD, f"a batch for {self._partition} is malformed: {reason}")
