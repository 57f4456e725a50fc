"""Core: the rules of a proxy in their order, and how often each has matched and struck."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from barnabas.fault_proxy.fault_rule import FaultRule
from barnabas.runtime.world import Chance


@dataclass(slots=True, eq=False)
class Rule:
    """A rule of a running proxy."""

    number: int
    fault: FaultRule
    matched: int = 0
    """Number of requests that it is about."""
    struck: int = 0
    """Number of those to which it did something."""

    @property
    def is_used_up(self) -> bool:
        return self.fault.times is not None and self.struck >= self.fault.times

    @property
    def text(self) -> str:
        return self.fault.text

    def __str__(self) -> str:
        return f"{self.number}: {self.text} (matched {self.matched}, struck {self.struck})"

    def strikes(self, chance: Chance) -> bool:
        """True if it strikes a request that it is about. To be called once for each: it counts them."""
        fault = self.fault
        self.matched += 1
        past = self.matched - 1 - fault.after
        if past < 0 or past % fault.every or self.is_used_up or chance.random() >= fault.probability:
            return False
        self.struck += 1
        return True


class RuleBook:
    """All rules. The first one that strikes decides about a request."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._rules: dict[int, Rule] = {}
        self._last = 0
        self._gone: list[Rule] = []
        """Rules that were removed before they struck, for the report."""

    @property
    def rules(self) -> list[Rule]:
        return list(self._rules.values())

    def add(self, fault: FaultRule) -> Rule:
        self._last += 1
        rule = self._rules[self._last] = Rule(self._last, fault)
        return rule

    def get(self, number: int) -> Rule | None:
        return self._rules.get(number)

    def remove(self, number: int) -> Rule | None:
        """None if there is no such rule."""
        rule = self._rules.pop(number, None)
        if rule is not None and not rule.struck:
            self._gone.append(rule)
            del self._gone[:-100]
        return rule

    def clear(self) -> None:
        for number in list(self._rules):
            self.remove(number)

    def about(self, api_key: int, client_id: str | None) -> list[Rule]:
        """Rules that may strike a request of this API and client, whatever its topics are."""
        return [
            rule for rule in self._rules.values() if rule.fault.is_about(api_key, client_id) and not rule.is_used_up
        ]

    def decide(self, rules: Iterable[Rule], is_about: Callable[[Rule], bool]) -> Rule | None:
        """The first of these rules that is about a request and strikes it."""
        for rule in rules:
            if is_about(rule) and rule.strikes(self._chance):
                return rule
        return None

    def never_struck(self) -> list[str]:
        """A line for each rule that did nothing, with the reason."""
        return [_reason(rule) for rule in (*self._gone, *self._rules.values()) if not rule.struck]


def _reason(rule: Rule) -> str:
    if not rule.matched:
        return f"rule {rule.number} never matched a request: {rule.text}"
    noun = "request" if rule.matched == 1 else "requests"
    return f"rule {rule.number} matched {rule.matched} {noun} and struck none: {rule.text}"
