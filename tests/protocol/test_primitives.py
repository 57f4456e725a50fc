"""Uuids as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.primitives import ONE_UUID, ZERO_UUID, uuid_from_string, uuid_to_string


@pytest.mark.feature("PF-01")
@given(st.binary(min_size=16, max_size=16))
def test_uuids_come_back_from_their_text(uuid: bytes) -> None:
    assert uuid_from_string(uuid_to_string(uuid)) == uuid


@pytest.mark.feature("PF-01")
def test_the_text_of_uuids() -> None:
    assert uuid_to_string(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_string(ONE_UUID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_string(bytes([0xFF] * 16)) == "_____________________w"


@pytest.mark.parametrize(
    "text", ["", "AAAA", "A" * 21, "A" * 23, "A" * 24, "é" * 22, "AAAAAAAAAA/AAAAAAAAAA+", "A" * 20 + "=="]
)
def test_other_texts_are_no_uuids(text: str) -> None:
    with pytest.raises(ValueError, match="not a uuid"):
        uuid_from_string(text)
