"""Records laid out, walked and checked: as Python, in runs of records that are alike, and compiled. All give the same.

The slow and plain codec of this file gives the expected results.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records import layout as imported
from barnabas.protocol.records import scan as imported_scan
from barnabas.protocol.records.batch import CorruptBatch
from barnabas.protocol.records.layout import Fields, Headers
from barnabas.protocol.records.runs import check_in_runs, walk_in_runs
from tests.examples import examples

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "protocol" / "records" / "layout.py"
SCAN_SOURCE = SOURCE.with_name("scan.py")
NOW = 1_700_000_000_000

Walk = Callable[[bytes, int, int, int, int], tuple[list[Fields], int]]


def load(name: str, path: Path) -> ModuleType:
    """The module in a file, regardless of the module imported under its name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled() -> Path:
    """The folder of the modules compiled by mypyc, kept as long as the sources stay the same."""
    sources = [SOURCE, SCAN_SOURCE, ROOT / "setup.py"]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    place = ROOT / ".cache" / "compiled" / f"{digest}-{sys.implementation.cache_tag}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # others who run tests now need it, too
        if not place.exists():
            making = place.with_name("making")
            shutil.rmtree(making, ignore_errors=True)
            command = ["setup.py", "-q", "build_ext", "--build-lib", making, "--build-temp", making / "objects"]
            environment = {**os.environ, "BARNABAS_COMPILED": "1"}
            made = subprocess.run(
                [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, check=False
            )
            assert made.returncode == 0, (made.stdout + made.stderr).decode()
            making.rename(place)
    return place / "barnabas" / "protocol" / "records"


def both_ways(imported: ModuleType, source: Path, way: str) -> ModuleType:
    """The module as Python runs it, or as mypyc makes it."""
    name = imported.__name__
    if way == "source":
        return load(name, source)
    if not str(imported.__file__).endswith(".py"):
        return imported
    if not shutil.which("cc") or importlib.util.find_spec("mypyc") is None:
        pytest.skip("there is no C compiler, or no mypyc")
    folder = compiled()
    # Its native module is loaded from the same folder.
    sys.modules[f"{name}__mypyc"] = load(f"{name}__mypyc", *folder.glob(f"{source.stem}__mypyc.*.so"))
    return load(name, *folder.glob(f"{source.stem}.*.so"))


@pytest.fixture(scope="session", params=["source", "compiled"])
def layout(request: pytest.FixtureRequest) -> ModuleType:
    return both_ways(imported, SOURCE, request.param)


@pytest.fixture(scope="session", params=["source", "compiled"])
def scan(request: pytest.FixtureRequest) -> ModuleType:
    return both_ways(imported_scan, SCAN_SOURCE, request.param)


@pytest.fixture(scope="session")
def walks(layout: ModuleType) -> list[Walk]:
    return [layout.walk, walk_in_runs]


# -- the plain codec


def varint(value: int) -> bytes:
    raw = value * 2 if value >= 0 else -value * 2 - 1
    found = bytearray()
    while raw >= 128:
        found.append(raw % 128 + 128)
        raw //= 128
    return bytes([*found, raw])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def plainly(records: list[Fields], base_timestamp: int) -> bytes:
    found = b""
    for delta, (_, timestamp, key, value, headers) in enumerate(records):
        body = b"\0" + varint(timestamp - base_timestamp) + varint(delta) + sized(key) + sized(value)
        body += varint(len(headers))
        for name, content in headers:
            body += sized(name.encode()) + sized(content)
        found += varint(len(body)) + body
    return found


# -- records that are alike, and others

contents = st.none() | st.binary(max_size=12) | st.integers(50, 200).map(lambda size: b"v" * size)
some_headers = st.just(()) | st.lists(st.tuples(st.text(max_size=4), contents), max_size=2).map(tuple)
times = st.integers(0, 200) | st.integers(0, 9000) | st.integers(-(2**40), 2**40)


@st.composite
def alike(draw: st.DrawFn) -> list[Fields]:
    """Contents of the same sizes, time that goes on slowly: what a machine writes."""
    key_bytes, value_bytes = draw(st.none() | st.integers(0, 70)), draw(st.none() | st.integers(0, 200))
    count, step = draw(st.integers(1, 100)), draw(st.sampled_from([0, 0, 1, 40]))
    filling = draw(st.integers(0, 255))
    return [
        (
            0,
            NOW + index * step // 3,
            None if key_bytes is None else bytes([(filling + index) % 256]) * key_bytes,
            None if value_bytes is None else bytes([filling]) * value_bytes,
            (),
        )
        for index in range(count)
    ]


@st.composite
def mixed(draw: st.DrawFn) -> list[Fields]:
    one = st.tuples(st.just(0), times.map(NOW.__add__), contents, contents, some_headers)
    return draw(st.lists(one, min_size=1, max_size=12))


batches = st.lists(alike() | mixed(), min_size=1, max_size=3).map(
    lambda pieces: [one for each in pieces for one in each]
)


def numbered(records: list[Fields], base_offset: int) -> list[Fields]:
    return [(base_offset + index, *record[1:]) for index, record in enumerate(records)]


@pytest.mark.feature("PF-10", "PF-12")
@settings(deadline=None, max_examples=examples(50))
@given(records=batches, base_offset=st.integers(0, 2**50))
def test_records_are_laid_out_as_the_format_says_and_come_back(
    layout: ModuleType, walks: list[Walk], records: list[Fields], base_offset: int
) -> None:
    data = plainly(records, NOW)
    assert layout.lay_out(records, NOW, None, None) == (data, len(records) - 1)
    for walk in walks:
        assert walk(b"before" + data, 6, len(records), base_offset, NOW) == (
            numbered(records, base_offset),
            6 + len(data),
        )


@pytest.mark.feature("PF-10")
@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_offsets_of_one_two_and_three_bytes(layout: ModuleType, walks: list[Walk], key: bytes | None) -> None:
    records: list[Fields] = [(0, NOW + index // 7, key, b"value", ()) for index in range(8400)]
    data = plainly(records, NOW)
    assert layout.lay_out(records, NOW, None, None)[0] == data
    for walk in walks:
        assert walk(data, 0, 8400, 10, NOW)[0] == numbered(records, 10)


@pytest.mark.feature("PF-18")
@settings(deadline=None, max_examples=examples(30))
@given(records=alike(), data=st.data())
def test_offsets_with_gaps_are_kept(
    layout: ModuleType, walks: list[Walk], records: list[Fields], data: st.DataObject
) -> None:
    kept = data.draw(st.sets(st.integers(0, len(records) - 1)).map(sorted))
    left = [(100 + index, *records[index][1:]) for index in kept]
    laid, delta = layout.lay_out(left, NOW, 100, None)
    assert delta == (kept[-1] if kept else -1)
    for walk in walks:
        assert walk(laid, 0, len(left), 100, NOW)[0] == left


@settings(deadline=None, max_examples=examples(30))
@given(records=batches)
def test_with_the_brokers_time_all_records_have_that(
    layout: ModuleType, walks: list[Walk], records: list[Fields]
) -> None:
    laid, _ = layout.lay_out(records, NOW - 5, None, NOW)
    for walk in walks:
        assert {record[1] for record in walk(laid, 0, len(records), 0, NOW - 5)[0]} == {NOW}


@settings(deadline=None, max_examples=examples(150))
@given(records=batches, data=st.data(), count=st.integers(-3, 3))
def test_all_walks_report_damage_in_the_same_way(
    layout: ModuleType, walks: list[Walk], records: list[Fields], data: st.DataObject, count: int
) -> None:
    laid = bytearray(plainly(records, NOW))
    for _ in range(data.draw(st.integers(0, 3))):
        laid[data.draw(st.integers(0, len(laid) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(laid[: len(laid) - data.draw(st.sampled_from([0, 0, 0, 1, 30]))])
    outcomes = [outcome(walk, cut, len(records) + count) for walk in [imported.walk, *walks]]
    assert outcomes[1:] == outcomes[:-1]


def outcome(walk: Walk, data: bytes, count: int) -> Any:
    try:
        return walk(data, 0, count, 7, NOW)
    except (CorruptBatch, IndexError):
        return "corrupt"


@pytest.mark.parametrize("base_timestamp", [2**63 - 1, -(2**63), 2**62 + 1])
def test_timestamps_beyond_64_bits_are_corrupt(layout: ModuleType, walks: list[Walk], base_timestamp: int) -> None:
    step = 1 if base_timestamp > 0 else -1
    records: list[Fields] = [(index, base_timestamp, None, b"v", ()) for index in range(20)]
    laid, _ = layout.lay_out(records, base_timestamp, None, None)
    moved = bytearray(laid)
    moved[-8 * 3 + 2] = varint(step)[0]
    for walk in walks:
        assert walk(laid, 0, 20, 0, base_timestamp)[0] == records
        if abs(base_timestamp) < 2**63 - 1:
            assert walk(bytes(moved), 0, 20, 0, base_timestamp)[0][17][1] == base_timestamp + step
        else:
            with pytest.raises(CorruptBatch, match="64 bits"):
                walk(bytes(moved), 0, 20, 0, base_timestamp)


@settings(deadline=None, max_examples=examples(30))
@given(records=mixed())
def test_no_record_is_larger_than_it_is_taken_to_be(layout: ModuleType, records: list[Fields]) -> None:
    for _, _, key, value, headers in records:
        laid, _ = layout.lay_out([(0, NOW, None, None, ()), (0, NOW + 2**40, key, value, headers)], NOW, None, None)
        assert len(laid) - 7 <= layout.record_size_bytes(key, value, headers)


def test_offsets_that_do_not_grow_are_refused(layout: ModuleType) -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        layout.lay_out([(5, NOW, None, None, ()), (5, NOW, None, None, ())], NOW, 0, None)
    with pytest.raises(ValueError, match="cannot follow"):
        layout.lay_out([(2**31, NOW, None, None, ())], NOW, 0, None)


def test_headers_of_records_that_are_alike_differ(layout: ModuleType, walks: list[Walk]) -> None:
    either: tuple[Headers, ...] = ((), (("a", b"1"),), (("a", None), ("a", b"2")))
    records: list[Fields] = [(0, NOW, b"k", b"v", either[index // 20 % 3]) for index in range(140)]
    laid, _ = layout.lay_out(records, NOW, None, None)
    assert laid == plainly(records, NOW)
    for walk in walks:
        assert walk(laid, 0, 140, 0, NOW)[0] == numbered(records, 0)


# -- checked, and looked through


Checked = tuple[int, int, int, int]


def in_pieces(check: Callable[[bytes, int, int, int], Checked], data: bytes, count: int, piece: int) -> Checked:
    """The results of `check` for these records, when it is called for `piece` of them at a time."""
    position = delta = reach = keyless = 0
    while delta < count:
        position, delta, reach_here, keyless_here = check(data, position, delta, min(piece, count - delta))
        reach, keyless = max(reach, reach_here), keyless + keyless_here
    return position, delta, reach, keyless


@pytest.mark.feature("RP-03")
@settings(deadline=None, max_examples=examples(100))
@given(records=batches, data=st.data(), piece=st.integers(1, 40))
def test_the_scan_accepts_walkable_records_and_nothing_else(
    scan: ModuleType, records: list[Fields], data: st.DataObject, piece: int
) -> None:
    laid = bytearray(plainly(records, NOW))
    for _ in range(data.draw(st.integers(0, 2))):
        laid[data.draw(st.integers(0, len(laid) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(laid[: len(laid) - data.draw(st.sampled_from([0, 0, 0, 1, 30]))])
    walked = outcome(lambda *asked: imported.walk(*asked[:3], 0, NOW), cut, len(records))
    for check in (scan.check, check_in_runs):
        try:
            position, delta, reach, keyless = in_pieces(check, cut, len(records), piece)
        except (CorruptBatch, IndexError):
            offsets = [] if walked == "corrupt" else [fields[0] for fields in walked[0]]
            assert offsets != list(range(len(records)))
            continue
        found = walked[0]
        assert (position, delta) == (walked[1], len(found))
        assert [fields[0] for fields in found] == list(range(len(found)))
        assert keyless == sum(fields[2] is None for fields in found)
        assert all(abs(fields[1] - NOW) <= reach for fields in found)


@settings(deadline=None, max_examples=examples(50))
@given(records=batches, width=st.integers(0, 300), keyed=st.booleans())
def test_the_search_finds_the_first_record_that_is_different(
    scan: ModuleType, records: list[Fields], width: int, keyed: bool
) -> None:
    laid = plainly(records, NOW)
    expected = [
        (place, fields[1] - NOW, fields[2] is not None)
        for place, fields in enumerate(records)
        if abs(fields[1] - NOW) > width or (keyed and fields[2] is None)
    ]
    found = []
    position = passed = 0
    while passed < len(records):
        more, position, delta, time, has_key = scan.seek(laid, position, len(records) - passed, -width, width, keyed)
        passed += more
        if delta >= 0:
            assert delta == passed - 1
            found.append((delta, time, has_key))
    assert found == expected and position == len(laid)


def test_no_record_has_headers_without_number(scan: ModuleType) -> None:
    """They are the one part of a record that no slice divides."""
    headers: Headers = (("", None),) * 65_536
    record: Fields = (0, NOW, None, None, headers)
    laid = plainly([record, record, record], NOW)
    for check in (scan.check, check_in_runs):
        assert check(laid, 0, 0, 3)[1] == 1, "the others can wait"
        assert in_pieces(check, laid, 3, 3)[:2] == (len(laid), 3)
        with pytest.raises(CorruptBatch, match="65537 headers"):
            check(plainly([(0, NOW, None, None, (*headers, ("", None)))], NOW), 0, 0, 1)


def test_compiled_modules_are_not_older_than_their_sources() -> None:
    """Otherwise everything would run with an old version of the source."""
    for library in SOURCE.parent.glob("*.so"):
        source = library.with_name(library.name.split(".")[0].removesuffix("__mypyc") + ".py")
        assert library.stat().st_mtime >= source.stat().st_mtime, f"{library.name} is old: run make compiled"
