"""Changing finalised feature levels (KIP-584, KIP-778, KIP-1022).

A level is taken only if every registered node supports it, its dependencies stand, and nothing in the
metadata would be lost by it. The updates of a request are made all or none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnabas.kraft.controller.configs import elr_safety_records
from barnabas.kraft.controller.eligibility import replace_by_isrs
from barnabas.kraft.controller.state import ControllerResult, ControllerState, Steps
from barnabas.kraft.metadata.features import (
    CONTROLLER_REGISTRATION_SINCE,
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    SUPPORTED_FEATURES,
    metadata_changes_between,
    unmet_dependency,
    unsupported_reason,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.metadata_log import FeatureLevelRecord, NoOpRecord
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import DecisionKind

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Upgrade types of UpdateFeatures."""


def update_features(
    state: ControllerState, request: UpdateFeaturesRequest, version: int
) -> Steps[ControllerResult[UpdateFeaturesResponse]]:
    """Finalise levels. Raises KafkaError INVALID_UPDATE_VERSION for the first update that cannot be
    made."""
    features = state.image.features
    proposed = {METADATA_VERSION: features.metadata_version} | features.finalized
    for update in request.feature_updates:
        proposed[update.feature] = update.max_version_level
    if len({update.feature for update in request.feature_updates}) != len(request.feature_updates):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a feature is in the request more than once")
    records: list[Message] = []
    before: list[Callable[[], None]] = []
    for update in request.feature_updates:
        reason = _refusal(state, update, _upgrade_type(update, version)) or unmet_dependency(
            update.feature, update.max_version_level, proposed
        )
        if reason is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"nothing was updated: {update.feature} cannot go to {update.max_version_level}: {reason}",
            )
        if update.feature != KRAFT_VERSION:
            records += yield from _update_records(state, update)
        elif update.max_version_level != state.quorum.kraft_version:
            # The quorum appends the level itself; this record's commit is what the answer waits for.
            records.append(NoOpRecord())
            before.append(partial(_upgrade_quorum, state, update.max_version_level))
    response = UpdateFeaturesResponse(error_message=None)
    if version <= 1:
        response.results = [
            UpdatableFeatureResult(feature=update.feature, error_message=None) for update in request.feature_updates
        ]
    if request.validate_only:
        return ControllerResult(response)
    return ControllerResult(response, records, before=before)


def _upgrade_quorum(state: ControllerState, level: int) -> None:
    reason = state.quorum.upgrade_kraft_version(level, validate_only=False)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, reason)


def _upgrade_type(update: FeatureUpdateKey, version: int) -> int:
    if version == 0:
        return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return update.upgrade_type


def _update_records(state: ControllerState, update: FeatureUpdateKey) -> Steps[list[Message]]:
    name, level = update.feature, update.max_version_level
    state.notes.note(
        DecisionKind.LIFECYCLE,
        "quorum",
        f"feature {name} changes its level from {state.image.features.level(name)} to {level}",
        cause="UpdateFeatures asked for it",
    )
    record = FeatureLevelRecord(name=name, feature_level=level)
    if name != ELR_VERSION:
        return [record]
    if level == 0:
        cleared = yield from replace_by_isrs(state, f"{ELR_VERSION} is 0 now, so that they are no longer maintained")
        return [record, *cleared]
    return [*elr_safety_records(state), record]


def _refusal(state: ControllerState, update: FeatureUpdateKey, upgrade_type: int) -> str | None:
    name, level = update.feature, update.max_version_level
    current = state.quorum.kraft_version if name == KRAFT_VERSION else state.image.features.level(name)
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"unknown upgrade type {upgrade_type}"
    if name not in SUPPORTED_FEATURES:
        return "there is no such feature"
    if level < 0:
        return "a level cannot be negative"
    reason = _unsupported_by_a_node(state, name, level)
    if reason is not None:
        return reason
    if level < current and upgrade_type == UPGRADE:
        return f"its level is {current}; a downgrade needs a downgrade type"
    if level > current and upgrade_type != UPGRADE:
        return f"its level is {current}, so this is no downgrade"
    if name == KRAFT_VERSION:
        if level < current:
            return "Can't downgrade the version of this feature."
        return state.quorum.upgrade_kraft_version(level, validate_only=True)
    if name == METADATA_VERSION:
        return _metadata_version_refusal(state, level, upgrade_type)
    return None


def _metadata_version_refusal(state: ControllerState, level: int, upgrade_type: int) -> str | None:
    current = state.image.features.metadata_version
    if level not in METADATA_VERSION_NAMES:
        return f"levels are {min(METADATA_VERSION_NAMES)} to {max(METADATA_VERSION_NAMES)}"
    if level < current and metadata_changes_between(level, current):
        if upgrade_type == UNSAFE_DOWNGRADE:
            return "a downgrade that loses metadata is not supported"
        return "the downgrade might lose metadata"
    for name, finalized in state.image.features.finalized.items():
        reason = unmet_dependency(name, finalized, {METADATA_VERSION: level})
        if reason is not None:
            return reason
    return None


def _unsupported_by_a_node(state: ControllerState, name: str, level: int) -> str | None:
    """Reason why a node of the cluster cannot work with this level; None if all can."""
    reason = unsupported_reason(name, level)
    if reason is not None:
        return reason
    cluster = state.image.cluster
    nodes = [("broker", it.id, it.features) for it in cluster.brokers.values()]
    nodes += [("controller", it.id, it.features) for it in cluster.controllers.values()]
    for kind, node_id, ranges in nodes:
        lowest, highest = ranges.get(name, (0, 0))
        if level and not lowest <= level <= highest:
            return f"{kind} {node_id} supports levels {lowest} to {highest}"
    if state.image.features.metadata_version >= CONTROLLER_REGISTRATION_SINCE:
        for node_id in state.defaults.quorum_ids:
            if node_id != state.defaults.node_id and node_id not in cluster.controllers:
                return f"controller {node_id} has not registered and may not support it"
    return None
