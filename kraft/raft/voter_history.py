"""The voter sets and the levels of `kraft.version` in one replica's log, by offset (KIP-853).

A record takes effect when it is appended, not when it commits; truncation takes back one that did not. Without any, the
voters are those of the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.kraft.raft.voters import ReplicaKey, VoterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumRecord:
    """A VotersRecord or a KRaftVersionRecord of the log or of a snapshot."""

    offset: int
    """In a snapshot, the offset of the last record that it contains; -1 in the one that `format` writes."""
    voters: VoterSet | None = None
    kraft_version: int | None = None


class VoterHistory:
    """Mutable; owned by `Raft` and read by its parts."""

    def __init__(self, static: VoterSet, local: ReplicaKey, records: Iterable[QuorumRecord] = ()) -> None:
        self._static = static
        self._local = local
        self._sets: list[tuple[int, VoterSet]] = []
        self._levels: list[tuple[int, int]] = []
        self.is_voter = static.contains(local)
        """This replica votes. One with the id of a voter and another directory does not: its votes are lost."""
        self.add(records)

    @property
    def current(self) -> VoterSet:
        """The last set in the log; that of the configuration if there is none."""
        return self._sets[-1][1] if self._sets else self._static

    @property
    def offset(self) -> int | None:
        """Offset of the last set; None if it is that of the configuration."""
        return self._sets[-1][0] if self._sets else None

    @property
    def kraft_version(self) -> int:
        return self._levels[-1][1] if self._levels else 0

    @property
    def is_dynamic(self) -> bool:
        """Voters can be added and removed."""
        return self.kraft_version >= 1

    def may_stand(self, high_watermark: int) -> bool:
        """True for a voter, and for one that the last set removes, until that set is known to be committed.

        The others may need its log: if it alone has the record of its removal, nobody else can win (Ongaro §4.2.2).
        It needs the votes of the new set.
        """
        if self.is_voter:
            return True
        before = self._sets[-2][1] if len(self._sets) > 1 else self._static
        return bool(self._sets) and self._sets[-1][0] >= high_watermark and before.contains(self._local)

    def at(self, offset: int) -> tuple[QuorumRecord, ...]:
        """Level and voters as of `offset`, inclusive; nothing for level 0 without a record."""
        found: list[QuorumRecord] = []
        level = next((value for at, value in reversed(self._levels) if at <= offset), None)
        voters = next((value for at, value in reversed(self._sets) if at <= offset), None)
        if level is not None:
            found.append(QuorumRecord(offset=offset, kraft_version=level))
        if voters is not None:
            found.append(QuorumRecord(offset=offset, voters=voters))
        return tuple(found)

    # ---- the log changed

    def add(self, records: Iterable[QuorumRecord]) -> None:
        for record in records:
            if record.voters is not None:
                self._sets.append((record.offset, record.voters))
            if record.kraft_version is not None:
                self._levels.append((record.offset, record.kraft_version))
        self._changed()

    def truncate_to(self, offset: int) -> None:
        """The records from `offset` on were dropped."""
        self._sets = [entry for entry in self._sets if entry[0] < offset]
        self._levels = [entry for entry in self._levels if entry[0] < offset]
        self._changed()

    def started_at(self, offset: int) -> None:
        """The records before `offset` are in a snapshot: the last of them stays known."""
        while len(self._sets) > 1 and self._sets[1][0] < offset:
            del self._sets[0]
        while len(self._levels) > 1 and self._levels[1][0] < offset:
            del self._levels[0]

    def restart(self, records: Iterable[QuorumRecord]) -> None:
        """A snapshot with these records replaced the log."""
        self._sets, self._levels = [], []
        self.add(records)

    def _changed(self) -> None:
        self.is_voter = self.current.contains(self._local)
