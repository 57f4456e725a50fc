"""Core: the account of every record of a run, by partition: sent, acked, read, and the gaps without an ack.

The records of a partition are numbered in the order of sending, and their value contains run, partition and number. So
the verdict is exact: a number that was acked and never read is lost, one that was read twice is duplicated, one that
was read after a higher one is out of order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

BUCKET_MS = 100
"""Resolution of the acks over time."""


@dataclass(slots=True)
class Account:
    """The account of one partition."""

    sent: int = 0
    """Numbers below this one were sent."""
    acked: dict[int, int] = field(default_factory=dict)
    """Acked numbers with their offsets; -1 if the broker no longer knew the offset of a retried batch."""
    failed: dict[int, None] = field(default_factory=dict)
    """Numbers that are certainly not in the log, according to the producer."""
    unknown: dict[int, None] = field(default_factory=dict)
    """Numbers that may or may not be in the log."""
    read: dict[int, int] = field(default_factory=dict)
    """Read numbers with the offset of the first read."""
    highest_read: int = -1
    duplicated: int = 0
    out_of_order: int = 0
    settled: int = 0
    """Below this number, records that were read at the offset of their ack are removed from the dicts."""
    forgotten: int = 0
    """Number of removed records."""
    end_of_forgotten: int = 0
    """The offset after the last removed record."""
    last_ack_ms: int | None = None
    acks: list[int] = field(default_factory=list)
    """Acks in each `BUCKET_MS` of the run."""

    @property
    def undecided(self) -> int:
        return self.sent - self.forgotten - len(self.acked) - len(self.failed) - len(self.unknown)

    @property
    def end_of_acked(self) -> int:
        """The offset after the last acked record."""
        return max(self.end_of_forgotten, max(self.acked.values(), default=-1) + 1)

    def settle(self) -> None:
        """Removes settled records, so that a run of any length needs bounded memory. The verdict stays the same."""
        while (number := self.settled) < self.sent:
            offset = self.acked.get(number)
            if offset is None and number not in self.failed and number not in self.unknown:
                return  # undecided
            if offset is not None:
                found = self.read.get(number)
                if found is None:
                    return  # not read yet
                if offset in (found, -1):
                    del self.acked[number], self.read[number]
                    self.forgotten += 1
                    self.end_of_forgotten = max(self.end_of_forgotten, found + 1)
            self.settled += 1

    def is_forgotten(self, number: int) -> bool:
        return number < self.settled and not (number in self.acked or number in self.failed or number in self.unknown)

    @property
    def skipped(self) -> int:
        """Acked numbers that the reader has passed: lost, unless they are still read out of order."""
        return sum(number < self.highest_read and number not in self.read for number in self.acked)


@dataclass(slots=True)
class Window:
    """The time from one fault to the next."""

    name: str
    began_ms: int
    ended_ms: int | None = None
    gap_ms: int = 0
    """Longest time without an ack in a partition. A gap that began before the window counts in full, one that continues
    after its end counts up to the end."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result. All counts after the first five must be zero."""

    sent: int
    acked: int
    read: int
    """Distinct records that were read."""
    failed: int
    unknown: int
    lost: int
    """Acked and not read."""
    duplicated: int
    """Read again, at any offset."""
    out_of_order: int
    """Read after a later record of the same partition."""
    misplaced: int
    """Read at another offset than acked, or although it failed or was never sent."""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order or self.misplaced)


