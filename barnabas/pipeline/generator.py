"""Data by seed: as much as is wanted, made in any place, and the same everywhere.

Records are made in blocks, each by a random stream of its own (`Philox`, keyed by seed and block), so that executors
make any part without the others, and however it is dealt out, the records are the same. Only the raw numbers of the
stream are used: what numpy makes of them may change between its versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from barnabas.pipeline.arrow_functions import map_in_arrow

if TYPE_CHECKING:
    import numpy.typing as npt

BLOCK_RECORDS = 8_192
"""Part of what a recipe means: another size gives other data."""

ITEMS = ("anchor", "compass", "lantern", "rope", "sextant", "tiller")
MAX_QUANTITY = 9
MAX_CENTS = 99_999
DECIMALS = 1_000_000
"""How fine shares are."""


class Recipe(BaseModel):
    """What is made. Two equal recipes make equal data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["orders", "records"] = "orders"
    records: Annotated[int, Field(ge=0)]
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    keys: Annotated[int, Field(ge=1, lt=2**31)] = 1_000
    """Different customers, or keys."""
    value_bytes: Annotated[int, Field(ge=0, le=16 * 1024 * 1024)] = 100
    """Of each value of `records`."""
    tombstones: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The share of `records` that have no value."""
    first: datetime = datetime(2013, 1, 1, tzinfo=UTC)
    every: timedelta = timedelta(milliseconds=100)
    """From one record to the next."""

    @property
    def blocks(self) -> int:
        return -(-self.records // BLOCK_RECORDS)

    @property
    def schema(self) -> pa.Schema:
        return ORDERS if self.kind == "orders" else RECORDS

    def block(self, number: int) -> pa.RecordBatch:
        """One block: the last may be short."""
        first = number * BLOCK_RECORDS
        count = min(BLOCK_RECORDS, self.records - first)
        if not count > 0 or number < 0:
            raise IndexError(f"there are {self.blocks} blocks")
        return (_orders if self.kind == "orders" else _records)(self, number, first, count)


class Order(BaseModel):
    """One row of `orders`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    customer: str
    item: Literal["anchor", "compass", "lantern", "rope", "sextant", "tiller"]
    quantity: Annotated[int, Field(ge=1, le=MAX_QUANTITY)]
    cents: Annotated[int, Field(ge=1, le=MAX_CENTS)]
    ordered_at: datetime


_TIME = pa.timestamp("us", tz="UTC")
ORDERS = pa.schema(
    [
        ("number", pa.int64()),
        ("customer", pa.string()),
        ("item", pa.string()),
        ("quantity", pa.int32()),
        ("cents", pa.int32()),
        ("ordered_at", _TIME),
    ]
)
RECORDS = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp", _TIME)])


def orders(recipe: Recipe) -> Iterator[Order]:
    """One after the other, for who wants no columns."""
    for number in range(recipe.blocks):
        for row in recipe.block(number).to_pylist():
            yield Order.model_validate(row)


def generate(session: Any, recipe: Recipe, slices: int | None = None) -> Any:
    """The same on executors, in `slices` tasks."""
    columns = ", ".join(f"{field.name} {_SPARK[field.type]}" for field in recipe.schema)

    def make(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield recipe.block(number)

    parallel = session.sparkContext.defaultParallelism
    return map_in_arrow(session.range(0, recipe.blocks, 1, slices or parallel), make, columns)


def write_parquet(recipe: Recipe, folder: Path, files: int = 1) -> list[Path]:
    """Writes it here, in so many files of about the same size; gives those that have something in them."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    share = max(1, -(-recipe.blocks // files))
    written = []
    for index, first in enumerate(range(0, recipe.blocks, share)):
        path = folder / f"{recipe.kind}-{index:05d}.parquet"
        aside = folder / f".{path.name}.new"
        with pq.ParquetWriter(aside, recipe.schema) as writer:
            for number in range(first, min(first + share, recipe.blocks)):
                writer.write_batch(recipe.block(number))
        aside.replace(path)
        written.append(path)
    return written


_SPARK = {
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    _TIME: "TIMESTAMP",
}


def _orders(recipe: Recipe, number: int, first: int, count: int) -> pa.RecordBatch:
    chance = _stream(recipe, number, 4 * count).reshape(4, count)
    customers = [f"customer-{each}" for each in (chance[0] % np.uint64(recipe.keys)).tolist()]
    items = pa.DictionaryArray.from_arrays(pa.array((chance[1] % np.uint64(len(ITEMS))).astype(np.int8)), list(ITEMS))
    columns = [
        pa.array(np.arange(first, first + count, dtype=np.int64)),
        pa.array(customers),
        items.cast(pa.string()),
        pa.array((chance[2] % np.uint64(MAX_QUANTITY) + np.uint64(1)).astype(np.int32)),
        pa.array((chance[3] % np.uint64(MAX_CENTS) + np.uint64(1)).astype(np.int32)),
        _times(recipe, first, count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ORDERS)


def _records(recipe: Recipe, number: int, first: int, count: int) -> pa.RecordBatch:
    words = -(-recipe.value_bytes // 8)
    chance = _stream(recipe, number, count * (2 + words))
    keys = [b"key-%d" % each for each in (chance[:count] % np.uint64(recipe.keys)).tolist()]
    gone = chance[count : 2 * count] % np.uint64(DECIMALS) < np.uint64(round(recipe.tombstones * DECIMALS))
    # Letters: from `@` on there are 64 that can be read, more or less.
    text = chance[2 * count :].view(np.uint8).reshape(count, 8 * words)[:, : recipe.value_bytes] % 64 + 64
    flat = np.ascontiguousarray(text)
    starts = np.arange(count + 1, dtype=np.int32) * recipe.value_bytes
    values = pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(starts), pa.py_buffer(flat)])
    if gone.any():
        values = pa.compute.if_else(pa.array(gone), pa.scalar(None, pa.binary()), values)
    return pa.RecordBatch.from_arrays([pa.array(keys), values, _times(recipe, first, count)], schema=RECORDS)


def _times(recipe: Recipe, first: int, count: int) -> pa.Array:
    microsecond = timedelta(microseconds=1)
    begin = (recipe.first - datetime(1970, 1, 1, tzinfo=UTC)) // microsecond
    step = recipe.every // microsecond
    return pa.array(begin + step * np.arange(first, first + count, dtype=np.int64)).cast(_TIME)


def _stream(recipe: Recipe, number: int, count: int) -> npt.NDArray[np.uint64]:
    """So many random words of 64 bits, little-endian wherever it runs."""
    raw = np.random.Philox(key=np.array([recipe.seed, number], dtype=np.uint64)).random_raw(count)
    return np.asarray(raw, dtype="<u8")
