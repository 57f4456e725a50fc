"""Keeps positions valid: resolves resets, and detects truncation after a change of the leader."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.consumer.completed_fetch import FetchPosition
from barnabas.client.consumer.leader_requests import LeaderAnswers
from barnabas.client.consumer.offset_listing import FoundOffset, ask_once, is_passing
from barnabas.client.consumer.offset_validation import ask_epoch_ends
from barnabas.client.consumer.partition_state import FetchState, Flight, PartitionState, Truncation
from barnabas.client.consumer.reading_settings import ReadingSettings
from barnabas.client.errors import LogTruncationException, NoOffsetForPartitionException
from barnabas.client.metadata import TopicPartition
from barnabas.client.offset_lookup import LATEST
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)


class PositionKeeper:
    """The lookups of one reader. Each request is a task in the reader's nursery."""

    def __init__(
        self,
        cluster: Cluster,
        nursery: trio.Nursery,
        settings: ReadingSettings,
        states: Mapping[TopicPartition, PartitionState],
        changed: Callable[[bool], None],
    ) -> None:
        """`changed` is called after each response, with True if the metadata is stale."""
        self._cluster = cluster
        self._nursery = nursery
        self._settings = settings
        self._states = states
        self._changed = changed

    def look(self, now_ms: int) -> None:
        """Start all requests that are due."""
        resets: list[PartitionState] = []
        checks: list[PartitionState] = []
        for state in self._states.values():
            if state.state is FetchState.FETCHING or not state.may_ask(now_ms):
                continue
            if state.state is FetchState.AWAIT_RESET:
                resets.append(state)
            elif state.state is FetchState.AWAIT_VALIDATION:
                checks.append(state)
        if resets:
            self._start(self._reset, resets)
        if checks:
            self._start(self._validate, checks)

    def _start(
        self, ask: Callable[[Flight, list[PartitionState]], Awaitable[None]], states: list[PartitionState]
    ) -> None:
        flight = Flight()
        for state in states:
            state.flight = flight
        self._nursery.start_soon(ask, flight, states)

    # ---- resets

    async def _reset(self, flight: Flight, states: list[PartitionState]) -> None:
        now_ms = self._cluster.world.wall_clock.now_ms()
        timestamps: dict[TopicPartition, int] = {}
        epochs: dict[TopicPartition, int] = {}
        for state in states:
            timestamp = None if state.reset_to is None else state.reset_to.timestamp(now_ms)
            if timestamp is None:
                state.fail(
                    NoOffsetForPartitionException(
                        f"{state.partition} has no committed offset, and auto_offset_reset is none"
                    ),
                    self._now(),
                )
            else:
                timestamps[state.partition], epochs[state.partition] = timestamp, state.leader_epoch
        asked = await ask_once(self._cluster, timestamps, self._settings.isolation)
        await self._use_ends_instead(asked)
        stale = False
        for state in states:
            if state.flight is not flight:
                continue
            found = asked.found.get(state.partition)
            if found is not None:
                state.settle(found.offset, found.leader_epoch, epochs[state.partition])
                log.debug("position of %s reset to %d", state.partition, found.offset)
            else:
                stale = self._failed(state, asked.failed[state.partition]) or stale
        self._changed(stale)

    async def _use_ends_instead(self, asked: LeaderAnswers[FoundOffset]) -> None:
        """If no record is younger than a duration, reading begins at the end."""
        missing = dict.fromkeys([partition for partition, found in asked.found.items() if found.offset < 0], LATEST)
        if missing:
            ends = await ask_once(self._cluster, missing, self._settings.isolation)
            for partition in missing:
                del asked.found[partition]
            asked.found.update(ends.found)
            asked.failed.update(ends.failed)

    # ---- validation

    async def _validate(self, flight: Flight, states: list[PartitionState]) -> None:
        asked = await ask_epoch_ends(self._cluster, {state.partition: state.next.epoch for state in states})
        stale = False
        for state in states:
            if state.flight is not flight:
                continue
            found = asked.found.get(state.partition)
            if found is None:
                stale = self._not_validated(state, asked.failed[state.partition]) or stale
                continue
            if found.epoch < 0 and state.is_ahead_of_leader:
                state.put_off(self._now())
                stale = True
                continue
            truncation = state.validated(*found)
            if truncation is not None:
                self._truncated(state, truncation)
        self._changed(stale)

    def _not_validated(self, state: PartitionState, code: ErrorCode) -> bool:
        if code is ErrorCode.UNSUPPORTED_VERSION:
            state.cannot_validate()
            return False
        return self._failed(state, code)

    def _truncated(self, state: PartitionState, truncation: Truncation) -> None:
        """Records that were read no longer exist: with auto_offset_reset="none" the application has to decide."""
        position, divergent = truncation
        reset = self._settings.reset
        log.info("log of %s was truncated below %s: %s", state.partition, position, divergent)
        if reset.name == "none":
            state.fail(_truncation_error(state.partition, position, divergent), self._now())
        elif divergent is None:
            state.request_reset(reset)
        else:
            state.settle(divergent.offset, divergent.epoch, state.leader_epoch)

    # ---- both

    def _failed(self, state: PartitionState, code: ErrorCode) -> bool:
        """Returns True if the metadata is stale."""
        if is_passing(code):
            state.put_off(self._now())
            return True
        state.fail(KafkaError(code, str(state.partition)), self._now())
        return False

    def _now(self) -> int:
        return self._cluster.now_ms()


def _truncation_error(
    partition: TopicPartition, position: FetchPosition, divergent: FetchPosition | None
) -> LogTruncationException:
    where = "an unknown offset" if divergent is None else f"offset {divergent.offset}"
    message = (
        f"{partition} was read up to offset {position.offset} in leader epoch {position.epoch}; "
        f"the log diverges at {where}"
    )
    divergent_position = None if divergent is None else OffsetAndMetadata(divergent.offset, divergent.epoch)
    return LogTruncationException(message, *partition, divergent_position)
