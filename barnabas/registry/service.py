"""A registry: reads at once, writes one after the other, those of others forwarded by the HTTP side to the leader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.registry import errors
from barnabas.registry.decisions import Decisions, Outcome, Registering, Steps
from barnabas.registry.election import Election
from barnabas.registry.records import Change, SchemaValue
from barnabas.registry.requests import SchemaRequest
from barnabas.registry.schemas.formats import Formats
from barnabas.registry.store import TopicStore
from barnabas.registry.worker import Worker

MOST_ATTEMPTS = 3
"""Attempts at a registration whose version or id another registry took meanwhile."""


class RegistryService:
    """The operations of a registry. Writes raise `RegistryError` if it is not the leader."""

    def __init__(self, store: TopicStore, formats: Formats, election: Election) -> None:
        self.decisions = Decisions(store.state, formats)
        self.election = election
        self.worker = Worker()
        self._store = store
        self._writing = trio.Lock()
        self._caught_up_in = -1
        """The generation of the group in which it last read all that earlier leaders wrote."""

    async def register(self, subject: str, request: SchemaRequest, options: Registering) -> SchemaValue:
        """The version that has this schema, which is new or was there."""
        for _ in range(MOST_ATTEMPTS):
            value: SchemaValue = await self.take(lambda: self.decisions.register(subject, request, options))
            kept = self._store.state.get(subject, value.version)
            if kept is not None and (kept.id, kept.schema) == (value.id, value.schema):
                return kept
        raise errors.store_failed("another registry wrote the same version or id at the same time; try again")

    async def take(self, decide: Callable[[], Steps]) -> Any:
        """Decide in steps, and write what was decided. Returns the answer."""
        async with self._leading():
            outcome = await self.worker.take(decide())
            return await self._carry_out(outcome)

    async def change(self, decide: Callable[[], Outcome]) -> Any:
        """Decide in one step, and write what was decided. Returns the answer."""
        async with self._leading():
            return await self._carry_out(await self.worker.run(decide))

    async def clear(self) -> None:
        """Remove all subjects and settings; ids go on. Raises `ClusterError`."""
        try:
            async with self._leading():
                await self._store.write(self._removals())
        except errors.RegistryError as error:
            raise ClusterError(f"the registry was not cleared: {error.message}") from None

    async def begin_again(self) -> None:
        """Take over the records of the topic, which is another one now. Raises `ClusterError`."""
        try:
            async with self._writing:
                await self._store.begin_again()
        except errors.RegistryError as error:
            raise ClusterError(f"the registry did not read its topic again: {error.message}") from None

    def _removals(self) -> list[Change]:
        state = self._store.state
        subjects = state.subjects(deleted=True)
        removals = [Change(each.key) for name in subjects for each in state.versions(name, deleted=True)]
        return removals + state.setting_removals()

    async def _carry_out(self, outcome: Outcome) -> Any:
        if outcome.changes:
            if not self.election.leads:
                raise errors.unknown_leader()
            await self._store.write(outcome.changes)
        return outcome.answer

    @asynccontextmanager
    async def _leading(self) -> AsyncIterator[None]:
        """The turn to write; a new leader reads first what earlier ones wrote. Raises `RegistryError`."""
        async with self._writing:
            await self.election.settle()
            if not self.election.leads:
                raise errors.unknown_leader()
            generation = self.election.generation
            if self._caught_up_in != generation:
                await self._store.catch_up()
                self._caught_up_in = generation
            yield
