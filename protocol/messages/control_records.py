"""Bodies of control records."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT16, INT32, INT64, STRING, UINT16, UUID, Message, Struct, array, field, struct


class ControlRecordTypeSchema(Message, versions="0"):
    """Key of a control record, after its int16 version: which body follows. Version 0."""

    type: int = field(INT16, "0+", default=0)


class EndTxnMarker(Message, versions="0"):
    """Body of an abort or commit marker: the epoch of the transaction coordinator (KIP-98). Version 0."""

    coordinator_epoch: int = field(INT32, "0+", default=0)


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The version of the raft protocol in use (KIP-853). Version 0; flexible."""

    version: int = field(INT16, "0+", default=0)
    k_raft_version: int = field(INT16, "0+", default=0)


class LeaderChangeMessageVoter(Struct):
    voter_id: int = field(INT32, "0+", default=0)
    voter_directory_id: bytes = field(UUID, "1+", default=ZERO_UUID)


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """A new raft leader announces itself as the first record of its epoch (KIP-595). Versions 0 to 1;
    flexible."""

    version: int = field(INT16, "0+", default=0)
    leader_id: int = field(INT32, "0+", default=0)
    voters: list[LeaderChangeMessageVoter] = field(array(LeaderChangeMessageVoter), "0+", factory=list)
    granting_voters: list[LeaderChangeMessageVoter] = field(
        array(LeaderChangeMessageVoter), "0+", factory=list
    )


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """Ends a snapshot (KIP-630). Version 0; flexible."""

    version: int = field(INT16, "0+", default=0)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """Starts a snapshot (KIP-630). Version 0; flexible."""

    version: int = field(INT16, "0+", default=0)
    last_contained_log_timestamp: int = field(INT64, "0+", default=0)


class Endpoint(Struct):
    name: str = field(STRING, "0+", default="")
    host: str = field(STRING, "0+", default="")
    port: int = field(UINT16, "0+", default=0)


class KRaftVersionFeature(Struct):
    min_supported_version: int = field(INT16, "0+", default=0)
    max_supported_version: int = field(INT16, "0+", default=0)


class VotersVoter(Struct):
    voter_id: int = field(INT32, "0+", default=0)
    voter_directory_id: bytes = field(UUID, "0+", default=ZERO_UUID)
    endpoints: list[Endpoint] = field(array(Endpoint), "0+", factory=list)
    k_raft_version_feature: KRaftVersionFeature = field(
        struct(KRaftVersionFeature), "0+", factory=KRaftVersionFeature
    )


class VotersRecord(Message, versions="0", flexible="0+"):
    """The set of voters (KIP-853). Version 0; flexible."""

    version: int = field(INT16, "0+", default=0)
    voters: list[VotersVoter] = field(array(VotersVoter), "0+", factory=list)
