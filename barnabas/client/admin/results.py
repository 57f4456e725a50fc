"""What became of each item of a request: its value, or its error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from protocol.errors import ErrorCode, KafkaError, error_code

K = TypeVar("K")
V = TypeVar("V")


class Results(Mapping[K, V], Generic[K, V]):
    """One outcome for each item that was asked for, in the order of asking.

    `results[item]` is its value, or raises its KafkaError; so do `values()` and `items()` at the first item that has
    one. `errors` and `succeeded` raise nothing.
    """

    __slots__ = ("_outcomes",)

    def __init__(self, outcomes: Mapping[K, V | KafkaError]) -> None:
        self._outcomes = dict(outcomes)

    @property
    def outcomes(self) -> dict[K, V | KafkaError]:
        """Every item with its value or its error; raises nothing."""
        return dict(self._outcomes)

    @property
    def errors(self) -> dict[K, KafkaError]:
        """The items that failed, and why."""
        return {key: outcome for key, outcome in self._outcomes.items() if isinstance(outcome, KafkaError)}

    @property
    def succeeded(self) -> dict[K, V]:
        """The items that did not fail, with their values."""
        return {key: outcome for key, outcome in self._outcomes.items() if not isinstance(outcome, KafkaError)}

    def error(self, key: K) -> KafkaError | None:
        """Why this item failed; None if it did not. KeyError if nobody asked for it."""
        outcome = self._outcomes[key]
        return outcome if isinstance(outcome, KafkaError) else None

    def all(self) -> dict[K, V]:
        """Every value; raises the first item's error if any has one."""
        for outcome in self._outcomes.values():
            if isinstance(outcome, KafkaError):
                raise outcome
        return self.succeeded

    def __getitem__(self, key: K) -> V:
        outcome = self._outcomes[key]
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def __iter__(self) -> Iterator[K]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __contains__(self, key: object) -> bool:
        return key in self._outcomes

    def __repr__(self) -> str:
        return f"Results({self._outcomes!r})"


def refusal(code: int, message: str | None, what: str) -> KafkaError | None:
    """The error of a code in an answer, which names `what` was refused; None if the code is NONE."""
    known = error_code(code)
    if known is ErrorCode.NONE:
        return None
    return KafkaError(known, f"{what}: {message}" if message else what)


def changed(results: Results[K, V], raise_errors: bool) -> Results[K, V]:
    """The outcome of a change: nobody has to look at it to hear that something was refused, unless they said so."""
    if raise_errors:
        results.all()
    return results
