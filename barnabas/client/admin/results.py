"""Outcomes of a request for many items: a value or an error for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from barnabas.protocol.errors import ErrorCode, KafkaError, error_code

K = TypeVar("K")
V = TypeVar("V")


class Results(Mapping[K, V], Generic[K, V]):
    """One outcome for each item of the request, in its order.

    `results[item]` is its value, or raises its KafkaError; so do `values()` and `items()` at the first item that has
    one. `errors` and `succeeded` raise nothing.
    """

    __slots__ = ("_outcomes",)

    def __init__(self, outcomes: Mapping[K, V | KafkaError]) -> None:
        self._outcomes = dict(outcomes)

    @property
    def outcomes(self) -> dict[K, V | KafkaError]:
        """All items with value or error; raises nothing."""
        return dict(self._outcomes)

    @property
    def errors(self) -> dict[K, KafkaError]:
        """Items that failed, with their errors."""
        return {key: outcome for key, outcome in self._outcomes.items() if isinstance(outcome, KafkaError)}

    @property
    def succeeded(self) -> dict[K, V]:
        """Items that did not fail, with their values."""
        return {key: outcome for key, outcome in self._outcomes.items() if not isinstance(outcome, KafkaError)}

    def error(self, key: K) -> KafkaError | None:
        """The error of this item; None if it did not fail. KeyError if it was not part of the request."""
        outcome = self._outcomes[key]
        return outcome if isinstance(outcome, KafkaError) else None

    def all(self) -> dict[K, V]:
        """All values; raises the error of the first item that has one."""
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
    """The error for a code in a response about `what`; None if the code is NONE."""
    known = error_code(code)
    if known is ErrorCode.NONE:
        return None
    return KafkaError(known, f"{what}: {message}" if message else what)


def changed(results: Results[K, V], raise_errors: bool) -> Results[K, V]:
    """The outcome of a change: raises the first error, unless the caller looks at the outcomes."""
    if raise_errors:
        results.all()
    return results
