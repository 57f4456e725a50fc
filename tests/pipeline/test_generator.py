"""A recipe gives the same data in any number of parts."""

from __future__ import annotations

import hashlib
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from barnabas.pipeline.generator import BLOCK_RECORDS, Order, Recipe, orders, write_parquet

FIRST_ORDER = {
    "number": 0,
    "customer": "customer-692",
    "item": "lantern",
    "quantity": 6,
    "cents": 38700,
    "ordered_at": "2013-01-01T00:00:00Z",
}
ORDERS_OF_SEED_7 = "27216ad6c8056b84ccb631acc0eb081c"
RECORDS_OF_SEED_7 = "9313b7f8a0eae2cd8227b51c7ff46f99"
"""Digests that must not change: programs and benchmarks identify their data by seed."""


def whole(recipe: Recipe) -> pa.Table:
    return pa.Table.from_batches([recipe.block(number) for number in range(recipe.blocks)], recipe.schema)


def digest(table: pa.Table) -> str:
    """A digest of numbers and texts, independent of Arrow's Python types for times."""
    plain = [each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in table.columns]
    rows = zip(*(each.to_pylist() for each in plain), strict=True)
    return hashlib.sha256("\n".join(map(repr, rows)).encode()).hexdigest()[:32]


@pytest.mark.feature("PL-07")
def test_the_data_of_a_seed_never_changes() -> None:
    order = next(orders(Recipe(records=3, seed=7)))
    assert order == Order.model_validate(FIRST_ORDER)
    assert digest(whole(Recipe(records=20_000, seed=7))) == ORDERS_OF_SEED_7
    assert (
        digest(whole(Recipe(kind="records", records=9_000, seed=7, value_bytes=13, tombstones=0.1)))
        == RECORDS_OF_SEED_7
    )


@pytest.mark.feature("PL-07")
@pytest.mark.parametrize("kind", ["orders", "records"])
def test_parts_are_the_whole_in_any_order_and_any_number_of_files(kind: str, tmp_path: Path) -> None:
    recipe = Recipe(kind=kind, records=3 * BLOCK_RECORDS + 5, seed=1)  # type: ignore[arg-type]
    backwards = [recipe.block(number) for number in reversed(range(recipe.blocks))]
    assert pa.Table.from_batches(reversed(backwards), recipe.schema) == whole(recipe)
    for files in (1, 2, 50):
        written = write_parquet(recipe, tmp_path / str(files), files)
        assert len(written) <= files
        assert pa.concat_tables(map(pq.read_table, written)) == whole(recipe)


def test_a_longer_recipe_only_adds() -> None:
    short, long = Recipe(records=BLOCK_RECORDS), Recipe(records=4 * BLOCK_RECORDS)
    assert short.block(0) == long.block(0)
    assert Recipe(records=BLOCK_RECORDS, seed=1).block(0) != short.block(0)


def test_every_row_is_an_order_and_the_counts_are_right() -> None:
    recipe = Recipe(records=5_000, keys=10)
    found = list(islice(orders(recipe), 5_000))
    assert [order.number for order in found] == list(range(5_000))
    assert {order.customer for order in found} == {f"customer-{number}" for number in range(10)}


def test_records_have_the_size_that_was_asked_for_and_tombstones_their_share() -> None:
    table = whole(Recipe(kind="records", records=50_000, value_bytes=21, tombstones=0.25))
    values = table["value"].to_pylist()
    assert {len(value) for value in values if value is not None} == {21}
    assert 0.23 < values.count(None) / len(values) < 0.27
    assert set(whole(Recipe(kind="records", records=10, value_bytes=0))["value"].to_pylist()) == {b""}


@pytest.mark.parametrize(
    "bad", [{"records": -1}, {"records": 1, "keys": 0}, {"records": 1, "tombstones": 2}, {"rows": 1}]
)
def test_a_recipe_that_cannot_be(bad: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Recipe.model_validate(bad)
    with pytest.raises(IndexError):
        Recipe(records=1).block(1)
