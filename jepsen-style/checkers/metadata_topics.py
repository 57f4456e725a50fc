"""Checks the operations of administrators on topics: the workload `metadata`.

The guarantees of Kafka, linearizable and not:

- A change that was acknowledged is in the metadata log, decided by its one active controller: the changes of a topic
  have an order that agrees with time, and each was possible where it stands (`create` where there is no topic, `delete`
  where there is one, partitions only more).
- A refusal ("exists", "unknown", "has that many") comes from a controller, and mostly belongs into that order, too.
  Kafka does not promise it: a controller that was deposed refuses by what it knows until it finds out (by its quorum's
  silence, if it is not paused); and a broker that lost the answer to a request which it forwarded sends it again, and
  is refused because of the first one. So first everything has to fit as it is; if it does not, a refusal may refer to a
  moment up to `STALE_NS` before its request, or follow a success. If the history fits then, that is reported as
  `refusal-out-of-order`, and legal.
- Reads are answered by any broker from its own image of the metadata, which may be late without limit: no read in the
  middle of a run belongs into the order. A broker's image never goes back, however (`metadata-went-back`, where
  the node that answered is known), holds nothing that was never requested (`unexpected-read`), and nothing that
  surely failed (`G1a`).
- At the end, when everything is healed and quiet, every broker has everything: reads then belong into the order.

No order: `nonlinearizable`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from checkers.attempts import Attempt, attempts
from checkers.gathering import Gathered
from checkers.linearizability import NEVER, STEPS, Call, Searched, search
from checkers.verdict import Finding, Verdict

_CHANGES = ("create", "delete", "partitions", "alter")
_EXISTS = "TopicExistsException"
_UNKNOWN = "UnknownTopicOrPartitionException"
_TOO_FEW = "InvalidPartitionsException"
_REFUSALS = (_EXISTS, _UNKNOWN, _TOO_FEW)
_REFUSAL_AFTER_SUCCESS = {"create": _EXISTS, "delete": _UNKNOWN, "partitions": _TOO_FEW}
"""Refusals of a request that is sent again after it succeeded."""
_DONE = "done"
UNSEEN = "unseen"
"""Stands for configs that were never observed."""
STALE_NS = 15_000_000_000
"""Time for which a controller may be deposed without knowing it, for example while it is paused."""
_SHOWN = 12
"""Calls that are reported of a history without an order."""


class Topic(NamedTuple):
    """The state of a topic that exists."""

    partitions: int
    config: str


State = Topic | None


class TopicModel:
    """The model of one topic name. With `strict`, refusals are taken literally; otherwise they may hide a success.

    Configs that were never observed are equal: states that differ only in them are one.
    """

    def __init__(self, calls: Iterable[Call], *, strict: bool) -> None:
        self._strict = strict
        self._seen = {call.given["config"] for call in calls if call.f == "look"}

    def initial(self, name: str) -> State:
        return None

    def step(self, state: State, call: Call) -> Iterable[State]:
        if call.f == "look":
            seen = call.given["partitions"], call.given["config"]
            return (state,) if seen == (state or (None, None)) else ()
        refusal = _refusal(state, call)
        if not call.known:
            return (state,) if refusal is not None else (self._changed(state, call), state)
        if call.given == _DONE:
            return () if refusal is not None else (self._changed(state, call),)
        if refusal is None and not self._strict and call.given == _REFUSAL_AFTER_SUCCESS.get(call.f):
            return (self._changed(state, call),)
        return (state,) if refusal == call.given else ()

    def _changed(self, state: State, call: Call) -> State:
        """The state after the change, if it is possible."""
        if call.f == "create":
            return Topic(call.asked["partitions"], self._config(call))
        if call.f == "delete" or state is None:
            return None
        if call.f == "partitions":
            return state._replace(partitions=call.asked["total"])
        return state._replace(config=self._config(call))

    def _config(self, call: Call) -> str:
        config: str = call.asked["config"]
        return config if config in self._seen else UNSEEN


def _refusal(state: State, call: Call) -> str | None:
    """The controller's refusal in this state; None if it carries out the change."""
    if call.f == "create":
        return _EXISTS if state is not None else None
    if state is None:
        return _UNKNOWN
    if call.f == "partitions" and call.asked["total"] <= state.partitions:
        return _TOO_FEW
    return None


