"""Compares what writers were told with what is in the log: by partition, offset and value."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from tests.compat.load import UNTOLD, Ack, Stored


@dataclass(slots=True)
class Verdict:
    """What is wrong with one partition; all empty if nothing is."""

    lost: list[str] = field(default_factory=list)
    """Acked, and nowhere in the log."""
    moved: list[str] = field(default_factory=list)
    """Acked, and in the log only at another offset than was told."""
    duplicated: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    """In the log behind a record that was sent later."""
    holes: list[int] = field(default_factory=list)
    """Offsets where the reader was given nothing, or twice."""

    def __bool__(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.lost or self.moved or self.duplicated or self.reordered or self.holes)


def judge(acks: Sequence[Ack], stored: Sequence[Stored], unsure: Container[str] = ()) -> Verdict:
    """One partition, `stored` in the order in which it was read from the start. What its writer was `unsure` of when it
    began anew may come late.
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
        if ack.offset == UNTOLD and ack.value in values:
            continue
        if at.get(ack.offset) != ack.value:
            (verdict.moved if ack.value in values else verdict.lost).append(ack.value)
    return verdict


def of_partition(records: Iterable[Stored], partition: int) -> list[Stored]:
    return [record for record in records if record.partition == partition]