class Ledger:
    """The account of one run."""

    def __init__(self, run: str, partitions_count: int, began_ms: int) -> None:
        """`run` marks the values of this run in a topic shared with other runs; it contains no blank."""
        self.accounts = [Account() for _ in range(partitions_count)]
        self.windows: list[Window] = []
        self.began_ms = began_ms
        self._run = run.encode()
        self._aside: dict[bytes, bool] = {}
        self._others: Counter[bytes] = Counter()

    # Events

    def send(self, partition: int) -> tuple[int, bytes]:
        """Returns number and value of the next record."""
        account = self.accounts[partition]
        number, account.sent = account.sent, account.sent + 1
        return number, b"%s %d %d" % (self._run, partition, number)

    def acked(self, partition: int, number: int, offset: int, now_ms: int) -> None:
        account = self.accounts[partition]
        account.acked[number] = offset
        if account.last_ack_ms is not None:
            self._note_gap(account.last_ack_ms, now_ms)
        account.last_ack_ms = now_ms
        bucket = (now_ms - self.began_ms) // BUCKET_MS
        account.acks.extend([0] * (bucket + 1 - len(account.acks)))
        account.acks[bucket] += 1

    def failed(self, partition: int, number: int) -> None:
        self.accounts[partition].failed[number] = None

    def unknown(self, partition: int, number: int) -> None:
        self.accounts[partition].unknown[number] = None

    def value_aside(self, name: str) -> bytes:
        """The value of a single record that is not part of the numbered stream."""
        return b"%s aside %s" % (self._run, name.encode())

    def aside(self, value: bytes, *, acked: bool) -> None:
        """The outcome of a write outside the stream. A write that was not acked may or may not be in the log."""
        self._aside[value] = acked

    def read(self, partition: int, offset: int, value: bytes | None) -> None:
        """A record was consumed. Records of other runs are ignored."""
        if value is None or not value.startswith(self._run + b" "):
            return
        number = self._number(partition, value)
        if number is None:
            self._others[value] += 1
            return
        account = self.accounts[partition]
        if number in account.read or account.is_forgotten(number):
            account.duplicated += 1
            return
        account.read[number] = offset
        account.out_of_order += number < account.highest_read
        account.highest_read = max(number, account.highest_read)

    def begin_window(self, name: str, now_ms: int) -> Window:
        """A fault is about to be injected: ends the current window and starts one."""
        if self.windows:
            self.windows[-1].ended_ms = now_ms
        window = Window(name, now_ms)
        self.windows.append(window)
        return window

    def finish(self, now_ms: int) -> None:
        """The producer has stopped: no further gaps, unless records are still undecided."""
        for account in self.accounts:
            if account.last_ack_ms is not None and account.undecided:
                self._note_gap(account.last_ack_ms, now_ms)
        if self.windows and self.windows[-1].ended_ms is None:
            self.windows[-1].ended_ms = now_ms

    # Results

    def silence_ms(self, partition: int, now_ms: int) -> int:
        """Time since the last ack."""
        last_ack_ms = self.accounts[partition].last_ack_ms
        return now_ms - (self.began_ms if last_ack_ms is None else last_ack_ms)

    def was_read(self, value: bytes) -> bool:
        """Whether a value outside the stream was read."""
        return value in self._others

    def verdict(self) -> Verdict:
        """The verdict so far; final when the consumer has read to the end."""
        accounts = self.accounts
        aside = self._aside
        return Verdict(
            sent=sum(each.sent for each in accounts) + len(aside),
            acked=sum(each.forgotten + len(each.acked) for each in accounts) + sum(aside.values()),
            read=sum(each.forgotten + len(each.read) for each in accounts)
            + sum(value in aside for value in self._others),
            failed=sum(len(each.failed) for each in accounts),
            unknown=sum(len(each.unknown) for each in accounts) + sum(not acked for acked in aside.values()),
            lost=sum(number not in each.read for each in accounts for number in each.acked)
            + sum(acked and value not in self._others for value, acked in aside.items()),
            duplicated=sum(each.duplicated for each in accounts)
            + sum(count - 1 for value, count in self._others.items() if value in aside),
            out_of_order=sum(each.out_of_order for each in accounts),
            misplaced=sum(map(_misplaced, accounts))
            + sum(count for value, count in self._others.items() if value not in aside),
        )

    def _number(self, partition: int, value: bytes) -> int | None:
        """The number in a value of this partition."""
        _run, _blank, rest = value.partition(b" ")
        home, _blank, number = rest.partition(b" ")
        return int(number) if home == b"%d" % partition and number.isdigit() else None

    def _note_gap(self, from_ms: int, to_ms: int) -> None:
        """Adds a gap to the windows it overlaps: in full if it began before the window, else up to the window's end."""
        for window in self.windows:
            ended_ms = to_ms if window.ended_ms is None else window.ended_ms
            if from_ms <= ended_ms and to_ms >= window.began_ms:
                until_ms = to_ms if from_ms <= window.began_ms else min(to_ms, ended_ms)
                window.gap_ms = max(window.gap_ms, until_ms - from_ms)


def _misplaced(account: Account) -> int:
    elsewhere = sum(
        offset >= 0 and account.read.get(number, offset) != offset for number, offset in account.acked.items()
    )
    return elsewhere + sum(number in account.failed or number >= account.sent for number in account.read)
