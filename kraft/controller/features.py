"""Changing finalised feature levels (KIP-584, KIP-778, KIP-1022).

A level is taken only if every registered node supports it, its dependencies are met, and nothing in the
metadata would be lost by it. The updates of a request are made all or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from barnabas.kraft.controller.configs import elr_safety_records
from barnabas.kraft.controller.eligibility import replace_by_isrs
from barnabas.kraft.controller.state import ControllerResult, ControllerState, Steps
from barnabas.kraft.metadata.downgrade import losses, removals
from barnabas.kraft.metadata.features import (
    CONTROLLER_REGISTRATION_SINCE,
    DIRECTORIES_SINCE,
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    unmet_dependency,
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
    proposed = features.levels
    for update in request.feature_updates:
        proposed[update.feature] = update.max_version_level
    if len({update.feature for update in request.feature_updates}) != len(request.feature_updates):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a feature is in the request more than once")
    before: list[Callable[[], None]] = []
    for update in request.feature_updates:
        reason = _refusal(state, update, _upgrade_type(update, version), proposed)
        if reason is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"The update failed for all features since the following feature had an error: {reason}",
            )
    records: list[Message] = []
    for update in sorted(request.feature_updates, key=lambda it: _place(it, features.metadata_version)):
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


def _place(update: FeatureUpdateKey, metadata_version: int) -> int:
    """metadata.version goes up before all others and down after them: their records may need the higher level."""
    if update.feature != METADATA_VERSION:
        return 1
    return 0 if update.max_version_level >= metadata_version else 2


def _update_records(state: ControllerState, update: FeatureUpdateKey) -> Steps[list[Message]]:
    name, level = update.feature, update.max_version_level
    state.notes.note(
        DecisionKind.LIFECYCLE,
        "quorum",
        f"feature {name} changes its level from {state.image.features.level(name)} to {level}",
        cause="UpdateFeatures asked for it",
    )
    record = FeatureLevelRecord(name=name, feature_level=level)
    if name == METADATA_VERSION:
        return [*removals(state.image, level), record]
    if name != ELR_VERSION:
        return [record]
    if level == 0:
        cleared = yield from replace_by_isrs(state, f"{ELR_VERSION} is 0 now, so that they are no longer maintained")
        return [record, *cleared]
    return [*elr_safety_records(state), record]


def _refusal(
    state: ControllerState, update: FeatureUpdateKey, upgrade_type: int, proposed: Mapping[str, int]
) -> str | None:
    """Reason why the update cannot be made, in Kafka's words; None if it can."""
    name, level = update.feature, update.max_version_level
    reason = _reason_of_refusal(state, update, upgrade_type)
    if reason is None and name == METADATA_VERSION:
        return _metadata_version_refusal(state, level, upgrade_type, proposed)
    reason = reason or unmet_dependency(name, level, proposed)
    return None if reason is None else f"Invalid update version {level} for feature {name}. {reason}"


def _reason_of_refusal(state: ControllerState, update: FeatureUpdateKey, upgrade_type: int) -> str | None:
    name, level = update.feature, update.max_version_level
    current = state.quorum.kraft_version if name == KRAFT_VERSION else state.image.features.level(name)
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    reason = _unsupported_by_a_node(state, name, level)
    if reason is not None:
        return reason
    if level < current and upgrade_type == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade."
        )
    if level > current and upgrade_type != UPGRADE:
        return "Can't downgrade to a newer version."
    if name == KRAFT_VERSION:
        if level < current:
            return "Can't downgrade the version of this feature."
        return state.quorum.upgrade_kraft_version(level, validate_only=True)
    return None


def _metadata_version_refusal(
    state: ControllerState, level: int, upgrade_type: int, proposed: Mapping[str, int]
) -> str | None:
    current = state.image.features.metadata_version
    if level < current:
        refused = f"Unsupported metadata.version downgrade from {current} to {level}."
        lost = losses(state.image, level)
        if current >= DIRECTORIES_SINCE > level or lost.needed:
            needed = ", ".join(lost.needed) or "the log directories of replicas"
            return f"{refused} Unsafe metadata downgrade is not supported in this version: it would lose {needed}."
        if lost.removable and upgrade_type != UNSAFE_DOWNGRADE:
            what = "; ".join(lost.removable)
            return (
                f"{refused} Refusing to perform the requested downgrade because it might delete metadata information:"
                f" {what}. An unsafe downgrade removes them."
            )
    for name, finalized in proposed.items():
        reason = unmet_dependency(name, finalized, proposed)
        if reason is not None:
            return f"Invalid update version {level} for feature {METADATA_VERSION}. {reason}"
    return None


def _unsupported_by_a_node(state: ControllerState, name: str, level: int) -> str | None:
    """Reason why a node of the cluster cannot work with this level; None if all can."""
    cluster = state.image.cluster
    ranges = [(f"Local controller {state.defaults.node_id}", SUPPORTED_FEATURES.get(name, (0, 0)))]
    ranges += [(f"Broker {it.id}", it.features.get(name, (0, 0))) for it in cluster.brokers.values()]
    controllers = state.image.features.metadata_version >= CONTROLLER_REGISTRATION_SINCE
    if controllers:
        others = [it for it in cluster.controllers.values() if it.id != state.defaults.node_id]
        ranges += [(f"Controller {it.id}", it.features.get(name, (0, 0))) for it in others]
    for node, (lowest, highest) in ranges:
        if not lowest <= level <= highest:
            if highest == 0:
                return f"{node} does not support this feature."
            return f"{node} only supports versions {lowest}-{highest}"
    if controllers:
        for node_id in state.defaults.quorum_ids:
            if node_id != state.defaults.node_id and node_id not in cluster.controllers:
                return f"controller {node_id} has not registered, and may not support this feature"
    return None
