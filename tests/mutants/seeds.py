"""Seeds of the simulation as tests: `make mutants ARGS="--seeds 4"` tries survivors against the first four."""

from __future__ import annotations

import pytest

from running.many_seeds import describe_failure
from running.seed import run_seed
from tests.mutants.trying import MOST_SEEDS


@pytest.mark.parametrize("seed", range(1, MOST_SEEDS + 1))
def test_every_promise_is_kept(seed: int) -> None:
    report = run_seed(seed)
    assert report.passed, describe_failure(report)
