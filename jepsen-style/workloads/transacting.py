"""One transaction, and what is known of its outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import trio

from barnabas.runtime.world import Chance
from clients.client import ClientError, WorkClient
from operations import Completion, Outcome

_SLEEPS = 0.5
"""Share of the transactions that rest between their steps."""
_LONGEST_SLEEP_S = 0.1


class AbortedOnPurpose(Exception):
    """The body does not want to commit."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The outcome of a transaction."""

    type: Outcome
    error: tuple[str, str] | None = None
    ends_process: bool = False

    def completion(self, value: Any, **note: Any) -> Completion:
        return Completion(self.type, value, self.error, note=note, ends_process=self.ends_process)


def ending_of(error: ClientError) -> Ending:
    """The outcome after an error of a call without which nothing of the transaction can be committed."""
    return Ending("fail", (error.name, error.text), ends_process=error.fatal)


class Pauses:
    """Between the steps of one transaction: it may rest there, or end."""

    def __init__(self, chance: Chance, abort_probability: float) -> None:
        self._chance = chance
        self._abort_probability = abort_probability
        self._sleeps = chance.random() < _SLEEPS

    async def step(self) -> None:
        """Raises AbortedOnPurpose."""
        if self._chance.random() < self._abort_probability:
            raise AbortedOnPurpose
        if self._sleeps:
            await trio.sleep(self._chance.random() * _LONGEST_SLEEP_S)


async def in_transaction(client: WorkClient, body: Callable[[], Awaitable[None]]) -> Ending:
    """Begins, does the body, commits. The body raises ClientError or AbortedOnPurpose.

    `fail` if the commit was not even requested; an error of the commit itself proves nothing: a producer can get
    that it is fenced by the very transaction that it committed and whose answer was lost.
    """
    try:
        await client.begin()
    except ClientError as error:
        return ending_of(error)
    try:
        await body()
    except AbortedOnPurpose:
        return await aborted(client, None)
    except ClientError as error:
        return await aborted(client, error)
    return await committed(client)


async def aborted(client: WorkClient, why: ClientError | None) -> Ending:
    cause = (why.name, why.text) if why else ("Aborted", "on purpose")
    if why and why.fatal:
        return Ending("fail", cause, ends_process=True)
    try:
        await client.abort_transaction()
    except ClientError as error:
        # The coordinator aborts it when its time is over, or when the next life of this producer begins.
        return Ending("fail", cause if why else (error.name, error.text), ends_process=True)
    return Ending("fail", cause)


async def committed(client: WorkClient) -> Ending:
    try:
        await client.commit_transaction()
    except ClientError as error:
        return Ending("info", (error.name, error.text), ends_process=True)
    return Ending("ok")
