
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.offset_map import ENTRY_BYTES, OffsetMap


@pytest.mark.feature("CR-06")
@given(st.lists(st.binary(max_size=3), max_size=300), st.sampled_from([0.1, 0.5, 0.9, 1.0]))
def test_it_is_a_dictionary_of_last_offsets(keys: list[bytes], load_factor: float) -> None:
    offsets, expected = OffsetMap(1 << 20, len(keys), load_factor), {}
    for offset, key in enumerate(keys):
        offsets.put(key, offset)
        expected[key] = offset
    assert {key: offsets.get(key) for key in expected} == expected
    assert offsets.get(b"a key that was never put") == -1
    assert offsets.entries == len(expected)
    assert offsets.latest_offset == len(keys) - 1


@pytest.mark.feature("CR-06")
def test_an_entry_takes_24_bytes_and_one_in_ten_stays_free() -> None:
    """1 GB of records of 1 KB each needs 24 MB."""
    offsets = OffsetMap(24 << 20, 1 << 40, 0.9)
    assert offsets.size_bytes == 24 << 20
    small = OffsetMap(ENTRY_BYTES * 100, 1 << 40, 0.9)
    taken = 0
    while not small.is_full:
        small.put(b"%d" % taken, taken)
        taken += 1
    assert taken == 90
    assert all(small.get(b"%d" % number) == number for number in range(90))


@pytest.mark.feature("CR-06")
def test_it_takes_no_more_than_its_keys_need() -> None:
    assert OffsetMap(128 << 20, 1000, 0.9).size_bytes < 1200 * ENTRY_BYTES


def test_a_buffer_without_room_for_one_key_says_which_setting_to_raise() -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(ENTRY_BYTES, 10, 0.9)