class MetadataChecker:
    """`steps`: of the search, for each topic."""

    name = "metadata"

    def __init__(self, steps: int = STEPS) -> None:
        self._steps = steps

    def check(self, history: Any) -> Verdict:
        whole = attempts(history)
        gathered = Gathered()
        unknown: list[str] = []
        taken = 0
        by_topic = _calls(whole)
        times = sorted(
            moment for each in whole for moment in ((each.began_ns, each.began), (each.ended_ns, each.ended))
        )
        for topic, calls in by_topic.items():
            searched = search(calls, TopicModel(calls, strict=True), None, self._steps)
            taken += searched.steps
            if searched.valid == "true":
                continue
            wider = self._search_wider(calls, times)
            taken += wider.steps
            if wider.valid == "false":
                gathered.add(_describe(topic, wider))
            elif wider.valid == "unknown" or searched.valid == "unknown":
                unknown.append(f"{topic}: no order was found in {self._steps} steps")
            else:
                gathered.add(_describe_refusal(topic, searched))
        for finding in _judge_reads(whole):
            gathered.add(finding)
        figures = {
            "topics": len(by_topic),
            "changes": sum(attempt.f in _CHANGES and attempt.type == "ok" for attempt in whole),
            "refused": sum(attempt.f in _CHANGES and attempt.error in _REFUSALS for attempt in whole),
            "unknown": sum(attempt.f in _CHANGES and attempt.type == "info" for attempt in whole),
            "steps": taken,
        }
        verdict = gathered.verdict(figures)
        if not unknown or verdict.valid == "false":
            return verdict
        return replace(verdict, valid="unknown", unknown_because="; ".join(unknown))

    def _search_wider(self, calls: Sequence[Call], times: Sequence[tuple[int, int]]) -> Searched[State]:
        """For an order in which refusals mean less; soon found out where even the changes by themselves have none."""
        free = [replace(call, known=False, completed=NEVER) if call.given in _REFUSALS else call for call in calls]
        searched = search(free, TopicModel(free, strict=False), None, self._steps)
        if searched.valid == "false":
            return searched
        earlier = _earlier(calls, times)
        return search(earlier, TopicModel(earlier, strict=False), None, self._steps)


def _calls(whole: Sequence[Attempt]) -> Mapping[str, list[Call]]:
    """By topic. Refusals are known: that they were given is what is to be explained."""
    found: dict[str, list[Call]] = {}
    for attempt in whole:
        if attempt.f not in _CHANGES and attempt.f != "look":
            continue
        calls = found.setdefault(attempt.asked["topic"], [])
        i = attempt.evidence[-1]
        if attempt.type == "ok":
            given = attempt.value if attempt.f == "look" else _DONE
            calls.append(Call(attempt.f, attempt.asked, given, True, attempt.began, attempt.ended, i))
        elif attempt.f == "look":
            continue
        elif attempt.type == "fail" and attempt.error in _REFUSALS:
            calls.append(Call(attempt.f, attempt.asked, attempt.error, True, attempt.began, attempt.ended, i))
        elif attempt.type == "info":
            calls.append(Call(attempt.f, attempt.asked, None, False, attempt.began, NEVER, i))
    return found


def _earlier(calls: Sequence[Call], times: Sequence[tuple[int, int]]) -> list[Call]:
    """Refusals may be about a moment before they were asked for. `times` are those of the lines, in their order."""
    began_ns = {i: ns for ns, i in times}
    return [
        replace(call, invoked=times[bisect_left(times, (began_ns[call.invoked] - STALE_NS, 0))][1])
        if call.given in _REFUSALS
        else call
        for call in calls
    ]


def _describe(topic: str, searched: Searched[State]) -> Finding:
    last = searched.explained[-3:]
    stuck = "; ".join(f"{call.f} {call.asked} gave {call.given}" for call in searched.stuck[:4])
    states = " or ".join(str(state) for state in searched.states[:3])
    text = (
        f"no order of the changes of {topic} explains what came of them: {len(searched.explained)} can be in one, "
        f"then it is {states}, and none of these can come next: {stuck}"
    )
    evidence = sorted({call.i for call in (*last, *searched.stuck[:_SHOWN])})
    return Finding("nonlinearizable", topic, evidence, text)


def _describe_refusal(topic: str, searched: Searched[State]) -> Finding:
    stuck = searched.stuck[:_SHOWN]
    text = (
        f"the changes of {topic} have an order, but not together with all that was refused: "
        f"{'; '.join(f'{call.f} {call.asked} gave {call.given}' for call in stuck[:4])}"
    )
    return Finding("refusal-out-of-order", topic, [call.i for call in stuck], text, legal=True)


# Reads


def _judge_reads(whole: Sequence[Attempt]) -> list[Finding]:
    writes = {attempt.asked["config"]: attempt for attempt in whole if attempt.f in ("create", "alter")}
    findings: list[Finding] = []
    newest: dict[tuple[str, str], tuple[Attempt, Attempt]] = {}
    for read in sorted((attempt for attempt in whole if _is_read(attempt)), key=lambda attempt: attempt.ended):
        topic, config = read.asked["topic"], read.value["config"]
        write = writes.get(config)
        if write is None or write.asked["topic"] != topic or write.began > read.ended:
            text = f"{topic} was reported with {config}, which was never requested"
            findings.append(Finding("unexpected-read", topic, read.evidence, text))
            continue
        if write.type == "fail" and write.error not in _REFUSALS:
            text = f"{topic} was reported with {config}, which had failed"
            findings.append(Finding("G1a", topic, sorted({*write.evidence, *read.evidence}), text))
            continue
        if read.node is None:
            continue
        before = newest.get((read.node, topic))
        if before is not None and _over(write) < before[0].began and before[1].ended < read.began:
            later = before[0].asked["config"]
            text = f"{read.node} reported {config} for {topic}, and before that {later}, a later one"
            evidence = sorted({*before[1].evidence, *read.evidence})
            findings.append(Finding("metadata-went-back", f"{read.node} {topic}", evidence, text))
        elif before is None or _over(before[0]) < write.began:
            newest[read.node, topic] = write, read
    return findings


def _over(write: Attempt) -> int:
    """Time from which it can no longer take place; one with an unknown outcome may still be in flight."""
    return NEVER if write.type == "info" else write.ended


def _is_read(attempt: Attempt) -> bool:
    return attempt.f in ("describe", "look") and attempt.type == "ok" and attempt.value["config"] is not None
