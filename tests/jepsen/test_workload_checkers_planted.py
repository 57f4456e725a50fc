"""Long legal histories pass; one thing planted into them is found."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.bank_transfers import BankChecker
from checkers.fences_zombies import FencesChecker
from checkers.metadata_topics import MetadataChecker
from checkers.offsets_registers import RegistersChecker
from checkers.set_elements import ElementsChecker
from operations import Outcome
from tests.examples import examples
from tests.jepsen.attempt_stories import Story, bugs

pytestmark = pytest.mark.feature("FI-02", "FI-11")

FEW = settings(max_examples=examples(8), deadline=None, derandomize=True)
FATES = st.lists(st.sampled_from(["ok", "fail", "info", "info that was done"]), min_size=3, max_size=20)
SEEDS = st.integers(0, 2**32)

Log = list[tuple[int, Any]]


def outcome(fate: str) -> Outcome:
    return "ok" if fate == "ok" else "fail" if fate == "fail" else "info"


def is_there(fate: str) -> bool:
    return fate in ("ok", "info that was done")


# ---- bank


def bank(fates: list[str], seed: int) -> tuple[Story, list[Log]]:
    """Transfers between three partitions, with readers of prefixes; what the committed logs are at the end."""
    chance, story = random.Random(seed), Story()
    logs: list[Log] = [[], [], []]
    next_offset = [0, 0, 0]
    for number, fate in enumerate(fates):
        source, target = chance.sample(range(3), 2)
        amount = chance.randrange(1, 9)
        legs = [["bank", source, [number, source, -amount]], ["bank", target, [number, target, amount]]]
        story.did(chance.randrange(4) + 4 * number, "transfer", {"id": number, "legs": legs}, outcome(fate))
        for _, partition, leg in legs:
            if is_there(fate):
                logs[partition].append((next_offset[partition], leg))
            next_offset[partition] += 2  # itself and its marker
        if chance.random() < 0.3:
            seen = {("bank", index): log[: chance.randrange(len(log) + 1)] for index, log in enumerate(logs)}
            story.read(seen, process=1000 + number)
    return story, logs


def reads_bank(story: Story, logs: list[Log]) -> None:
    story.read({("bank", index): log for index, log in enumerate(logs)}, process=5000, final=True)


@FEW
@given(FATES, SEEDS)
def test_legal_banks_pass(fates: list[str], seed: int) -> None:
    story, logs = bank(fates, seed)
    reads_bank(story, logs)
    verdict = story.judged_by(BankChecker())
    assert verdict.valid == "true", verdict.findings


@FEW
@given(FATES, SEEDS, st.data())
def test_a_leg_that_is_missing_in_a_long_history(fates: list[str], seed: int, data: st.DataObject) -> None:
    story, logs = bank(["ok", *fates], seed)
    partition = data.draw(st.sampled_from([index for index, log in enumerate(logs) if log]))
    del logs[partition][data.draw(st.integers(0, len(logs[partition]) - 1))]
    reads_bank(story, logs)
    assert {"torn-transaction", "skipped-record", "lost-write"} & bugs(story.judged_by(BankChecker()))


@FEW
@given(FATES, SEEDS)
def test_an_aborted_leg_in_a_long_history(fates: list[str], seed: int) -> None:
    story, logs = bank(fates, seed)
    leg = [len(fates), 0, 4]
    asked = {"id": len(fates), "legs": [["bank", 0, leg], ["bank", 1, [len(fates), 1, -4]]]}
    story.did(4000, "transfer", asked, "fail")
    logs[0].append((1_000, leg))
    reads_bank(story, logs)
    assert "G1a" in bugs(story.judged_by(BankChecker()))


# ---- set


def elements(fates: list[str], seed: int) -> tuple[Story, Log]:
    chance, story = random.Random(seed), Story()
    log: Log = []
    for number, fate in enumerate(fates):
        asked = {"element": number, "place": ["set", 0]}
        offset = log[-1][0] + chance.randrange(1, 3) if log else 0
        if is_there(fate):
            log.append((offset, number))
        story.did(number, "add", asked, outcome(fate), {**asked, "offset": offset} if fate == "ok" else None)
        if chance.random() < 0.3:
            first = chance.randrange(len(log) + 1)
            start = log[first][0] if first < len(log) else (log[-1][0] + 1 if log else 0)
            place = ("set", 0)
            story.read_from({place: start}, {place: log[first:]}, process=1000 + number)
    return story, log


@FEW
@given(FATES, SEEDS, st.data())
def test_sets(fates: list[str], seed: int, data: st.DataObject) -> None:
    story, log = elements(["ok", *fates], seed)
    acked = {each.value["element"] for each in story.operations if each.f == "add" and each.type == "ok"}
    gone = data.draw(st.none() | st.sampled_from([record for record in log if record[1] in acked]))
    kept = [record for record in log if record != gone]
    story.read({("set", 0): kept}, process=5000, final=True)
    verdict = story.judged_by(ElementsChecker())
    if gone is None:
        assert verdict.valid == "true", verdict.findings
    else:
        assert {"unseen", "skipped-record", "lost-write"} & bugs(verdict)


# ---- offsets


@FEW
@given(FATES, SEEDS, st.booleans())
def test_registers(fates: list[str], seed: int, lose: bool) -> None:
    """Commits of which nobody knows may be carried out whenever."""
    chance, story = random.Random(seed), Story()
    value, late = 0, []
    newest = 0
    for number, fate in enumerate(["ok", *fates, "ok"], start=1):
        asked = {"group": "g", "offsets": [["offsets", 0, number]]}
        story.did(number, "commit", asked, outcome(fate))
        if is_there(fate):
            value = number
        elif fate == "info":
            late.append(number)
        newest = number if fate == "ok" else newest
        if late and number <= len(fates) and chance.random() < 0.3:
            value = late.pop()
        if chance.random() < 0.3:
            _fetch(story, chance.choice([value, 0]), final=False)
    _fetch(story, chance.randrange(newest) if lose else value, final=True)
    verdict = story.judged_by(RegistersChecker())
    if not lose:
        assert verdict.valid == "true", verdict.findings
        return
    read = story.operations[-1].value["offsets"]
    fate_read = ["ok", *fates, "ok"][read[0][2] - 1] if read else "ok"
    assert (verdict.valid == "false") == (not fate_read.startswith("info"))


def _fetch(story: Story, number: int, *, final: bool) -> None:
    asked = {"group": "g", "final": final}
    story.did(99_999, "fetch", asked, "ok", {**asked, "offsets": [["offsets", 0, number]] if number else []})


# ---- metadata


class Controller:
    """A controller of one topic: requests one after the other, each applied at some moment while it is in progress."""

    def __init__(self, story: Story, chance: random.Random) -> None:
        self.story, self.chance = story, chance
        self.state: list[Any] | None = None
        self.config = 0

    def some(self, processes: range) -> None:
        """Requests at the same time."""
        asked = {process: self._draw() for process in processes}
        for process, (f, value) in asked.items():
            self.story.begins(process, f, value)
        answers = {}
        for process in self.chance.sample(list(processes), len(processes)):
            answers[process] = self._carry_out(*asked[process])
        for process in self.chance.sample(list(processes), len(processes)):
            error = answers[process]
            if self.chance.random() < 0.15:
                self.story.ends(process, "info", error="TimeoutException")
            else:
                self.story.ends(process, "fail" if error else "ok", error=error)

    def _draw(self) -> tuple[str, dict[str, Any]]:
        f = self.chance.choice(["create", "delete", "partitions", "alter"])
        self.config += 1
        more = {
            "create": {"partitions": self.chance.randrange(1, 3), "config": str(self.config)},
            "partitions": {"total": self.chance.randrange(2, 5)},
            "alter": {"config": str(self.config)},
        }
        return f, {"topic": "t", **more.get(f, {})}

    def _carry_out(self, f: str, value: dict[str, Any]) -> str | None:
        if f == "create":
            if self.state is not None:
                return "TopicExistsException"
            self.state = [value["partitions"], value["config"]]
        elif self.state is None:
            return "UnknownTopicOrPartitionException"
        elif f == "delete":
            self.state = None
        elif f == "alter":
            self.state[1] = value["config"]
        elif value["total"] <= self.state[0]:
            return "InvalidPartitionsException"
        else:
            self.state[0] = value["total"]
        return None

    def look(self, state: list[Any] | None) -> None:
        partitions, config = state or (None, None)
        value = {"topic": "t", "partitions": partitions, "config": config}
        self.story.did(9_999, "look", {"topic": "t"}, "ok", value)


@FEW
@given(SEEDS, st.integers(1, 8), st.booleans())
def test_topics(seed: int, rounds: int, wrong: bool) -> None:
    controller = Controller(Story(), random.Random(seed))
    # Proving that no order exists takes long if many outcomes are unknown.
    for number in range(min(rounds, 3) if wrong else rounds):
        controller.some(range(3 * number, 3 * number + 3))
    # No request ever asked for so many partitions.
    controller.look([77, "0"] if wrong else controller.state)
    verdict = controller.story.judged_by(MetadataChecker())
    assert verdict.valid == ("false" if wrong else "true"), verdict.findings
    assert not wrong or "nonlinearizable" in bugs(verdict)
    assert wrong or not verdict.findings


# ---- fences


def fences(fates: list[str], seed: int) -> tuple[Story, Log, Log]:
    """Takers of one id, one after the other, each with a transaction; gives the committed log and the whole one."""
    chance, story = random.Random(seed), Story()
    committed: Log = []
    everything: Log = []
    for number, fate in enumerate(fates):
        story.did(number, "init", {"id": "x"})
        asked = {"id": "x", "transaction": number, "records": [["fences", 0, [number, number, 0]]]}
        story.did(number, "append", asked)
        everything.append((2 * number, [number, number, 0]))
        if chance.random() < 0.8 or is_there(fate):
            story.did(number, "commit", {"id": "x", "transaction": number}, "info" if fate == "fail" else outcome(fate))
        if is_there(fate):
            committed.append(everything[-1])
    return story, committed, everything


@FEW
@given(FATES, SEEDS, st.booleans())
def test_fences(fates: list[str], seed: int, zombie: bool) -> None:
    story, committed, everything = fences(fates, seed)
    if zombie:
        record = [0, 1_000, 0]
        asked = {"id": "x", "transaction": 1_000, "records": [["fences", 0, record]]}
        story.did(0, "append", asked, "fail")
        everything.append((10_000, record))
    story.read({("fences", 0): committed}, process=8_000, final=True)
    story.read({("fences", 0): everything}, process=8_001, final=True, isolation="read_uncommitted")
    verdict = story.judged_by(FencesChecker())
    assert bugs(verdict) == ({"zombie-append"} if zombie else set()), verdict.findings
