"""Asks every node of a cluster for what it decided. Nodes that do not answer are named, and the others are heard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import quote

import trio

from barnabas.cluster.node_page import NoAnswer, NodePage
from barnabas.why.story import Json, meant, read_decisions, read_subjects, subjects_of
from runtime.world import Network

MAX_PAGES = 100
"""Of one node for one subject: a node that always has more is not believed."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node tells of itself."""

    name: str
    host: str
    port: int


@dataclass(slots=True)
class Answers:
    """What was heard."""

    subjects: list[str] = field(default_factory=list)
    """Everything that any node knows something of."""
    wanted: list[str] = field(default_factory=list)
    """What the question was understood to mean."""
    decisions: list[Json] = field(default_factory=list)
    silent: dict[str, str] = field(default_factory=dict)
    """Nodes that did not answer, and why."""


async def ask_all(
    network: Network, places: Sequence[Place], text: str, timeout_seconds: float, written: Sequence[Json] = ()
) -> Answers:
    """What is known of what is meant by `text`; each node may take `timeout_seconds`. `written` is what logs tell."""
    answers = Answers()
    pages = {place.name: NodePage(network, place.host, place.port) for place in places}
    known: dict[str, list[str]] = {}
    try:
        async with trio.open_nursery() as nursery:
            for name, page in pages.items():
                nursery.start_soon(_subjects, name, page, known, answers, timeout_seconds)
        answers.subjects = sorted({it for each in (*known.values(), *map(subjects_of, written)) for it in each})
        answers.wanted = meant(text, answers.subjects)
        answers.decisions += [it for it in written if any(subject in answers.wanted for subject in subjects_of(it))]
        async with trio.open_nursery() as nursery:
            for name, subjects in known.items():
                wanted = [it for it in answers.wanted if it in subjects]
                if wanted:
                    nursery.start_soon(_decisions, name, pages[name], wanted, answers, timeout_seconds)
    finally:
        for page in pages.values():
            page.close()
    answers.silent = dict(sorted(answers.silent.items()))
    return answers


async def _subjects(
    name: str, page: NodePage, known: dict[str, list[str]], answers: Answers, timeout_seconds: float
) -> None:
    with _silence_is_noted(name, answers, timeout_seconds):
        known[name] = read_subjects(await page.get("/subjects"))


async def _decisions(
    name: str, page: NodePage, wanted: Sequence[str], answers: Answers, timeout_seconds: float
) -> None:
    found: dict[int, Json] = {}
    with _silence_is_noted(name, answers, timeout_seconds):
        for subject in wanted:
            after = 0
            for _ in range(MAX_PAGES):
                told = await page.get(f"/decisions?after={after}&subject={quote(subject, safe='')}")
                decisions = read_decisions(told)
                if not decisions:
                    break
                found |= {it["number"]: it for it in decisions}
                after = max(it["number"] for it in decisions)
    answers.decisions += found.values()


@contextmanager
def _silence_is_noted(name: str, answers: Answers, timeout_seconds: float) -> Iterator[None]:
    """For questions to one node, which may take so long together."""
    try:
        with trio.fail_after(timeout_seconds):
            yield
    except NoAnswer as error:
        answers.silent[name] = str(error)
    except trio.TooSlowError:
        answers.silent[name] = f"no answer within {timeout_seconds:g} s"
