"""Histories of rights: decisions that a broker may make by ACLs and passwords that it learns late, and others."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.rights import RightsChecker
from checkers.verdict import Verdict
from rights import ANYBODY, Acl, Tried, allows
from tests.examples import examples
from tests.jepsen.attempt_stories import Story, bugs

pytestmark = pytest.mark.feature("FI-02", "FI-11", "SE-08")

FAMILY, TOPIC = "f-", "f-a"
READS = Acl("TOPIC", "LITERAL", TOPIC, "alice", "READ", "ALLOW")
NEVER_READS = Acl("TOPIC", "PREFIXED", FAMILY, ANYBODY, "ALL", "DENY")
FETCH = Tried("fetch", "TOPIC", TOPIC, "READ")
DENIED = "TopicAuthorizationException"


class Tale:
    """A history of one family of resources and one user, bob, who comes and goes."""

    def __init__(self) -> None:
        self.story = Story()

    def changes(self, f: str, acl: Acl, type_: Any = "ok") -> None:
        self.story.did(0, f, {"family": FAMILY, "acl": list(acl)}, type_)

    def shows(self, broker: str, *acls: Acl, **more: Any) -> None:
        asked = {"family": FAMILY, "turn": 0, **more}
        self.story.did(1, "acls", asked, "ok", {**asked, "acls": [list(acl) for acl in acls]}, node=broker)

    def tries(self, broker: str, *, allowed: bool, **more: Any) -> None:
        asked = {"family": FAMILY, "who": "alice", "tried": list(FETCH), "turn": 0, **more}
        error = None if allowed else DENIED
        self.story.did(2, "try", asked, "ok" if allowed else "fail", node=broker, error=error)

    def knows(self, broker: str, version: int | None, **more: Any) -> None:
        asked = {"user": "bob", "turn": 0, **more}
        self.story.did(1, "users", asked, "ok", {**asked, "version": version}, node=broker)

    def sets(self, version: int | None, type_: Any = "ok") -> None:
        change = {"user": "bob"} if version is None else {"user": "bob", "version": version}
        self.story.did(0, "remove" if version is None else "password", change, type_)

    def logs_in(self, broker: str, version: int, *, allowed: bool, error: str = "SaslAuthenticationException") -> None:
        asked = {"user": "bob", "version": version, "turn": 0}
        given = None if allowed else error
        self.story.did(2, "login", asked, "ok" if allowed else "fail", node=broker, error=given)

    def verdict(self) -> Verdict:
        return self.story.judged_by(RightsChecker(allow_everyone=False))


@pytest.fixture
def tale() -> Tale:
    return Tale()


# ---- ACLs


def test_a_broker_may_be_late_until_it_has_shown_a_change(tale: Tale) -> None:
    tale.changes("grant", READS)
    tale.tries("one", allowed=False)
    tale.tries("two", allowed=True)
    tale.shows("two", READS)
    tale.changes("revoke", READS)
    tale.tries("two", allowed=True)
    tale.shows("two")
    tale.tries("two", allowed=False)
    assert tale.verdict().valid == "true"


def test_a_broker_that_has_shown_a_removal_allows_nothing_by_it(tale: Tale) -> None:
    tale.changes("grant", READS)
    tale.shows("two", READS)
    tale.changes("revoke", READS)
    tale.shows("two")
    tale.tries("one", allowed=True)
    assert tale.verdict().valid == "true"
    tale.tries("two", allowed=True)
    assert bugs(tale.verdict()) == {"forbidden-success"}


def test_a_denial_of_a_prefix_wins_over_everything(tale: Tale) -> None:
    tale.changes("grant", READS)
    tale.changes("grant", NEVER_READS)
    tale.shows("one", NEVER_READS, READS)
    tale.tries("one", allowed=False)
    assert tale.verdict().valid == "true"
    tale.tries("one", allowed=True)
    assert bugs(tale.verdict()) == {"forbidden-success"}


def test_an_operation_that_was_allowed_throughout_is_not_denied(tale: Tale) -> None:
    tale.changes("grant", READS)
    tale.shows("one", READS)
    tale.tries("one", allowed=False)
    assert bugs(tale.verdict()) == {"false-denial"}


def test_nobody_allowed_it_ever(tale: Tale) -> None:
    tale.tries("one", allowed=True)
    assert bugs(tale.verdict()) == {"forbidden-success"}


def test_another_error_than_a_denial_says_nothing(tale: Tale) -> None:
    tale.changes("grant", READS)
    tale.shows("one", READS)
    asked = {"family": FAMILY, "who": "alice", "tried": list(FETCH), "turn": 0}
    tale.story.did(2, "try", asked, "fail", node="one", error="TimeoutException")
    assert tale.verdict().valid == "true"


def test_a_change_of_unknown_outcome_leaves_both_possible(tale: Tale) -> None:
    tale.changes("grant", READS, "info")
    for allowed in (False, True, False):
        tale.tries("one", allowed=allowed)
    assert tale.verdict().valid == "true"
    tale.shows("one", READS)
    tale.tries("one", allowed=False)
    assert bugs(tale.verdict()) == {"false-denial"}


def test_a_change_that_failed_never_was(tale: Tale) -> None:
    tale.changes("grant", READS, "fail")
    tale.shows("one", READS)
    assert bugs(tale.verdict()) == {"unexpected-rights"}


def test_a_broker_does_not_go_back(tale: Tale) -> None:
    tale.changes("grant", READS)
    tale.changes("grant", NEVER_READS)
    tale.shows("one", NEVER_READS, READS)
    tale.shows("one", READS)
    assert bugs(tale.verdict()) == {"rights-went-back"}


def test_a_view_that_began_before_another_ended_may_be_older(tale: Tale) -> None:
    tale.changes("grant", READS)
    asked = {"family": FAMILY, "turn": 0}
    tale.story.begins(7, "acls", asked)
    tale.shows("one", READS)
    tale.story.ends(7, "ok", {**asked, "acls": []}, node="one")
    assert tale.verdict().valid == "true"


def test_in_the_end_every_broker_has_everything(tale: Tale) -> None:
    tale.changes("grant", READS)
    tale.tries("one", allowed=False)
    tale.shows("two", READS, settled=True)
    assert tale.verdict().valid == "true"
    tale.tries("one", allowed=False, settled=True)
    tale.shows("three", settled=True)
    assert bugs(tale.verdict()) == {"false-denial", "rights-went-back"}


def test_a_controller_may_be_deposed_for_a_while_and_no_longer(tale: Tale) -> None:
    tale.changes("grant", READS)
    tale.changes("revoke", READS)
    tale.shows("one")
    tale.story.passes(10.0)
    tale.tries("one", allowed=True, forwarded=True)
    assert tale.verdict().valid == "true"
    tale.story.passes(10.0)
    tale.tries("one", allowed=True, forwarded=True)
    assert bugs(tale.verdict()) == {"forbidden-success"}


def test_a_change_after_one_of_unknown_outcome_is_no_history_of_this_workload(tale: Tale) -> None:
    tale.changes("grant", READS, "info")
    tale.changes("revoke", READS)
    with pytest.raises(ValueError, match="unknown outcome"):
        tale.verdict()


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], True),
        ([READS], True),
        ([READS._replace(user="carol")], False),
        ([READS._replace(user=ANYBODY, operation="ALL")], True),
        ([READS._replace(resource="GROUP")], True),
        ([READS._replace(name="f-b")], True),
        ([READS._replace(pattern="PREFIXED", name=FAMILY)], True),
        ([READS._replace(operation="WRITE")], False),
        ([READS, NEVER_READS], False),
        ([READS, NEVER_READS._replace(operation="WRITE")], True),
    ],
)
def test_decisions_where_everyone_may_do_what_no_acl_is_about(acls: list[Acl], expected: bool) -> None:
    assert allows(acls, "alice", FETCH, allow_everyone=True) == expected


def test_some_operations_imply_that_a_resource_may_be_described() -> None:
    describes = Tried("metadata", "TOPIC", TOPIC, "DESCRIBE")
    assert allows([READS], "alice", describes, allow_everyone=False)
    assert not allows([READS._replace(permission="DENY")], "alice", describes, allow_everyone=False)


# ---- logins


def test_a_broker_that_has_shown_a_password_takes_no_older_one(tale: Tale) -> None:
    tale.sets(1)
    tale.sets(2)
    tale.logs_in("one", 1, allowed=True)
    tale.knows("one", 2)
    tale.logs_in("one", 2, allowed=True)
    assert tale.verdict().valid == "true"
    tale.logs_in("one", 1, allowed=True)
    assert bugs(tale.verdict()) == {"login-with-old-password"}


def test_a_user_that_a_broker_no_longer_has_does_not_log_in(tale: Tale) -> None:
    tale.sets(1)
    tale.sets(None)
    tale.knows("one", None)
    tale.logs_in("one", 1, allowed=True)
    # It may have shown the time before the first password.
    assert tale.verdict().valid == "true"
    tale.knows("one", 1)
    tale.knows("one", None)
    tale.logs_in("one", 1, allowed=True)
    assert bugs(tale.verdict()) == {"login-with-old-password"}


def test_the_right_password_is_not_refused(tale: Tale) -> None:
    tale.sets(1)
    tale.logs_in("one", 1, allowed=False)
    tale.knows("one", 1)
    tale.logs_in("one", 1, allowed=False, error="TimeoutException")
    assert tale.verdict().valid == "true"
    tale.logs_in("one", 1, allowed=False)
    assert bugs(tale.verdict()) == {"refused-login"}


# ---- long histories


class Brokers:
    """Brokers that apply changes late, and decide by what they have applied. A liar goes on to apply deleted ACLs."""

    def __init__(self, tale: Tale, chance: random.Random, liar: str = "") -> None:
        self.tale, self.chance, self.liar = tale, chance, liar
        self.log: list[frozenset[Acl]] = [frozenset()]
        self.applied = dict.fromkeys(("one", "two", "three"), 0)

    def change(self) -> None:
        acls = self.log[-1]
        if acls and self.chance.random() < 0.5:
            acl = self.chance.choice(sorted(acls))
            self.log.append(acls - {acl})
            self.tale.changes("revoke", acl)
            return
        user, operation = self.chance.choice(("alice", "carol", ANYBODY)), self.chance.choice(("READ", "WRITE", "ALL"))
        permission = self.chance.choice(("ALLOW", "ALLOW", "DENY"))
        pattern = self.chance.choice((("LITERAL", TOPIC), ("PREFIXED", FAMILY), ("LITERAL", "f-b")))
        acl = Acl("TOPIC", *pattern, user, operation, permission)
        self.log.append(acls | {acl})
        self.tale.changes("grant", acl)

    def step(self) -> None:
        broker = self.chance.choice(list(self.applied))
        self.applied[broker] = self.chance.randint(self.applied[broker], len(self.log) - 1)
        acls = self.log[self.applied[broker]]
        if self.chance.random() < 0.3:
            self.tale.shows(broker, *acls)
            return
        if broker == self.liar:
            acls = frozenset[Acl]().union(*self.log[: self.applied[broker] + 1])
        self.tale.tries(broker, allowed=allows(acls, "alice", FETCH, allow_everyone=False))


@settings(max_examples=examples(20), deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_brokers_that_are_late_and_honest(seed: int) -> None:
    tale = Tale()
    brokers = Brokers(tale, random.Random(seed))
    for _ in range(60):
        brokers.chance.choice((brokers.change, brokers.step, brokers.step))()
    assert tale.verdict().valid == "true", tale.verdict().findings


def test_a_broker_among_them_that_keeps_deleted_acls() -> None:
    found = 0
    for seed in range(10):
        tale = Tale()
        brokers = Brokers(tale, random.Random(seed), liar="two")
        for _ in range(150):
            brokers.chance.choice((brokers.change, brokers.step, brokers.step, brokers.step))()
        verdict = tale.verdict()
        assert all("two" in finding.where for finding in verdict.findings)
        found += verdict.valid == "false"
    assert found >= 5
