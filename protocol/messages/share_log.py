"""Keys and values of `__share_group_state` (KIP-932)."""

from __future__ import annotations

from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import INT8, INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class ShareSnapshotKey(Message, api_key=0, versions="0"):
    """Key of the whole state of a share partition. Version 0."""

    group_id: str = field(STRING, "0", default="")
    topic_id: bytes = field(UUID, "0", default=ZERO_UUID)
    partition: int = field(INT32, "0", default=0)


class StateBatch(Struct):
    first_offset: int = field(INT64, "0+", default=0)
    last_offset: int = field(INT64, "0+", default=0)
    delivery_state: int = field(INT8, "0+", default=0)
    delivery_count: int = field(INT16, "0+", default=0)


class ShareSnapshotValue(Message, api_key=0, versions="0", flexible="0+"):
    """The whole state of a share partition: start offset and state batches. Version 0; flexible."""

    snapshot_epoch: int = field(INT32, "0+", default=0)
    state_epoch: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)
    start_offset: int = field(INT64, "0+", default=0)
    delivery_complete_count: int = field(INT32, "0+", default=-1, tag=0)
    create_timestamp: int = field(INT64, "0+", default=0)
    write_timestamp: int = field(INT64, "0+", default=0)
    state_batches: list[StateBatch] = field(array(StateBatch), "0+", factory=list)


class ShareUpdateKey(Message, api_key=1, versions="0"):
    """Key of a change of the state of a share partition. Version 0."""

    group_id: str = field(STRING, "0", default="")
    topic_id: bytes = field(UUID, "0", default=ZERO_UUID)
    partition: int = field(INT32, "0", default=0)


class ShareUpdateValue(Message, api_key=1, versions="0", flexible="0+"):
    """A change on top of the latest snapshot of a share partition. Version 0; flexible."""

    snapshot_epoch: int = field(INT32, "0+", default=0)
    leader_epoch: int = field(INT32, "0+", default=0)
    start_offset: int = field(INT64, "0+", default=0)
    delivery_complete_count: int = field(INT32, "0+", default=-1, tag=0)
    state_batches: list[StateBatch] = field(array(StateBatch), "0+", factory=list)
