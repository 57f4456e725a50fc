"""Between the core's voter sets and the control records that carry them, in the log and in snapshots (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from barnabas.protocol.messages.control_records import (
    Endpoint as EndpointOfRecord,
)
from barnabas.protocol.messages.control_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    VotersRecord,
    VotersVoter,
)
from barnabas.protocol.records.batch import CorruptBatch, iterate_batches
from barnabas.protocol.records.control import read_raft_control_record
from barnabas.protocol.records.record import decode_records

MAX_VOTERS = 1000
"""Far more than any quorum has; a record with more is damage."""

QuorumRecordBody = KRaftVersionRecord | VotersRecord


def record_bodies(records: Iterable[QuorumRecord]) -> list[QuorumRecordBody]:
    """The control records, in their order."""
    bodies: list[QuorumRecordBody] = []
    for record in records:
        if record.kraft_version is not None:
            bodies.append(KRaftVersionRecord(k_raft_version=record.kraft_version))
        if record.voters is not None:
            bodies.append(VotersRecord(voters=[_voter_of_record(voter) for voter in record.voters.voters]))
    return bodies


def quorum_record(offset: int, body: QuorumRecordBody) -> QuorumRecord:
    """The core's form of a control record. Raises CorruptBatch for a voter set that cannot be."""
    if isinstance(body, KRaftVersionRecord):
        return QuorumRecord(offset=offset, kraft_version=body.k_raft_version)
    ids = {voter.voter_id for voter in body.voters}
    if not body.voters or len(ids) < len(body.voters) or min(ids) < 0 or len(ids) > MAX_VOTERS:
        raise CorruptBatch(f"the VotersRecord at offset {offset} has the voters {sorted(ids)[:10]}")
    return QuorumRecord(
        offset=offset,
        voters=VoterSet.of(
            Voter(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                endpoints(voter.endpoints),
                (
                    voter.k_raft_version_feature.min_supported_version,
                    voter.k_raft_version_feature.max_supported_version,
                ),
            )
            for voter in body.voters
        ),
    )


def quorum_records_in(data: bytes | memoryview, from_offset: int = 0) -> Iterator[QuorumRecord]:
    """The records from `from_offset` on in whole batches of the log. Raises CorruptBatch."""
    for position, header in iterate_batches(data):
        if not header.is_control or header.next_offset <= from_offset:
            continue
        for record in decode_records(memoryview(data)[position : position + header.size_bytes]):
            body = read_raft_control_record(record)
            if isinstance(body, KRaftVersionRecord | VotersRecord):
                yield quorum_record(record.offset, body)


def endpoints(listed: Sequence[Any]) -> tuple[Endpoint, ...]:
    """The listeners in a record or request of KIP-853."""
    return tuple(Endpoint(each.name, each.host, each.port) for each in listed)


def _voter_of_record(voter: Voter) -> VotersVoter:
    lowest, highest = voter.versions
    return VotersVoter(
        voter_id=voter.id,
        voter_directory_id=voter.key.directory_id,
        endpoints=[EndpointOfRecord(name=it.name, host=it.host, port=it.port) for it in voter.endpoints],
        k_raft_version_feature=KRaftVersionFeature(min_supported_version=lowest, max_supported_version=highest),
    )
