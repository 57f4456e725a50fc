"""Well-known mistakes, planted into running brokers and controllers: the promises must find each within a few seeds.

They are caught by the same checks that every seed runs under; nothing here looks for a particular one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.cluster.simulation.seed import run_seed
from broker.replication.follower import Follower
from broker.replication.replica import Effects, HighWatermarkAdvanced, Replica
from kraft.quorum_state import QuorumStateFile
from protocol.errors import ErrorCode
from storage.producer_tracker import ProducerTracker

SEEDS = range(7, 15)


def acknowledge_before_replication(self: Replica, required_offset: int) -> tuple[bool, ErrorCode | None]:
    return True, self.leader_error()


def forget_votes(self: QuorumStateFile, *_: object) -> None:
    pass


_start = Follower.start


def cut_at_the_high_watermark(self: Follower, leader_epoch: int) -> None:
    """As Kafka did before KIP-101."""
    log: Any = self._log
    log.truncate_to(log.high_watermark)
    _start(self, leader_epoch)


_advance = Replica._advance


def advance_by_one_too_many(self: Replica, now_ms: int) -> Effects:
    effects = _advance(self, now_ms)
    if not effects or self.high_watermark == self.log_end_offset:
        return effects
    self.high_watermark += 1
    return (HighWatermarkAdvanced(self.high_watermark),)


def take_repetitions(self: ProducerTracker, *_: object) -> None:
    return None


@pytest.mark.feature("FI-11", "KR-17", "RE-10")
@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (Replica, "enough_replicas", acknowledge_before_replication),
        (QuorumStateFile, "write", forget_votes),
        (Follower, "start", cut_at_the_high_watermark),
        (Replica, "_advance", advance_by_one_too_many),
        (ProducerTracker, "check", take_repetitions),
    ],
)
def test_a_planted_mistake_is_found(
    owner: type, name: str, mistake: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    assert any(not run_seed(seed).passed for seed in SEEDS)
