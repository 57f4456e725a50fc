"""Compares acknowledgements with the log: by partition, offset and value."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from tests.compat.load import UNKNOWN_OFFSET, Ack, Stored


@dataclass(slots=True)
class Verdict:
    """Anomalies of one partition; all empty if there are none."""

    lost: list[str] = field(default_factory=list)
    """Acknowledged records that are not in the log."""
    moved: list[str] = field(default_factory=list)
    """Acknowledged records that are in the log only at another offset than the acknowledged one."""
    duplicated: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    """Records after one that was sent later."""
    holes: list[int] = field(default_factory=list)
    """Offsets where the reader was given nothing, or twice."""

    def __bool__(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.lost or self.moved or self.duplicated or self.reordered or self.holes)


def judge(acks: Sequence[Ack], stored: Sequence[Stored], unsure: Container[str] = ()) -> Verdict:
    """Judge one partition; `stored` is its content in order. Values that the writer was `unsure` of when it restarted
    may come late.
    """
    verdict = Verdict()
    at = {record.offset: record.value for record in stored}
    values: dict[str, None] = {}
    latest = 0
    for place, record in enumerate(stored):
        if record.offset != place:
            verdict.holes.append(record.offset)
        if record.value in values:
            verdict.duplicated.append(record.value)
        values[record.value] = None
        number = int(record.value.partition(":")[2])
        if number < latest and record.value not in unsure:
            verdict.reordered.append(record.value)
        latest = max(latest, number)
    for ack in acks:
        if ack.offset == UNKNOWN_OFFSET and ack.value in values:
            continue
        if at.get(ack.offset) != ack.value:
            (verdict.moved if ack.value in values else verdict.lost).append(ack.value)
    return verdict


def in_partition(records: Iterable[Stored], partition: int) -> list[Stored]:
    return [record for record in records if record.partition == partition]
