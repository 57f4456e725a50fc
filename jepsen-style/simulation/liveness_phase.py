"""The liveness phase: a core of nodes that should suffice is whole, all others stay broken for good, and the core must
converge. If it does not, the disks show whether it ever could have (after TigerBeetle's simulator).

A core is a majority of the controllers, and brokers among which every partition has a member of its ISR or ELR. It must
elect a leader for each partition, with an ISR of all replicas in the core, and take records where there are enough of
them for min.insync.replicas. Whether it could is asked of what lies on the core's disks, past all processes: the
committed metadata on one controller, and for each partition all that was committed on one member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from barnabas.kraft.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, CorruptBatch, crc_is_valid, read_header
from barnabas.runtime.simulated.chance import Stream
from barnabas.runtime.simulated.store import Directory, Store
from barnabas.storage.names import METADATA_TOPIC
from simulation.ghosts import GhostLog
from simulation.invariants.compaction import COMPACTED_TOPICS
from simulation.invariants.places import PartitionKey


@dataclass(frozen=True, slots=True)
class Core:
    """Ids of the nodes that are whole."""

    brokers: tuple[int, ...]
    controllers: tuple[int, ...]

    def __contains__(self, node_id: int) -> bool:
        return node_id in self.brokers or node_id in self.controllers

    def __str__(self) -> str:
        return f"the core of brokers {list(self.brokers)} and controllers {list(self.controllers)}"


def choose_core(
    chance: Stream, image: MetadataImage, brokers: Sequence[int], controllers: Sequence[int], lossy: Iterable[int]
) -> Core | None:
    """One of the smallest that should suffice; None if only all brokers together do, and then there is no rest."""
    voters = list(controllers)
    chance.shuffle(voters)
    majority = tuple(sorted(voters[: len(voters) // 2 + 1]))
    lost = tuple(lossy)
    for size in range(1, len(brokers)):
        enough = [some for some in combinations(sorted(brokers), size) if _suffices(some, image, lost)]
        if enough:
            return Core(chance.choice(enough), majority)
    return None


def _suffices(some: tuple[int, ...], image: MetadataImage, lossy: tuple[int, ...]) -> bool:
    return all(
        any(member in some and member not in lossy for member in (*partition.isr, *partition.elr))
        for _, partition in _partitions(image)
    )


def _partitions(image: MetadataImage) -> Iterator[tuple[PartitionKey, PartitionImage]]:
    for topic in image.topics.by_name.values():
        for index, partition in topic.partitions.items():
            yield PartitionKey(topic.name, index), partition


def not_converged(image: MetadataImage, core: Core) -> str:
    """Reason why the core does not yet lead every partition with all its replicas; empty if it does."""
    for key, partition in _partitions(image):
        inside = {node_id for node_id in partition.replicas if node_id in core}
        if inside and (partition.leader == NO_LEADER or partition.leader not in core):
            return f"{key} has leader {partition.leader}, ISR {partition.isr}, ELR {partition.elr}"
        if inside and set(partition.isr) != inside:
            return f"{key} has the ISR {partition.isr}, {sorted(inside)} live"
    return ""


def writable(image: MetadataImage, core: Core, min_isr: Callable[[PartitionKey], int]) -> list[PartitionKey]:
    """The partitions that must take records when only the core lives."""
    return [
        key
        for key, partition in _partitions(image)
        if sum(node_id in core for node_id in partition.replicas) >= min(min_isr(key), len(partition.replicas))
    ]


# ---- the oracle


@dataclass(frozen=True, slots=True)
class Truth:
    """Everything that was committed."""

    image: MetadataImage
    metadata: GhostLog
    partitions: Mapping[PartitionKey, GhostLog]


def why_not_recoverable(core: Core, truth: Truth, disk: Callable[[int], tuple[Store, str]]) -> str:
    """Data that the disks of the core lack, so that no system could have recovered; empty if they have everything, and
    then the core was stuck. `disk` gives the disk of a node and the directory of its logs.
    """
    ends = {node_id: log_end(*disk(node_id), METADATA_TOPIC, 0) for node_id in core.controllers}
    if all(end < truth.metadata.end_offset for end in ends.values()):
        return f"committed metadata go up to {truth.metadata.end_offset}, the controllers of the core end at {ends}"
    for key, partition in _partitions(truth.image):
        committed = truth.partitions[key].end_offset if key in truth.partitions else 0
        members = [node_id for node_id in (*partition.isr, *partition.elr) if node_id in core]
        if not members:
            return f"{key}: no member of ISR {partition.isr} or ELR {partition.elr} is in the core"
        if key.topic in COMPACTED_TOPICS:
            continue  # a copy of what is left may end before
        found = {node_id: log_end(*disk(node_id), *key) for node_id in members}
        if all(end < committed for end in found.values()):
            return f"{key}: committed is up to {committed}, its members in the core end at {found}"
    return ""


def log_end(store: Store, directory: str, topic: str, index: int) -> int:
    """End offset of the whole batches of a log on a disk; 0 if there are none."""
    path = f"{directory}/{topic}-{index}"
    if not isinstance(store.find(path), Directory):
        return 0
    end = 0
    for file, inode in store.files(path):
        name = file.rpartition("/")[2]
        stem, _, suffix = name.rpartition(".")
        if suffix == "checkpoint" and "-" in stem:
            end = max(end, int(stem.partition("-")[0]))
        if suffix != "log" or not stem.isdigit():
            continue
        content = memoryview(bytes(inode.cached))
        position = 0
        while position + BATCH_HEADER_BYTES <= len(content):
            try:
                header = read_header(content, position)
            except CorruptBatch:
                break
            if position + header.size_bytes > len(content) or not crc_is_valid(content, position, header):
                break
            end = max(end, header.next_offset)
            position += header.size_bytes
    return end
