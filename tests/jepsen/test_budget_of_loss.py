"""Every checker that can say that something is lost asks whether the cluster had to keep it: a kill takes nothing, a
power cut takes what was not synced, and only where all who were in sync lost something may a record be gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkers.bank_transfers import BankChecker
from checkers.budget_of_loss import NEAR_NS
from checkers.eos_once import OnceChecker
from checkers.fences_zombies import FencesChecker
from checkers.group_owners import GroupChecker
from checkers.offsets_registers import RegistersChecker
from checkers.order import SendOrder
from checkers.set_elements import ElementsChecker
from checkers.verdict import Checker
from histories.synthetic import Story as KeyStory
from operations import Place
from running.judging import judge
from tests.jepsen.attempt_stories import Story, bugs, legal

pytestmark = pytest.mark.feature("FI-02", "FI-11", "RE-11")

Scene = Callable[[Story], None]


def bank_before(story: Story) -> None:
    legs = [["bank", 0, [1, 0, -5]], ["bank", 1, [1, 1, 5]]]
    story.did(1, "transfer", {"id": 1, "legs": legs})


def bank_after(story: Story) -> None:
    story.read({("bank", 0): [], ("bank", 1): [(0, [1, 1, 5])]}, final=True)


def add(story: Story, element: int, offset: int) -> None:
    asked = {"element": element, "place": ["set", 0]}
    story.did(element, "add", asked, "ok", {**asked, "offset": offset})


def set_before(story: Story) -> None:
    add(story, 1, 0)
    add(story, 2, 1)
    story.read({("set", 0): [(0, 1)]})


def set_after(story: Story) -> None:
    # Another one has the place of the first, and the second was never seen.
    add(story, 3, 0)
    story.read({("set", 0): [(0, 3)]}, process=91, final=True)


def feed(story: Story) -> None:
    story.did(50, "feed", {"feed": 1, "records": [["in", 0, 1]]})


def transform(story: Story) -> None:
    value = {"attempt": 1, "parts": [["in", 0, 0, 1, [[0, 1]]]], "records": [["out", 0, [1, 1]]]}
    story.did(51, "transform", {"attempt": 1}, "ok", value)


def eos_before(story: Story) -> None:
    feed(story)
    transform(story)


def eos_after(story: Story) -> None:
    story.did(95, "committed", {"final": True}, "ok", {"offsets": [["in", 0, 1]]})
    story.read({("in", 0): [(0, 1)], ("out", 0): []}, final=True)


def eos_group_after(story: Story) -> None:
    story.did(95, "committed", {"final": True}, "ok", {"offsets": [["in", 0, 0]]})
    story.read({("in", 0): [(0, 1)], ("out", 0): [(0, [1, 1])]}, final=True)


def group_before(story: Story) -> None:
    asked = {"value": 0, "place": ["group", 0]}
    story.did(50, "feed", asked, "ok", {**asked, "offset": 0})
    given = {"kind": "assigned", "places": [["group", 0]], "generation": 1, "t_ns": 0}
    story.begins(1, "work", {"member": "one"})
    value = {"parts": [["group", 0, 0, 1, [[0, 0]]]], "committed": [["group", 0, 1]]}
    story.ends(1, "ok", value, note={"rebalances": [given]})


def group_after(story: Story) -> None:
    story.did(95, "committed", {"final": True}, "ok", {"offsets": [["group", 0, 0]]})
    story.read({("group", 0): [(0, 0)]}, final=True)


def offsets_before(story: Story) -> None:
    story.did(1, "commit", {"group": "g", "offsets": [["offsets", 0, 1]]})


def offsets_after(story: Story) -> None:
    asked = {"group": "g", "final": True}
    story.did(2, "fetch", asked, "ok", {**asked, "offsets": []})


def fences_before(story: Story) -> None:
    story.did(1, "init", {"id": "x"})
    story.did(1, "append", {"id": "x", "transaction": 1, "records": [["fences", 0, [1, 1, 0]]]})
    story.did(1, "commit", {"id": "x", "transaction": 1})


def fences_after(story: Story) -> None:
    story.read({("fences", 0): []}, process=90, final=True)
    story.read({("fences", 0): []}, process=91, final=True, isolation="read_uncommitted")


OF_A_PARTITION: dict[str, tuple[Checker, Scene, Scene, Place, set[str]]] = {
    "bank": (BankChecker(), bank_before, bank_after, Place("bank", 0), {"torn-transaction", "total-changed"}),
    "set": (
        *(ElementsChecker(), set_before, set_after, Place("set", 0)),
        {"inconsistent-offsets", "unseen"},
    ),
    "txn-eos": (OnceChecker(), eos_before, eos_after, Place("out", 0), {"lost-output", "lost-write"}),
    "fences": (FencesChecker(), fences_before, fences_after, Place("fences", 0), {"lost-write"}),
}
OF_A_GROUP: dict[str, tuple[Checker, Scene, Scene, set[str]]] = {
    "txn-eos": (OnceChecker(), eos_before, eos_group_after, {"lost-offsets"}),
    "group": (GroupChecker(), group_before, group_after, {"lost-commit"}),
    "offsets": (RegistersChecker(), offsets_before, offsets_after, {"lost-commit"}),
}


def loses(before: Scene, after: Scene, *, f: str = "power", place: Place, isr: tuple[int, ...] = (1,)) -> Story:
    story = Story()
    story.look(place, isr)
    before(story)
    story.fault(f, "broker-1")
    story.passes(2 * NEAR_NS / 1e9)
    story.look(place, isr)
    after(story)
    return story


@pytest.mark.parametrize("name", OF_A_PARTITION)
def test_losses_of_the_last_in_sync_replica_are_legal(name: str) -> None:
    checker, before, after, place, anomalies = OF_A_PARTITION[name]
    verdict = loses(before, after, place=place).judged_by(checker)
    assert legal(verdict) >= anomalies and not bugs(verdict), verdict.findings
    assert "beyond the budget" in verdict.findings[0].description


@pytest.mark.parametrize("how", ["a kill", "another in sync", "another partition"])
@pytest.mark.parametrize("name", OF_A_PARTITION)
def test_other_losses_are_bugs(name: str, how: str) -> None:
    checker, before, after, place, anomalies = OF_A_PARTITION[name]
    more: dict[str, dict[str, Any]] = {
        "a kill": {"f": "kill", "place": place},
        "another in sync": {"isr": (1, 2), "place": place},
        "another partition": {"place": Place("nobody-writes-here", 7)},
    }
    found = bugs(loses(before, after, **more[how]).judged_by(checker))
    if how == "another partition":
        # An anomaly over several partitions is excused if any of them lost records.
        anomalies = anomalies - {"total-changed", "lost-output"}
    assert found >= anomalies


@pytest.mark.parametrize("name", OF_A_PARTITION)
def test_records_acknowledged_after_the_loss_must_survive(name: str) -> None:
    checker, before, after, place, _ = OF_A_PARTITION[name]

    def nothing(_story: Story) -> None:
        pass

    def both(story: Story) -> None:
        before(story)
        after(story)

    assert bugs(loses(nothing, both, place=place).judged_by(checker)) - {"total-changed"}


@pytest.mark.parametrize("name", OF_A_GROUP)
def test_losses_of_a_coordinator_with_its_partition(name: str) -> None:
    checker, before, after, anomalies = OF_A_GROUP[name]
    story = loses(before, after, place=Place("nobody-writes-here", 7), isr=(1, 2))
    assert bugs(story.judged_by(checker)) == anomalies
    # Nobody looks at internal topics; nothing there is lost unless the nemesis was let.
    story.run["beyond_budget"] = True
    verdict = story.judged_by(checker)
    assert legal(verdict) == anomalies and not bugs(verdict)


def test_the_order_of_sends_to_a_log_that_was_cut() -> None:
    def sends(isr: list[int]) -> set[tuple[str, bool]]:
        story = KeyStory()
        story.look([["broker-1", "t0", 0, 9, 9, 3, 1, isr]])
        story.send(1, 0, 1, 7)
        story.fault("power", 1, "broker-1", kind="power")
        story.wait(2 * NEAR_NS / 1e9)
        story.look([["broker-1", "t0", 0, 0, 0, 4, 1, isr]])
        story.send(1, 0, 2, 3)
        story.send(2, 0, 3, 2)
        verdict = SendOrder().check(story.history())
        return {(finding.anomaly, finding.legal) for finding in verdict.findings}

    after_loss = {("nonmonotonic-send", True), ("reordered-send", True), ("reordered-send", False)}
    # The third stands before the second, and both came after it.
    assert sends([1]) == after_loss
    assert sends([1, 2]) == {("nonmonotonic-send", False), ("reordered-send", False)}


def test_broken_promises_of_a_simulation_beyond_the_budget(tmp_path: Path) -> None:
    def judged(*broken: str, beyond_budget: bool) -> tuple[str, int]:
        story = KeyStory(workload="set", beyond_budget=beyond_budget, options={})
        (tmp_path / "promises.json").write_text(json.dumps({"broken": broken, "kept": 1}))
        verdict = judge(tmp_path, story.history())
        found = [finding for finding in verdict.findings if finding.anomaly == "broken-promise"]
        return verdict.valid, sum(finding.legal for finding in found)

    lost = "at 9.4 s: set-1: 1 is in ISR or ELR and ends at 0, below the committed 8, when the metadata changed"
    other = "at 9.4 s: set-1: another leader in the same epoch"
    assert judged(lost, beyond_budget=False) == ("false", 0)
    assert judged(lost, beyond_budget=True) == ("unknown", 1), "nothing was added or read here"
    assert judged(lost, other, beyond_budget=True) == ("false", 1)
