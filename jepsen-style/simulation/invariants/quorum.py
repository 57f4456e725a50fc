"""The promises of the metadata quorum (Raft), checked after every step of every replica.

Election safety: one leader in an epoch. Durability: no node's epoch falls and no vote changes, whatever
crashed, and no voter comes back without what it had synced and was committed. Log matching: an offset written in an
epoch is the same record everywhere, behind the same records. Leader completeness: a leader holds all that was
committed, cuts nothing of its log, and loads no snapshot. State machine safety: what is committed, and the image it
adds up to, are the same on all nodes, and so are snapshots, byte for byte; a log that does not begin at 0 begins
where a snapshot ends. Only a leader commits, and nothing before a record of its own epoch. A majority of its voters
has on disk what is committed, and high watermarks never fall. Voters change one at a time: a leader appends another
set when the one before is committed, and a record of its own epoch, too. A replica is its node id and its directory:
what was on a lost disk stays lost.

Keeps the ghost of the metadata log and the image that it adds up to, which is the newest truth about
partitions that there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.kraft.commit_feed import read_batch
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.kraft.metadata.loader import MetadataLoader
from barnabas.kraft.raft.voters import NO_DIRECTORY, ReplicaKey
from barnabas.protocol.records.batch import read_header
from barnabas.runtime.at_once import at_once
from simulation.findings import Findings
from simulation.ghosts import Batch, GhostLog, LogLike, LogReader


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A metadata replica as it is after a step."""

    key: ReplicaKey
    is_voter: bool
    is_leader: bool
    epoch: int
    leader_id: int | None
    voted_id: int | None
    """For whom it voted in `epoch`."""
    high_watermark: int
    synced_end_offset: int
    log: LogLike
    voters: tuple[ReplicaKey, ...]
    """The last set in its log."""
    loads_snapshot: bool = False
    """In this step."""

    @property
    def node_id(self) -> int:
        return self.key.id


@dataclass(frozen=True, slots=True)
class VotersChange:
    """A set of voters that a leader appends."""

    epoch: int
    offset: int
    before: tuple[ReplicaKey, ...]
    before_offset: int
    """Offset of the set before; -1 for that of the configuration or of a snapshot."""
    after: tuple[ReplicaKey, ...]


Entry = tuple[int, int]
"""(epoch, offset): what names a record in all logs."""


@dataclass(slots=True)
class _Known:
    """State of the replica of one node."""

    view: ReplicaView
    reader: LogReader
    committed_reader: LogReader
    seen_end: int = 0
    """The log below was compared with what others wrote."""
    chain: list[Entry] = field(default_factory=list)
    """Entries by which it was compared, in the order of the log."""
    log_end: int = 0
    log_start: int = 0
    committed: int = 0
    """Its high watermark in this life; below it was compared with the ghost."""


