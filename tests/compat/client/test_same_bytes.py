"""The same records, sent by our producer and by Java's, are the same bytes in the log: batches and where they end."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from barnabas.client.producer import Producer, ProducerOptions
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, iterate_batches
from barnabas.protocol.records.compression import decompress
from tests.compat.running import RunningCluster
from tests.compat.running_programs import compile_java, java_command

pytestmark = [pytest.mark.compat, pytest.mark.client("java"), pytest.mark.feature("CL-02")]

NOW_MS = 1_700_000_000_000


class Line(NamedTuple):
    """One record, as both are given it."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def __str__(self) -> str:
        headers = [word for name, value in self.headers for word in (name, _hex(value))]
        return " ".join([str(self.timestamp_ms), _hex(self.key), _hex(self.value), *headers])


def _hex(value: bytes | None) -> str:
    return "-" if value is None else f"x{value.hex()}"


def lines(count: int, seed: int) -> list[Line]:
    """Times go back and forth; keys, values and headers are there, empty, null, short and long."""
    chance = random.Random(seed)

    def some(longest: int) -> bytes | None:
        kind = chance.random()
        return None if kind < 0.15 else b"" if kind < 0.2 else chance.randbytes(chance.randrange(1, longest))

    return [
        Line(
            NOW_MS + chance.randrange(-50_000, 50_000),
            some(40),
            some(chance.choice((20, 300, 3_000))),
            tuple((f"h{n}", some(30)) for n in range(chance.choice((0, 0, 0, 1, 3)))),
        )
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def classes(libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_java(tmp_path_factory.mktemp("classes"), libs)


class Batch(NamedTuple):
    header: BatchHeader
    data: bytes
    """All of it."""

    @property
    def head(self) -> dict[str, Any]:
        """All but whose it is, and what depends on how well it was compressed."""
        return {
            name: value
            for name, value in self.header._asdict().items()
            if name not in ("crc", "producer_id", "producer_epoch", "batch_length")
        }

    @property
    def records(self) -> bytes:
        body = self.data[BATCH_HEADER_BYTES:]
        return bytes(decompress(self.header.compression, body, 1 << 24)) if self.header.compression else body


def batches(cluster: RunningCluster, topic: str) -> list[Batch]:
    """Batches on the leader's disk, without markers."""
    directory = cluster.partition_directory(cluster.leader_of(topic, 0), topic, 0)
    data = (directory / f"{0:020}.log").read_bytes()
    return [
        Batch(header, data[position : position + header.size_bytes])
        for position, header in iterate_batches(data)
        if not header.is_control
    ]


class Both:
    """The two producers."""

    def __init__(self, cluster: RunningCluster, classes: Path, libs: Path) -> None:
        self._cluster, self._classes, self._libs = cluster, classes, libs

    async def write(self, records: Sequence[Line], **options: Any) -> tuple[list[Batch], list[Batch]]:
        """Batches of our log and of Java's after both clients sent the same records with the same settings."""
        ours, java = self._cluster.create_topic("ours"), self._cluster.create_topic("javas")
        options = {"bootstrap_servers": self._cluster.bootstrap_servers, "linger_ms": 60_000, **options}
        self._send_by_java(java, records, options)
        if "transactional_id" in options:
            options["transactional_id"] += " of ours"
        async with Producer(**cast(ProducerOptions, options)) as producer:
            await self._send(producer, ours, records, in_transaction="transactional_id" in options)
        return batches(self._cluster, ours), batches(self._cluster, java)

    @staticmethod
    async def _send(producer: Producer, topic: str, records: Sequence[Line], *, in_transaction: bool) -> None:
        async with producer.transaction() if in_transaction else nullcontext():
            for line in records:
                await producer.enqueue(
                    topic,
                    line.value,
                    key=line.key,
                    partition=0,
                    timestamp_ms=line.timestamp_ms,
                    headers=line.headers,
                )
            await producer.flush()

    def _send_by_java(self, topic: str, records: Sequence[Line], options: dict[str, Any]) -> None:
        settings = [f"{name.replace('_', '.')}={str(value).lower()}" for name, value in options.items()]
        done = subprocess.run(
            java_command(self._classes, self._libs, "Produce", topic, *settings),
            input="".join(f"{line}\n" for line in records),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture
def both(cluster: RunningCluster, classes: Path, libs: Path) -> Iterator[Both]:
    yield Both(cluster, classes, libs)


async def test_plain_batches_are_the_same_to_the_byte(both: Both) -> None:
    ours, java = await both.write(lines(400, seed=1), enable_idempotence=False, batch_size=5_000)
    assert [batch.data for batch in ours] == [batch.data for batch in java]
    assert len(ours) > 20, "one batch for each record or one for all shows little"


@pytest.mark.parametrize(
    "options", [{"enable_idempotence": True}, {"transactional_id": "same"}], ids=["idempotent", "transactional"]
)
async def test_batches_of_a_producer_with_an_id_differ_in_the_id_alone(both: Both, options: dict[str, Any]) -> None:
    ours, java = await both.write(lines(200, seed=2), batch_size=5_000, **options)
    assert [batch.head for batch in ours] == [batch.head for batch in java]
    assert [batch.records for batch in ours] == [batch.records for batch in java]
    assert all(batch.header.producer_id >= 0 for batch in (*ours, *java))


async def test_compressed_batches_hold_the_same(both: Both) -> None:
    ours, java = await both.write(lines(50, seed=3), compression_type="zstd", batch_size=200_000)
    assert [batch.head for batch in ours] == [batch.head for batch in java]
    assert [batch.records for batch in ours] == [batch.records for batch in java]
    assert len(ours) == 1
