"""Asks all nodes of a cluster over HTTP for their decisions about a subject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import quote

import trio

from barnabas.cluster.node_page import NoAnswer, NodePage
from barnabas.runtime.world import Network
from barnabas.why.node_addresses import NodeAddress
from barnabas.why.story import Json, meant, read_decisions, read_subjects, subjects_of

MAX_PAGES = 100
"""Limit of pages per node and subject, against a node whose answers never end."""


@dataclass(slots=True)
class Answers:
    """Answers of all nodes."""

    subjects: list[str] = field(default_factory=list)
    """All subjects with decisions on any node."""
    wanted: list[str] = field(default_factory=list)
    """Subjects that match the question."""
    decisions: list[Json] = field(default_factory=list)
    silent: dict[str, str] = field(default_factory=dict)
    """Nodes that did not answer, with the reason."""


async def ask_all(
    network: Network, addresses: Sequence[NodeAddress], text: str, timeout_seconds: float, logged: Sequence[Json] = ()
) -> Answers:
    """Decisions about subjects that match `text`. The timeout is per node; `logged` are decisions from log files."""
    answers = Answers()
    pages = {address.name: NodePage(network, address.host, address.port, address.token) for address in addresses}
    known: dict[str, list[str]] = {}
    try:
        async with trio.open_nursery() as nursery:
            for name, page in pages.items():
                nursery.start_soon(_subjects, name, page, known, answers, timeout_seconds)
        answers.subjects = sorted({it for each in (*known.values(), *map(subjects_of, logged)) for it in each})
        answers.wanted = meant(text, answers.subjects)
        answers.decisions += [it for it in logged if any(subject in answers.wanted for subject in subjects_of(it))]
        async with trio.open_nursery() as nursery:
            for name, subjects in known.items():
                wanted = [it for it in answers.wanted if it in subjects]
                if wanted:
                    queries = [f"subject={quote(subject, safe='')}" for subject in wanted]
                    nursery.start_soon(_decisions, name, pages[name], queries, answers, timeout_seconds)
    finally:
        for page in pages.values():
            page.close()
    answers.silent = dict(sorted(answers.silent.items()))
    return answers


async def ask_shares(
    network: Network, addresses: Sequence[NodeAddress], query: Mapping[str, str], timeout_seconds: float
) -> list[object]:
    """Answers of `/shares` for a query, of the nodes that have the page. The timeout is per node."""
    return await _ask_page(network, addresses, "/shares", query, timeout_seconds)


async def ask_states(
    network: Network, addresses: Sequence[NodeAddress], topic: str, timeout_seconds: float
) -> list[object]:
    """Answers of `/state` with the partitions of a topic, of the nodes that give one. The timeout is per node."""
    return await _ask_page(network, addresses, "/state", {"topic": topic}, timeout_seconds)


async def _ask_page(
    network: Network, addresses: Sequence[NodeAddress], path: str, query: Mapping[str, str], timeout_seconds: float
) -> list[object]:
    found: list[object] = []
    target = f"{path}?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())

    async def ask_one(address: NodeAddress) -> None:
        page = NodePage(network, address.host, address.port, address.token)
        with suppress(NoAnswer), trio.move_on_after(timeout_seconds):
            found.append(await page.get(target))
        page.close()

    async with trio.open_nursery() as nursery:
        for address in addresses:
            nursery.start_soon(ask_one, address)
    return found


async def ask_denials(network: Network, addresses: Sequence[NodeAddress], timeout_seconds: float) -> list[Json]:
    """The denials that the nodes have noted, the newest first. The timeout is per node."""
    answers = Answers()
    async with trio.open_nursery() as nursery:
        for address in addresses:
            nursery.start_soon(_access_decisions, network, address, answers, timeout_seconds)
    denials = [it for it in answers.decisions if it["kind"] == "access" and "times" in it["facts"]]
    return sorted(denials, key=lambda it: int(it["at_ms"]), reverse=True)


async def _access_decisions(
    network: Network, address: NodeAddress, answers: Answers, timeout_seconds: float
) -> None:
    page = NodePage(network, address.host, address.port, address.token)
    try:
        await _decisions(address.name, page, ["kind=access"], answers, timeout_seconds)
    finally:
        page.close()


async def _subjects(
    name: str, page: NodePage, known: dict[str, list[str]], answers: Answers, timeout_seconds: float
) -> None:
    with _failures_recorded(name, answers, timeout_seconds):
        known[name] = read_subjects(await page.get("/subjects"))


async def _decisions(
    name: str, page: NodePage, queries: Sequence[str], answers: Answers, timeout_seconds: float
) -> None:
    found: dict[int, Json] = {}
    with _failures_recorded(name, answers, timeout_seconds):
        for query in queries:
            after = 0
            for _ in range(MAX_PAGES):
                answer = await page.get(f"/decisions?after={after}&{query}")
                decisions = read_decisions(answer)
                if not decisions:
                    break
                found |= {it["number"]: it for it in decisions}
                after = max(it["number"] for it in decisions)
    answers.decisions += found.values()


@contextmanager
def _failures_recorded(name: str, answers: Answers, timeout_seconds: float) -> Iterator[None]:
    """Limits the time of a block of requests to one node, and records its failure in `answers.silent`."""
    try:
        with trio.fail_after(timeout_seconds):
            yield
    except NoAnswer as error:
        answers.silent[name] = str(error)
    except trio.TooSlowError:
        answers.silent[name] = f"no answer within {timeout_seconds:g} s"
