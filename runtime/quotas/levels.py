"""Core: the limits that the metadata sets, at eight levels; the most specific one wins.

    1  user, client-id            5  <default> user, <default> client-id
    2  user, <default> client-id  6  <default> user
    3  user                       7  client-id
    4  <default> user, client-id  8  <default> client-id

Quotas of different types have levels of their own: a rate for user and client-id does not hide a percentage for the
user. Clients that no quota names get the tags that Kafka gives them: by the kinds of entities that have quotas.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from barnabas.runtime.quotas.source import CLIENT_ID_TAG, QUOTA_KEYS, USER_TAG, Client, QuotaType, Tags

DEFAULT = None
"""The name of a default entity."""

EntityName = str | None

Entity = tuple[tuple[str, EntityName], ...]
"""Sorted (type, name) pairs, as the image has them."""

ABSENT = ""
"""The part of an entity that a quota does not name. No user and no client id is empty where quotas count."""

_Level = tuple[EntityName, EntityName]
"""The user and the client id of a quota: a name, DEFAULT, or ABSENT."""


class QuotaLevels:
    """All quotas of users and client ids at one moment; a `LimitSource`."""

    def __init__(self, quotas: Mapping[tuple[Entity, str], float] | None = None) -> None:
        self._limits: dict[QuotaType, dict[_Level, float]] = {quota: {} for quota in QuotaType}
        types = {key: quota for quota, key in QUOTA_KEYS.items()}
        for (entity, key), value in (quotas or {}).items():
            named = dict(entity)
            if key in types and named and named.keys() <= {USER_TAG, CLIENT_ID_TAG}:
                level = (named.get(USER_TAG, ABSENT), named.get(CLIENT_ID_TAG, ABSENT))
                self._limits[types[key]][level] = value
        self._kinds = {quota: {_kind(level) for level in limits} for quota, limits in self._limits.items()}

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

    def entity(self, quota: QuotaType, tags: Tags) -> str:
        """The entity whose quota limits a sensor, as people read it: `user alice, client-id <default>`."""
        (_, user), (_, client_id) = tags
        limits = self._limits[quota]
        for level in _candidates(user, client_id):
            if level in limits:
                parts = zip((USER_TAG, CLIENT_ID_TAG), level, strict=True)
                return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in parts if name != "")
        return ""

    def _pair(self, quota: QuotaType, user: str, client_id: str) -> tuple[str, str]:
        kinds = self._kinds[quota]
        if kinds <= {"client-id"}:
            return "", client_id
        if kinds == {"user"}:
            return user, ""
        if kinds == {"both"}:
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
        return "client-id"
    return "user" if client_id == ABSENT else "both"


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
