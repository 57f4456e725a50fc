"""Checks what users were allowed: the workload `rights`.

The promises of Kafka:

- A change that was acknowledged is in the metadata log. A broker decides by what it has applied of that log, which may
  be late without limit, and never goes back, also when the broker starts again. If a broker showed the ACLs of a
  family, or the password of a user, everything that it decides about them later is by that state or a later one.
- The active controller decides what is forwarded to it. It may be deposed and not know it: it decides by no state that
  ended `STALE_NS` before the request.
- At the end, when everything is healed and quiet, every broker has everything.

So each decision has a range of possible states: from what its broker must have applied to what was requested before the
decision came. A decision that none of these states gives is a finding: `forbidden-success`, `false-denial`,
`refused-login`, `login-with-old-password`. So is what a broker shows if it is none of these states:
`rights-went-back` for an earlier one, else `unexpected-rights`. A change with an unknown outcome is the last one of its
family or user, and leaves both states possible from then on. So is a removal that was refused because there is no such
user: a broker that loses the answer to a request which it forwarded sends it again.

Requests of users with a fixed password are judged once they are logged in.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkers.attempts import NEVER, Attempt, attempts
from checkers.gathering import Gathered
from checkers.metadata_topics import STALE_NS
from checkers.verdict import Finding, Verdict
from rights import Acl, Tried, allows

DENIED = ("TopicAuthorizationException", "GroupAuthorizationException", "TransactionalIdAuthorizationException")
REFUSED = "SaslAuthenticationException"
_CHANGES_OF_ACLS = ("grant", "revoke")
_CHANGES_OF_USERS = ("password", "remove")
_SUBJECT = {**dict.fromkeys(("grant", "revoke", "acls", "try"), "family"), "password": "user", "remove": "user"}
_SUBJECT |= {"users": "user", "login": "user"}
"""The field that says which family or user an operation is about."""

State = Hashable
Observed = tuple[str, str]
"""(broker, family or user)."""


@dataclass(slots=True)
class _Version:
    """A state and the change that led to it."""

    state: State
    began: int = -1
    ended: int = -1
    ended_ns: int = -1
    evidence: Sequence[int] = ()


@dataclass(slots=True)
class _Lineage:
    """All states of one family or user, in their order. Only the last may never have been."""

    versions: list[_Version]

    def change(self, attempt: Attempt, state: State) -> None:
        """Raises ValueError if the one before has an unknown outcome, or is under way."""
        if self.versions[-1].ended > attempt.began:
            raise ValueError(f"operation {attempt.began} changes what a change of unknown outcome is about")
        ended, ended_ns = (NEVER, NEVER) if attempt.type == "info" else (attempt.ended, attempt.ended_ns)
        self.versions.append(_Version(state, attempt.began, ended, ended_ns, attempt.evidence))

    def newest(self, before: int) -> int:
        """The last version that was requested before."""
        return max(i for i, version in enumerate(self.versions) if version.began < before)

    def committed(self, before: int) -> int:
        """The last version that was acknowledged before."""
        return max(i for i, version in enumerate(self.versions) if version.ended < before)

    def committed_ns(self, before_ns: int) -> int:
        return max(i for i, version in enumerate(self.versions) if version.ended_ns < before_ns)


@dataclass(slots=True)
class _Applied:
    """Versions of a lineage that a broker must have applied, from which operation on."""

    ended: list[int] = field(default_factory=list)
    version: list[int] = field(default_factory=list)

    def note(self, ended: int, version: int) -> None:
        self.ended.append(ended)
        self.version.append(max(version, self.version[-1] if self.version else 0))

    def at(self, began: int) -> int:
        i = bisect_left(self.ended, began)
        return self.version[i - 1] if i else 0


class RightsChecker:
    """`allow_everyone`: `allow.everyone.if.no.acl.found` of the brokers."""

    name = "rights"

    def __init__(self, *, allow_everyone: bool) -> None:
        self._allow_everyone = allow_everyone

    def check(self, history: Any) -> Verdict:
        whole = attempts(history)
        judging = _Judging(_lineages(whole), self._allow_everyone)
        for attempt in sorted(whole, key=lambda each: each.ended):
            if attempt.f in ("acls", "users") and attempt.type == "ok":
                judging.look_at_view(attempt)
        for attempt in whole:
            if attempt.f == "try":
                judging.look_at_attempt(attempt)
            elif attempt.f == "login":
                judging.look_at_login(attempt)
        changes = [attempt for attempt in whole if attempt.f in (*_CHANGES_OF_ACLS, *_CHANGES_OF_USERS)]
        figures = {
            "changes": sum(attempt.type == "ok" for attempt in changes),
            "unknown": sum(attempt.type == "info" for attempt in changes),
            **judging.counts,
        }
        return judging.gathered.verdict(figures)


def _lineages(whole: Sequence[Attempt]) -> Mapping[str, _Lineage]:
    """By family and user."""
    found: dict[str, _Lineage] = {}
    for attempt in whole:
        if attempt.f not in _SUBJECT:
            continue
        subject = attempt.asked[_SUBJECT[attempt.f]]
        is_user = _SUBJECT[attempt.f] == "user"
        lineage = found.setdefault(subject, _Lineage([_Version(None if is_user else frozenset())]))
        if attempt.type == "fail":
            continue
        before = lineage.versions[-1].state
        if attempt.f in _CHANGES_OF_ACLS:
            assert isinstance(before, frozenset)
            acl = Acl(*attempt.asked["acl"])
            lineage.change(attempt, before | {acl} if attempt.f == "grant" else before - {acl})
        elif attempt.f in _CHANGES_OF_USERS:
            lineage.change(attempt, attempt.asked.get("version"))
    return found


class _Judging:
    """Judges views, then decisions."""

    def __init__(self, lineages: Mapping[str, _Lineage], allow_everyone: bool) -> None:
        self.gathered = Gathered()
        self.counts = {"views": 0, "allowed": 0, "denied": 0, "logged in": 0, "refused": 0, "only one decision": 0}
        self._lineages = lineages
        self._allow_everyone = allow_everyone
        self._applied: dict[Observed, _Applied] = {}

    def look_at_view(self, attempt: Attempt) -> None:
        """In the order of their ends."""
        lineage, (oldest, newest) = self._possible(attempt)
        seen: State = attempt.value["version"] if attempt.f == "users" else frozenset(map(_acl, attempt.value["acls"]))
        self.counts["views"] += 1
        fitting = [i for i in range(oldest, newest + 1) if lineage.versions[i].state == seen]
        if fitting:
            self._applied.setdefault(_observed(attempt), _Applied()).note(attempt.ended, fitting[0])
            return
        earlier = [i for i in range(oldest) if lineage.versions[i].state == seen]
        anomaly = "rights-went-back" if earlier else "unexpected-rights"
        since = lineage.versions[oldest]
        text = f"{attempt.node} showed {_shown(seen)}, and had to have {_shown(since.state)} or something later"
        self._add(anomaly, attempt, since, text)

    def look_at_attempt(self, attempt: Attempt) -> None:
        is_denied = attempt.error in DENIED
        if attempt.type != "ok" and not is_denied:
            return
        tried, who = Tried(*attempt.asked["tried"]), attempt.asked["who"]

        def decide(state: Any) -> bool:
            return allows(state, who, tried, allow_everyone=self._allow_everyone)

        self.counts["denied" if is_denied else "allowed"] += 1
        text = f"{who} was {'denied' if is_denied else 'allowed'} {tried.operation} on {tried.resource} {tried.name}"
        self._judge(attempt, decide, not is_denied, ("false-denial" if is_denied else "forbidden-success", text))

    def look_at_login(self, attempt: Attempt) -> None:
        is_refused = attempt.error == REFUSED
        if attempt.type != "ok" and not is_refused:
            return
        user, version = attempt.asked["user"], attempt.asked["version"]
        self.counts["refused" if is_refused else "logged in"] += 1
        text = f"{user} {'could not log in' if is_refused else 'logged in'} with its password {version}"
        finding = ("refused-login" if is_refused else "login-with-old-password", text)
        self._judge(attempt, lambda state: state == version, not is_refused, finding)

    def _judge(
        self, attempt: Attempt, decide: Callable[[Any], bool], decided: bool, finding: tuple[str, str]
    ) -> None:
        lineage, (oldest, newest) = self._possible(attempt)
        possible = {decide(version.state) for version in lineage.versions[oldest : newest + 1]}
        self.counts["only one decision"] += len(possible) == 1
        if decided not in possible:
            anomaly, text = finding
            where = attempt.node if not attempt.asked.get("forwarded") else f"the controller, asked by {attempt.node}"
            since = lineage.versions[oldest]
            self._add(anomaly, attempt, since, f"{text} by {where}, in no state since {_shown(since.state)}")

    def _possible(self, attempt: Attempt) -> tuple[_Lineage, tuple[int, int]]:
        """The first and last version by which the answer may have been given."""
        lineage = self._lineages[attempt.asked[_SUBJECT[attempt.f]]]
        if attempt.asked.get("settled"):
            oldest = lineage.committed(attempt.began)
        elif attempt.asked.get("forwarded"):
            oldest = lineage.committed_ns(attempt.began_ns - STALE_NS) if attempt.began_ns > STALE_NS else 0
        else:
            applied = self._applied.get(_observed(attempt))
            oldest = 0 if applied is None else applied.at(attempt.began)
        return lineage, (oldest, lineage.newest(attempt.ended))

    def _add(self, anomaly: str, attempt: Attempt, since: _Version, text: str) -> None:
        evidence = sorted({*since.evidence, *attempt.evidence})
        where = f"{attempt.node} {attempt.asked[_SUBJECT[attempt.f]]}"
        self.gathered.add(Finding(anomaly, where, evidence, text))


def _observed(attempt: Attempt) -> Observed:
    return attempt.node or "", attempt.asked[_SUBJECT[attempt.f]]


def _acl(listed: Sequence[str]) -> Acl:
    return Acl(*listed)


def _shown(state: Any) -> str:
    if not isinstance(state, frozenset):
        return "no password" if state is None else f"password {state}"
    return "; ".join(" ".join(acl) for acl in sorted(state)) or "no ACLs"
