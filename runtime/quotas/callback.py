"""Core: quotas by code of the operator: `client.quota.callback.class` names a class as `module:Class`.

It has the methods of `ClientQuotaCallback`, as Kafka's interface of that name has them. Clients whose tags are equal
share one sensor and one limit. An exception of the class is logged, and limits nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from barnabas.runtime.identity import Principal
from barnabas.runtime.quotas.levels import Entity
from barnabas.runtime.quotas.source import QUOTA_KEYS, Client, QuotaType, Tags

log = logging.getLogger(__name__)

MOST_ERRORS_LOGGED = 10


class ClientQuotaCallback(Protocol):
    """The methods of a class for quotas. It is made without arguments. All are called on the event loop: none may
    block, or take longer than some microseconds."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Take the settings of the node. Called once, before all others."""
        ...

    def quota_metric_tags(self, quota_type: QuotaType, principal: Principal, client_id: str) -> Mapping[str, str]:
        """Return the tags of the sensor that counts for the client. Called for each request; empty: it has no quota."""
        ...

    def quota_limit(self, quota_type: QuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """Return the limit of a sensor in units per second; None: no limit."""
        ...

    def update_quota(self, quota_type: QuotaType, entity: Mapping[str, str | None], new_value: float) -> None:
        """A quota was set in the metadata. `entity`: names by type (`user`, `client-id`); None: the default entity."""
        ...

    def remove_quota(self, quota_type: QuotaType, entity: Mapping[str, str | None]) -> None:
        """A quota was removed from the metadata."""
        ...

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        """Return True if limits changed since the last call; they are then asked for again."""
        ...


class CallbackLimits:
    """A callback as a `LimitSource`."""

    may_reset = True

    def __init__(self, callback: ClientQuotaCallback) -> None:
        self._callback = callback
        self._errors = 0

    def is_active(self, quota: QuotaType) -> bool:
        return True

    def tags(self, quota: QuotaType, client: Client) -> Tags:
        try:
            tags = self._callback.quota_metric_tags(quota, client.principal, client.client_id)
            return tuple((str(tag), str(value)) for tag, value in tags.items())
        except Exception as error:  # the operator's own code
            self._report("quota_metric_tags", error)
            return ()

    def limit(self, quota: QuotaType, tags: Tags) -> float | None:
        if not tags:
            return None
        try:
            limit = self._callback.quota_limit(quota, dict(tags))
            return None if limit is None else float(limit)
        except Exception as error:  # the operator's own code
            self._report("quota_limit", error)
            return None

    def is_reset_required(self, quota: QuotaType) -> bool:
        try:
            return bool(self._callback.quota_reset_required(quota))
        except Exception as error:  # the operator's own code
            self._report("quota_reset_required", error)
            return False

    def apply(self, before: Mapping[Entity, Mapping[str, float]], changed: Mapping[Entity, object]) -> None:
        """Pass on the quotas of changed entities. `before`: those that were set; `changed`: those that are set now."""
        for entity, values in changed.items():
            now: Mapping[str, float] = values if isinstance(values, Mapping) else {}
            for quota, key in QUOTA_KEYS.items():
                self._pass_on(quota, entity, before.get(entity, {}).get(key), now.get(key))

    def _pass_on(self, quota: QuotaType, entity: Entity, before: float | None, now: float | None) -> None:
        try:
            if now is not None and now != before:
                self._callback.update_quota(quota, dict(entity), now)
            elif now is None and before is not None:
                self._callback.remove_quota(quota, dict(entity))
        except Exception as error:  # the operator's own code
            self._report("update_quota", error)

    def _report(self, method: str, error: Exception) -> None:
        self._errors += 1
        if self._errors <= MOST_ERRORS_LOGGED:
            log.error("%s of the quota callback failed", method, exc_info=error)
