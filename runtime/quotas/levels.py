"""Core: the limits that the metadata sets, at eight levels; the most specific one wins.

    1  user, client-id            5  <default> user, <default> client-id
    2  user, <default> client-id  6  <default> user
    3  user                       7  client-id
    4  <default> user, client-id  8  <default> client-id

Quotas of different types have levels of their own: a rate for user and client-id does not hide a percentage for the
user. Clients that no quota names get the tags that Kafka gives them: by the kinds of entities that have quotas.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from urllib.parse import quote

from barnabas.runtime.quotas.source import CLIENT_ID_TAG, QUOTA_KEYS, USER_TAG, Client, QuotaType, Tags

DEFAULT = None
"""The name of a default entity."""

EntityName = str | None

Entity = tuple[tuple[str, EntityName], ...]
"""Sorted (type, name) pairs, as the image has them."""

USER_KIND, CLIENT_ID_KIND, PAIR_KIND = "user", "client-id", "user and client-id"
"""The kinds of entities that have quotas."""

ABSENT = ""
"""The part of an entity that a quota does not name. No user and no client id is empty where quotas count."""

_Level = tuple[EntityName, EntityName]
"""The user and the client id of a quota: a name, DEFAULT, or ABSENT."""


class QuotaLevels:
    """All quotas of users and client ids; a `LimitSource`. Mutable: `apply` carries it from one image to the next."""

    may_reset = False

    def __init__(self, quotas: Mapping[Entity, Mapping[str, float]] | None = None) -> None:
        self._limits: dict[QuotaType, dict[_Level, float]] = {quota: {} for quota in QuotaType}
        self._kinds: dict[QuotaType, Counter[str]] = {quota: Counter() for quota in QuotaType}
        """The number of quotas by kind of entity."""
        self.apply(quotas or {})

    def apply(self, changed: Mapping[Entity, Mapping[str, float] | None]) -> None:
        """Take the entities of an image, or those of a delta with all their values; None if one has no quota now."""
        for entity, values in changed.items():
            named = dict(entity)
            if named and named.keys() <= {USER_TAG, CLIENT_ID_TAG}:
                level = (named.get(USER_TAG, ABSENT), named.get(CLIENT_ID_TAG, ABSENT))
                for quota, key in QUOTA_KEYS.items():
                    self._set(quota, level, None if values is None else values.get(key))

    def _set(self, quota: QuotaType, level: _Level, value: float | None) -> None:
        limits, kinds, kind = self._limits[quota], self._kinds[quota], _kind(level)
        if limits.pop(level, None) is not None:
            kinds[kind] -= 1
            if not kinds[kind]:
                del kinds[kind]
        if value is not None and not math.isnan(value):
            limits[level] = value
            kinds[kind] += 1

    def is_active(self, quota: QuotaType) -> bool:
        return bool(self._limits[quota])

    def tags(self, quota: QuotaType, client: Client) -> Tags:
        user, client_id = self._pair(quota, client.principal.name, client.client_id)
        return ((USER_TAG, user), (CLIENT_ID_TAG, client_id))

    def limit(self, quota: QuotaType, tags: Tags) -> float | None:
        (_, user), (_, client_id) = tags
        limits = self._limits[quota]
        for level in _candidates(user, client_id):
            if level in limits:
                return limits[level]
        return None

    def is_reset_required(self, quota: QuotaType) -> bool:
        return False

    def _pair(self, quota: QuotaType, user: str, client_id: str) -> tuple[str, str]:
        kinds = self._kinds[quota].keys()
        if kinds <= {CLIENT_ID_KIND}:
            return "", client_id
        if kinds == {USER_KIND}:
            return user, ""
        if kinds == {PAIR_KIND}:
            return user, client_id
        limits = self._limits[quota]
        if (user, client_id) in limits or (user, DEFAULT) in limits:
            return user, client_id
        if (user, ABSENT) in limits:
            return user, ""
        if (DEFAULT, client_id) in limits or (DEFAULT, DEFAULT) in limits:
            return user, client_id
        if (DEFAULT, ABSENT) in limits:
            return user, ""
        return "", client_id


def _kind(level: _Level) -> str:
    user, client_id = level
    if user == ABSENT:
        return CLIENT_ID_KIND
    return USER_KIND if client_id == ABSENT else PAIR_KIND


def _candidates(user: str, client_id: str) -> tuple[_Level, ...]:
    """The levels that may limit a sensor with these tags, the most specific one first."""
    if user and client_id:
        return (user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT)
    if user:
        return (user, ABSENT), (DEFAULT, ABSENT)
    if client_id:
        return (ABSENT, client_id), (ABSENT, DEFAULT)
    return ()


def sanitized(name: str) -> str:
    """A name as Kafka writes it in metrics: percent-encoded."""
    return quote(name, safe="-._")
