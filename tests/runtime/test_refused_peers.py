"""The log has a line in a minute of each peer that is refused again and again."""

from __future__ import annotations

import pytest

from barnabas.runtime.refused_peers import MOST, QUIET_MS, RefusedPeers

pytestmark = pytest.mark.feature("SE-02")


def test_a_peer_that_tries_again_and_again_has_a_line_in_a_minute() -> None:
    refused = RefusedPeers()
    lines = [refused.line_of("broker-3", "expired", now_ms) for now_ms in range(0, 2 * QUIET_MS + 1, 1_000)]
    first, second, third = (line for line in lines if line is not None)
    assert first == "closing the connection from broker-3: expired"
    assert second == third == f"{first}; 59 more since the last line of this kind"


def test_another_peer_and_another_reason_have_lines_of_their_own() -> None:
    refused = RefusedPeers()
    assert refused.line_of("a", "expired", 0) is not None
    assert refused.line_of("b", "expired", 1) is not None
    assert refused.line_of("a", "not trusted", 2) is not None
    assert refused.line_of("a", "expired", 3) is None


def test_peers_without_number_take_no_memory_without_bound() -> None:
    refused = RefusedPeers()
    for number in range(3 * MOST):
        assert refused.line_of(f"host-{number}", "expired", 0) is not None
        refused.line_of("faithful", "expired", 1)
    assert len(refused._seen) == MOST
    assert refused.line_of("faithful", "expired", 2) is None, "who tries again is not forgotten"
