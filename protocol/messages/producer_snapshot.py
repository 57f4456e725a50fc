"""The body of a producer snapshot file (`*.snapshot`)."""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, UINT32, Message, Struct, array, field


class ProducerEntry(Struct):
    producer_id: int = field(INT64, "1", default=0)
    epoch: int = field(INT16, "1", default=0)
    last_sequence: int = field(INT32, "1", default=0)
    last_offset: int = field(INT64, "1", default=0)
    offset_delta: int = field(INT32, "1", default=0)
    timestamp: int = field(INT64, "1", default=0)
    coordinator_epoch: int = field(INT32, "1", default=0)
    current_txn_first_offset: int = field(INT64, "1", default=0)


class ProducerSnapshot(Message, versions="1"):
    """The producer state of a partition at an offset, so that recovery need not read the whole log. Version 1."""

    crc: int = field(UINT32, "1", default=0)
    producer_entries: list[ProducerEntry] = field(array(ProducerEntry), "1", factory=list)
