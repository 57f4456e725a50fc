"""Delayed records on a simulated cluster: producing them, and what consumers see of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.protocol.messages.fetch import PartitionData
from barnabas.protocol.messages.produce import PartitionProduceResponse
from barnabas.protocol.records.batch import iterate_batches
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record, decode_records
from tests.broker.apis.rig import Rig

DELAYED = {"barnabas_delayed_delivery_enable": "true"}


def delayed_batch(
    *records: tuple[str, int | str | None], header: str = "deliver-at", timestamp: int = 1_750_000_000_000, **more: Any
) -> bytes:
    """(value, delivery time) of each record; None: it has no header."""
    return build_batch(
        [
            Record(
                0,
                timestamp,
                b"key " + value.encode(),
                value.encode(),
                (("other", b"x"),) if time is None else (("other", b"x"), (header, str(time).encode())),
            )
            for value, time in records
        ],
        **more,
    )


async def send(
    rig: Rig, *records: tuple[str, int | str | None], topic: str = "t", **more: Any
) -> PartitionProduceResponse:
    return await rig.produce(topic, delayed_batch(*records, **more))


def now_ms(rig: Rig, node: int = 1) -> int:
    return rig.cluster.node_of(node).broker.world.wall_clock.now_ms()  # type: ignore[union-attr]


async def seen(rig: Rig, topic: str = "t", node: int | None = None) -> list[Record]:
    """All records that a consumer gets from the start of the partition on."""
    records: list[Record] = []
    offset = 0
    while True:
        data = await rig.fetch(topic, offset, node=node)
        assert data.error_code == 0, data
        batches = bytes(data.records or b"")
        if not batches:
            return records
        for position, header in iterate_batches(batches):
            if not header.is_control:
                records += decode_records(batches, position)
            offset = header.next_offset


def records_of(data: PartitionData) -> list[Record]:
    batches = bytes(data.records or b"")
    found: list[Record] = []
    for position, header in iterate_batches(batches):
        if not header.is_control:
            found += decode_records(batches, position)
    return found


def values(records: Iterable[Record]) -> list[str]:
    return [(record.value or b"").decode() for record in records]
