"""Core: `QuorumController`, one controller, active or standby.

It always replays the committed log into the committed image, so taking over needs no reload. While it is active it
decides on a second, pending image, which also has the records that were appended but are not committed yet. When
leadership is lost the pending image is dropped, and with it all records that did not commit.

The shell runs one decision at a time (`decide`, `run_periodic`, `fence_broker`: generators of short steps), previews
and appends its records, reports that (`appended`), and releases the answer once every record it may depend on is
committed. A decision that was begun before leadership was lost must not be continued.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from barnabas.kraft.controller import (
    brokers,
    configs,
    leader_elections,
    partitions,
    producer_ids,
    topic_deletion,
    topics,
)
from barnabas.kraft.controller.periodic import PeriodicWork
from barnabas.kraft.controller.quota_division import QuotaDivision
from barnabas.kraft.controller.refused_registrations import RefusedRegistrations
from barnabas.kraft.controller.request_limits import count_named
from barnabas.kraft.controller.sessions import BrokerSessions
from barnabas.kraft.controller.state import (
    BY_NOBODY,
    Asked,
    Command,
    ControllerDefaults,
    ControllerResult,
    ControllerState,
    FixedQuorum,
    Quorum,
    R,
    Steps,
    replayed,
)
from barnabas.kraft.controller.token_index import TokenIndex
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.features import ELR_VERSION, METADATA_VERSION
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.kraft.metadata.loader import MetadataLoader
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.messages.metadata_log import AbortTransactionRecord, FeatureLevelRecord
from barnabas.protocol.refusals import refusal_of
from barnabas.protocol.schema import Message
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.late import Late
from barnabas.runtime.world import Chance

log = logging.getLogger("kraft.controller")

LARGE = 100
"""A request that names more topics, partitions or configs is refused away from the event loop."""

COMMANDS: Mapping[ApiKey, Command] = {
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_TOPICS: topic_deletion.delete_topics,
    ApiKey.CREATE_PARTITIONS: topics.create_partitions,
    ApiKey.ALTER_CONFIGS: configs.alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    ApiKey.ELECT_LEADERS: leader_elections.elect_leaders,
    ApiKey.ALTER_PARTITION: partitions.alter_partition,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: partitions.assign_replicas_to_dirs,
    ApiKey.ALLOCATE_PRODUCER_IDS: producer_ids.allocate_producer_ids,
    ApiKey.BROKER_REGISTRATION: brokers.register_broker,
    ApiKey.BROKER_HEARTBEAT: brokers.broker_heartbeat,
    ApiKey.UNREGISTER_BROKER: brokers.unregister_broker,
    ApiKey.CONTROLLER_REGISTRATION: brokers.register_controller,
}
"""The decision of the active controller for each request."""

LATE_COMMANDS: Mapping[ApiKey, Late[Any]] = {
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Late("barnabas.kraft.controller.reassignment:alter_partition_reassignments"),
    ApiKey.UPDATE_FEATURES: Late("barnabas.kraft.controller.features:update_features"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Late("barnabas.kraft.controller.scram:alter_user_scram_credentials"),
    ApiKey.ALTER_CLIENT_QUOTAS: Late("barnabas.kraft.controller.client_quotas:alter_client_quotas"),
    ApiKey.CREATE_DELEGATION_TOKEN: Late("barnabas.kraft.controller.delegation_tokens:create_delegation_token"),
    ApiKey.RENEW_DELEGATION_TOKEN: Late("barnabas.kraft.controller.delegation_tokens:renew_delegation_token"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Late("barnabas.kraft.controller.delegation_tokens:expire_delegation_token"),
    ApiKey.CREATE_ACLS: Late("barnabas.kraft.controller.acls:create_acls"),
    ApiKey.DELETE_ACLS: Late("barnabas.kraft.controller.acls:delete_acls"),
}
"""Decisions that few clusters need. `load_commands` loads them, or the shell before the first of them."""


def load_commands() -> None:
    for late in LATE_COMMANDS.values():
        late.load()


class QuorumController:
    """Owns the loader of the committed log, the pending image, the sessions and the timetable."""

    def __init__(
        self, defaults: ControllerDefaults, chance: Chance, bootstrap_records: Sequence[Message]
    ) -> None:
        """`bootstrap_records` begin the log of a cluster that has none yet."""
        self.defaults = defaults
        self.loader = MetadataLoader()
        self.sessions = BrokerSessions(defaults.broker_session_timeout_ms)
        self.quota_division = QuotaDivision()
        self._refused = RefusedRegistrations()
        self._bootstrap_records = bootstrap_records
        self._chance = chance
        self._pending: MetadataImage | None = None
        self._epoch = -1
        self.quorum: Quorum = FixedQuorum()
        self._periodic: PeriodicWork | None = None
        self._token_index = TokenIndex()

    @property
    def is_active(self) -> bool:
        return self._pending is not None

    @property
    def epoch(self) -> int:
        """The epoch in which this controller is active; -1 if it is not."""
        return self._epoch

    @property
    def committed(self) -> MetadataImage:
        """The image that reads are answered from."""
        return self.loader.image

    # Following the log

    def handle_commit(
        self,
        base_offset: int,
        epoch: int,
        append_time_ms: int,
        records: Iterable[Message],
        last_offset: int | None = None,
    ) -> Stepwise[list[MetadataDelta]]:
        """Committed records, in order; see `MetadataLoader.commit_steps`. Raises `ReplayError`: the node must stop."""
        return self.loader.commit_steps(base_offset, epoch, append_time_ms, records, last_offset)

    def handle_snapshot(
        self, records: Iterable[Message], offset: int, epoch: int, timestamp_ms: int
    ) -> Stepwise[MetadataDelta]:
        """The log before `offset` is replaced by a snapshot that ends there; see `MetadataLoader.snapshot_steps`. An
        active controller never gets one."""
        assert not self.is_active, "a leader got a snapshot"
        return self.loader.snapshot_steps(records, offset, epoch, timestamp_ms)

    # Leadership

    def activate(self, epoch: int, next_offset: int, now_ms: int) -> list[Message]:
        """Become the active controller of `epoch`; returns the records to append first, as one batch.

        Call it when everything before `next_offset` is committed and loaded. Every unfenced broker gets a
        new session: the heartbeats to the last controller are not known.
        """
        assert self._pending is None, f"active in epoch {self._epoch} already"
        self._epoch = epoch
        self._pending = self.loader.image
        self.sessions.clear()
        self.quota_division.clear(now_ms)
        for broker in self._pending.cluster.brokers.values():
            if not broker.fenced:
                self.sessions.start(broker.id, broker.epoch, now_ms)
        state = self._state(next_offset, now_ms)
        self._periodic = PeriodicWork.starting(state)
        node_id = self.defaults.node_id
        log.info("node %d is the active controller of epoch %d from offset %d on", node_id, epoch, next_offset)
        return self._activation_records(state)

    def _activation_records(self, state: ControllerState) -> list[Message]:
        records: list[Message] = []
        if self.loader.in_transaction:
            log.warning("the open metadata transaction %s is aborted", self.loader.transaction_name)
            records.append(AbortTransactionRecord(reason="Controller failover"))
        if self.loader.is_empty:
            features = [it for it in self._bootstrap_records if isinstance(it, FeatureLevelRecord)]
            levels = {it.name: it.feature_level for it in features}
            more = f" and {len(self._bootstrap_records) - len(features)} more"
            log.info(
                "the metadata log is empty, its first records are %s%s",
                levels,
                more if len(self._bootstrap_records) > len(features) else "",
            )
            assert METADATA_VERSION in levels, "a cluster begins with a metadata.version"
            records += self._bootstrap_records
            if levels.get(ELR_VERSION, 0) > 0:
                records += configs.elr_safety_records(state)
        return records

    def resign(self) -> None:
        """Leadership is lost. The next leader decides whether pending records are committed."""
        if self._pending is not None:
            log.info("node %d is no longer the active controller (epoch %d)", self.defaults.node_id, self._epoch)
        self._pending = self._periodic = None
        self._epoch = -1
        self.sessions.clear()
        self.quota_division.clear(0)

    # Deciding

    def decide(
        self, request: Message, version: int, next_offset: int, now_ms: int, asked: Asked = BY_NOBODY
    ) -> Steps[ControllerResult[Message]]:
        """The answer to a request, and the records that must be committed before the answer may leave."""
        if not self.is_active:
            return self.refuse(request, version, ErrorCode.NOT_CONTROLLER)
        state = self._state(next_offset, now_ms, asked)
        is_large = True
        try:
            is_large = (yield from count_named(request, state.pace)) > LARGE
            key = ApiKey(request.API_KEY)
            command = COMMANDS.get(key) or LATE_COMMANDS[key].maker()
            result = command(state, request, version)
            if isinstance(result, Generator):
                result = yield from result
            return _finished(state, result)
        except KafkaError as error:
            log.info("%s is refused with %s: %s", type(request).__name__, error.code.name, error.message)
            refuse = partial(self.refuse, request, version, error.code, error.message)
            refusal: ControllerResult[Message] = (yield refuse) if is_large else refuse()
            refusal.is_long = is_large
            if isinstance(request, BrokerRegistrationRequest):
                refusal.notes = self._refused.notes(request, error)
            return refusal

    def refuse(
        self, request: Message, version: int, code: ErrorCode, message: str | None = None
    ) -> ControllerResult[Message]:
        """The refusal of a whole request."""
        if message is None and code is ErrorCode.NOT_CONTROLLER:
            message = f"node {self.defaults.node_id} is not the active controller"
        return ControllerResult(refusal_of(request, version, code, message))

    def fence_broker(
        self, broker_id: int, broker_epoch: int, cause: str, next_offset: int, now_ms: int
    ) -> Steps[ControllerResult[bool]]:
        """Fence one incarnation of a broker on evidence that its process is gone. The answer is True if that changes
        anything."""
        if not self.is_active:
            return ControllerResult(False)
        state = self._state(next_offset, now_ms)
        return _finished(state, (yield from brokers.fence_broker(state, broker_id, broker_epoch, cause)))

    def next_periodic_ms(self, now_ms: int) -> int | None:
        """Time at which `run_periodic` is due; None while this controller is not active."""
        if self._periodic is None:
            return None
        return self._periodic.next_run_ms(self._state(0, now_ms))

    def run_periodic(self, next_offset: int, now_ms: int, wall_ms: int = 0) -> Steps[ControllerResult[bool]]:
        """Periodic work that is due; the answer is True if there may be more."""
        if self._periodic is None:
            return ControllerResult(False)
        state = self._state(next_offset, now_ms, Asked(at_ms=wall_ms))
        return _finished(state, (yield from self._periodic.run(state)))

    def preview(self, records: Sequence[Message], last_offset: int, now_ms: int) -> Steps[MetadataImage]:
        """The pending image as it will be once `records` are appended and end at `last_offset`.

        Raises `ReplayError` for a wrong decision: such records must never reach the log.
        """
        visible = [record for record in records if not isinstance(record, AbortTransactionRecord)]
        return replayed(self.pending, visible, last_offset, self._epoch, now_ms)

    def appended(self, preview: MetadataImage, now_ms: int) -> None:
        """The records of a preview were appended; decisions see them from now on."""
        assert self._pending is not None and self._periodic is not None
        self._pending = preview
        self._periodic.appended(self._state(preview.offset + 1, now_ms))

    @property
    def pending(self) -> MetadataImage:
        """The image that decisions are made on; only while active."""
        assert self._pending is not None, "not the active controller"
        return self._pending

    def _state(self, next_offset: int, now_ms: int, asked: Asked = BY_NOBODY) -> ControllerState:
        return ControllerState(
            self.defaults,
            self._chance,
            self.sessions,
            self.pending,
            next_offset,
            now_ms,
            quorum=self.quorum,
            asked=asked,
            token_index=self._token_index,
            quota_division=self.quota_division,
        )


def _finished(state: ControllerState, result: ControllerResult[R]) -> ControllerResult[R]:
    """The result with all that was gathered in `state`. A decision without records changes nothing and has no notes."""
    if result.records:
        result.notes = state.notes
    result.effects = state.effects
    result.is_long = state.pace.steps > 0
    return result