class QuorumPromises:
    """One per universe."""

    def __init__(
        self,
        findings: Findings,
        content: Callable[[int, str], bytearray | None],
        on_delta: Callable[[MetadataDelta], None],
    ) -> None:
        """`content`: the bytes of a node's file. `on_delta` is called with every change of the committed metadata."""
        self._findings = findings
        self._content = content
        self._on_delta = on_delta
        self._leaders: dict[int, int] = {}
        self._epochs: dict[ReplicaKey, int] = {}
        self._votes: dict[tuple[ReplicaKey, int], int] = {}
        self._lost: dict[ReplicaKey, int] = {}
        """End of the synced log of each replica whose disk was lost: it counted as long as it was there."""
        self._written: dict[Entry, Batch] = {}
        self._before: dict[Entry, Entry] = {}
        """The entry before each entry, in any log. By induction everything before it is the same, too."""
        self._snapshots: dict[str, bytes] = {}
        """By file name."""
        self._nodes: dict[int, _Known] = {}
        self.ghost = GhostLog()
        self.loader = MetadataLoader()
        self.images: dict[int, MetadataImage] = {}
        """By the offset of the last record."""

    @property
    def image(self) -> MetadataImage:
        """The image of the committed metadata log."""
        return self.loader.image

    @property
    def leaders(self) -> dict[int, int]:
        """The leader of each epoch."""
        return self._leaders

    def disk_lost(self, node_id: int) -> None:
        """The disk of a node is empty: it need not remember anything, and is another replica from now on."""
        known = self._nodes.pop(node_id, None)
        if known is not None:
            key = known.view.key
            self._lost[key] = max(known.view.synced_end_offset, self._lost.get(key, 0))
            self._epochs.pop(key, None)

    def is_lost(self, key: ReplicaKey) -> bool:
        """The disk of this replica is gone."""
        return key in self._lost

    def voters_changed(self, change: VotersChange) -> None:
        """A leader has appended another set of voters, after the step in which it did."""
        committed = self.ghost.end_offset
        what = f"the voters of offset {change.offset} in epoch {change.epoch}"
        changed = sorted({*change.before} ^ {*change.after})
        self._findings.count("changes of the voters")
        self._findings.check(
            change.before_offset < committed,
            lambda: f"{what}: two changes at once, the one before is at {change.before_offset}, committed {committed}",
        )
        self._findings.check(len(changed) <= 1, lambda: f"{what}: more than one voter changes: {changed}")
        last = self.ghost.at(committed - 1)
        self._findings.check(
            last is not None and last.leader_epoch == change.epoch,
            lambda: f"{what}: a change before a commit in the own epoch, committed is up to {last}",
        )

    def stepped(self, view: ReplicaView, cut_to: int | None = None) -> None:
        """A replica has carried out a step, and all of it that must be durable is. `cut_to`: its log was cut."""
        node_id = view.node_id
        known = self._nodes.get(node_id)
        if known is None or known.view.log is not view.log:
            if known is not None:
                self._check_came_back(known.view, view)
            known = self._nodes[node_id] = _Known(view, self._reader(view), self._reader(view))
        before, known.view = known.view, view
        self._check_election(view)
        self._check_leads_on(known, before)
        if cut_to is not None:
            self._findings.count("raft truncations")
            known.seen_end = min(known.seen_end, cut_to)
            while known.chain and known.chain[-1][1] >= cut_to:
                known.chain.pop()
            known.reader.forget()
            known.committed_reader.forget()
            self._findings.check(
                cut_to >= known.committed, lambda: f"node {node_id} cuts at {cut_to}, committed are {known.committed}"
            )
        self._check_written(known)
        if view.is_leader and (not before.is_leader or before is view or before.epoch != view.epoch):
            self._check_leader(known)
        self._check_commit(known, before)

    def snapshot_published(self, node_id: int, path: str) -> None:
        """A node has a snapshot now: it made it, or downloaded it."""
        content = self._content(node_id, path)
        if content is None:
            return
        name = path.rpartition("/")[2]
        known = self._snapshots.setdefault(name, bytes(content))
        self._findings.check(known == content, lambda: f"node {node_id} has a snapshot {name} that is unlike others'")
        self._findings.count("snapshots compared")

    def applied(self, node: str, image: MetadataImage) -> None:
        """A node's image moved on."""
        ours = self.images.get(image.offset)
        if ours is not None and ours is not image and not ours.same_content(image):
            self._findings.report(f"the image of {node} differs from the metadata log up to {image.offset}")

    # ---- inside

    def _reader(self, view: ReplicaView) -> LogReader:
        return LogReader(view.log, lambda path: self._content(view.node_id, path))

    def _check_election(self, view: ReplicaView) -> None:
        findings, node_id, epoch = self._findings, view.node_id, view.epoch
        shown = self._epochs.get(view.key, 0)
        findings.check(epoch >= shown, lambda: f"the epoch of node {node_id} fell from {shown} to {epoch}")
        self._epochs[view.key] = max(epoch, shown)
        if view.voted_id is not None:
            voted = self._votes.setdefault((view.key, epoch), view.voted_id)
            findings.check(
                voted == view.voted_id,
                lambda: f"node {node_id} voted for {voted} and for {view.voted_id} in epoch {epoch}",
            )
        if view.leader_id is not None:
            leader = self._leaders.setdefault(epoch, view.leader_id)
            findings.check(
                leader == view.leader_id,
                lambda: f"epoch {epoch} has two leaders: {leader}, and {view.leader_id} by node {node_id}",
            )

    def _check_came_back(self, before: ReplicaView, view: ReplicaView) -> None:
        """A voter was restarted: others count on what it had synced."""
        kept = min(before.synced_end_offset, self.ghost.end_offset)
        end = view.log.log_end_offset
        self._findings.check(
            end >= kept or not view.is_voter,
            lambda: f"node {view.node_id} had synced what was committed up to {kept}, and comes back with {end}",
        )

    def _check_leads_on(self, known: _Known, before: ReplicaView) -> None:
        """Leader append-only."""
        view = known.view
        end, known.log_end = known.log_end, view.log.log_end_offset
        if not view.is_leader:
            return
        findings = self._findings
        findings.check(not view.loads_snapshot, lambda: f"leader {view.node_id} loads a snapshot")
        findings.check(
            view.log.log_end_offset >= end or not before.is_leader or before.epoch != view.epoch,
            lambda: f"leader {view.node_id} of epoch {view.epoch} has cut its log from {end} to {known.log_end}",
        )

    def _check_written(self, known: _Known) -> None:
        """Log matching."""
        log = known.view.log
        if log.log_start_offset > known.log_start:
            known.log_start = log.log_start_offset
            self._check_start(known)
        known.seen_end = max(known.seen_end, log.log_start_offset)
        if log.log_end_offset <= known.seen_end:
            return
        for batch in known.reader.batches(known.seen_end, log.log_end_offset):
            entry = (batch.leader_epoch, batch.base_offset)
            written = self._written.setdefault(entry, batch)
            if written != batch:
                self._findings.report(f"node {known.view.node_id} has {batch} where another has {written}")
            if known.chain:
                previous = known.chain[-1]
                before = self._before.setdefault(entry, previous)
                if before != previous:
                    self._findings.report(
                        f"node {known.view.node_id}: before (epoch, offset) {entry} is {previous}, elsewhere {before}"
                    )
            known.chain.append(entry)
        known.seen_end = log.log_end_offset

    def _check_start(self, known: _Known) -> None:
        """A log that begins late begins where a snapshot of committed records ends."""
        node_id, log = known.view.node_id, known.view.log
        start = log.log_start_offset
        last = self.ghost.at(start - 1)
        if last is None:
            self._findings.report(f"the log of node {node_id} begins at {start}, committed is {self.ghost.end_offset}")
            return
        is_empty = log.log_end_offset == start
        if is_empty and start < known.seen_end:
            # A snapshot has replaced a log that went on behind it, with records that were never committed.
            self._findings.check(
                start >= known.committed,
                lambda: f"node {node_id} begins again at {start}, committed are {known.committed}",
            )
            known.seen_end = start
            known.reader.forget()
            known.committed_reader.forget()
        if is_empty or not known.chain or known.chain[-1][1] < last.base_offset:
            known.chain = [(last.leader_epoch, last.base_offset)] if last.next_offset == start else []
        folder = next(iter(log.segments)).log_path.rpartition("/")[0]
        path = f"{folder}/{start:020d}-{last.leader_epoch:010d}.checkpoint"
        self._findings.check(
            self._content(node_id, path) is not None,
            lambda: f"the log of node {node_id} begins at {start}, and {path} is not there",
        )

    def _check_leader(self, known: _Known) -> None:
        view, ghost = known.view, self.ghost
        end = view.log.log_end_offset
        self._findings.check(
            end >= ghost.end_offset,
            lambda: f"leader {view.node_id} of epoch {view.epoch} ends at {end}, committed is up to {ghost.end_offset}",
        )
        for batch in known.reader.batches(view.log.log_start_offset, ghost.end_offset):
            self._compare(view.node_id, batch)
        known.reader.forget()

    def _check_commit(self, known: _Known, before: ReplicaView) -> None:
        view = known.view
        high_watermark, committed = view.high_watermark, known.committed
        self._findings.check(
            high_watermark >= committed,
            lambda: f"the high watermark of node {view.node_id} fell from {committed} to {high_watermark}",
        )
        if high_watermark <= committed:
            return
        start = max(committed, view.log.log_start_offset)
        end = start
        grew = high_watermark > self.ghost.end_offset
        last_epoch = -1
        for batch in known.committed_reader.batches(start, high_watermark):
            self._compare(view.node_id, batch)
            end, last_epoch = batch.next_offset, batch.leader_epoch
        known.committed = high_watermark
        self._findings.check(
            end >= high_watermark,
            lambda: f"node {view.node_id} has a high watermark of {high_watermark}, but records up to {end} only",
        )
        if grew:
            self._check_committer(view, before, last_epoch)
            self._check_majority(view)

    def _check_committer(self, view: ReplicaView, before: ReplicaView, last_epoch: int) -> None:
        """One that leads, or has just resigned because its own removal is committed."""
        led = view.is_leader or (before.is_leader and before.epoch == view.epoch and not view.is_voter)
        what = f"node {view.node_id} in epoch {view.epoch} commits up to {view.high_watermark}"
        self._findings.check(led, lambda: f"{what}, and does not lead")
        self._findings.check(
            last_epoch == view.epoch, lambda: f"{what}, which is not of its epoch but of {last_epoch} (Raft, 5.4.2)"
        )

    def _compare(self, node_id: int, batch: Batch) -> None:
        grew = batch.base_offset >= self.ghost.end_offset
        wrong = self.ghost.take(batch)
        if wrong is not None:
            self._findings.report(f"metadata log of node {node_id}: {wrong}")
        elif grew:
            self._apply(batch)

    def _apply(self, batch: Batch) -> None:
        committed = at_once(read_batch(batch.data, 0, read_header(batch.data, 0)))
        if not committed.records:
            return
        deltas = self.loader.handle_commit(
            committed.base_offset, committed.epoch, committed.append_time_ms, committed.records
        )
        for delta in deltas:
            self.images[delta.after.offset] = delta.after
            self._on_delta(delta)

    def _check_majority(self, view: ReplicaView) -> None:
        """Those who are dead now count, too: what they had synced is still on their disks."""
        offset = view.high_watermark
        durable = sum(self._synced(key) >= offset for key in view.voters)
        self._findings.check(
            durable * 2 > len(view.voters),
            lambda: f"committed up to {offset}, but only {durable} of {len(view.voters)} voters have it on disk",
        )

    def _synced(self, key: ReplicaKey) -> int:
        """End of what a voter has on its disk, or had when it was lost."""
        known = self._nodes.get(key.id)
        if known is not None and key.directory_id in (NO_DIRECTORY, known.view.key.directory_id):
            return known.view.synced_end_offset
        return self._lost.get(key, 0)
