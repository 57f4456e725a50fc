"""Well-known mistakes, planted into running brokers and controllers: the promises must find each within a few seeds.

They are caught by the same checks that every seed runs under; nothing here looks for a particular one. The plants are
those of `jepsen-style/plants`, which the checkers there must find as well.
"""

from __future__ import annotations

import pytest

from tests.simulation.plans import is_found, usual

SEEDS = range(4, 16)


@pytest.mark.feature("FI-11", "KR-17", "RE-10")
@pytest.mark.parametrize(
    "name",
    [
        "ack-before-replication",
        "forgotten-vote",
        "truncation-by-high-watermark",
        "high-watermark-off-by-one",
        "no-dedup",
        "reads-past-high-watermark",
        "offset-zero-in-errors",
        pytest.param("deposed-leader-serves", marks=pytest.mark.slow),
    ],
)
def test_a_planted_mistake_is_found(name: str) -> None:
    assert is_found(name, (usual(seed, "set") for seed in SEEDS))
