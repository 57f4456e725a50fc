"""Long, correct reports of nodes and groups yield no finding; one planted contradiction is found by its name."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.all_checkers import check_all, of_every_run, standard
from histories.synthetic import Story
from tests.examples import examples

pytestmark = pytest.mark.feature("FI-02", "FI-11")

BROKERS = (1, 2, 3)
BUDGET_SECONDS = 5.0


class Life:
    """A run of a cluster with one partition and one group, in which one promise may be broken at a place of chance."""

    def __init__(self, seed: int, broken: str = "") -> None:
        self.chance = random.Random(seed)
        self.story = Story(budgets={"any": BUDGET_SECONDS})
        self.broken = broken
        self.end = self.value = 0
        self.epoch, self.leader = 0, 1
        self.ends = dict.fromkeys(BROKERS, 0)
        self.marks = dict.fromkeys(BROKERS, 0)
        self.generation, self.committed, self.member = 1, 0, 20
        self.faults = 0

    def play(self, steps: int) -> Story:
        at = self.chance.randrange(steps // 2, steps)
        for step in range(steps):
            for _ in range(self.chance.randrange(3)):
                self.chance.choice((self.write, self.elect, self.restart, self.commit, self.rebalance))()
            self.write()
            self.replicate()
            if step == at and self.broken:
                getattr(self, self.broken.replace("-", "_"))()
            self.look()
        self.story.poll(99, {0: [(offset, offset + 1) for offset in range(self.end)]})
        return self.story

    # ---- what happens

    def write(self) -> None:
        self.story.wait(self.chance.uniform(0.1, 1.0))
        self.value += 1
        self.story.send(self.chance.randrange(10), 0, self.value, self.end, leader_epochs={"0": self.epoch})
        self.end += 1

    def replicate(self) -> None:
        for broker in BROKERS:
            self.ends[broker] = self.end
            # A follower learns it with its next fetch.
            self.marks[broker] = self.chance.randint(self.marks[broker], self.end)
        self.marks[self.leader] = self.end

    def elect(self) -> None:
        self.epoch += 1
        self.leader = self.chance.choice(BROKERS)

    def restart(self) -> None:
        """Its high watermark is what was written down some time ago."""
        broker, self.faults = self.chance.choice(BROKERS), self.faults + 1
        self.story.fault("kill", self.faults, f"broker-{broker}", kind="kill")
        self.story.wait(0.5)
        self.marks[broker] = self.chance.randint(0, self.marks[broker])
        self.story.fault("start", self.faults, f"broker-{broker}", kind="kill")

    def commit(self) -> None:
        self.committed = self.chance.randint(self.committed, self.end)
        self.report_commit(self.committed)

    def report_commit(self, offset: int) -> None:
        note = {"committed": {"0": offset}, "group": "g", "generation": self.generation}
        self.story.poll(self.member, {}, **note)

    def rebalance(self) -> None:
        """The next owner does not know the last commits of the previous one."""
        self.generation += 1
        self.member += 1
        self.committed = self.chance.randint(0, self.committed)

    def look(self) -> None:
        row = (self.epoch, self.leader, list(BROKERS))
        self.story.look(
            [[f"broker-{each}", "t0", 0, self.marks[each], self.ends[each], *row] for each in BROKERS],
            {f"broker-{each}": "running" for each in BROKERS},
        )

    # ---- what must not

    def stale_epoch_accept(self) -> None:
        self.elect()
        self.write()
        self.epoch -= 1
        self.write()
        self.epoch += 1
        self.replicate()

    def high_watermark_regress(self) -> None:
        self.look()
        self.marks[self.leader] -= 1

    def epoch_regress(self) -> None:
        self.elect()
        self.look()
        self.epoch -= 1

    def two_leaders(self) -> None:
        self.look()
        self.leader = self.leader % len(BROKERS) + 1
        self.marks[self.leader] = self.end

    def commit_regress(self) -> None:
        self.committed = self.end
        self.commit()
        self.member += self.chance.randrange(2)
        self.report_commit(self.chance.randrange(self.committed))

    def budget(self) -> None:
        self.restart()
        self.story.wait(BUDGET_SECONDS)
        self.write()
        self.replicate()


def bugs(story: Story) -> set[str]:
    history = story.history()
    verdict = check_all(history, [*standard("queue"), *of_every_run(history.run)])
    return {finding.anomaly for finding in verdict.findings if not finding.legal}


lives = given(st.integers(0, 2**32), st.integers(4, 12))
BROKEN: tuple[str, ...] = (
    "stale-epoch-accept",
    "high-watermark-regress",
    "epoch-regress",
    "two-leaders",
    "commit-regress",
    "budget",
)


@lives
@settings(max_examples=examples(30), deadline=None)
def test_a_life_in_good_order_has_nothing_wrong(seed: int, steps: int) -> None:
    assert bugs(Life(seed).play(steps)) == set()


@pytest.mark.parametrize("name", BROKEN)
@lives
@settings(max_examples=examples(8), deadline=None)
def test_one_broken_promise_is_found(name: str, seed: int, steps: int) -> None:
    assert name in bugs(Life(seed, name).play(steps))
