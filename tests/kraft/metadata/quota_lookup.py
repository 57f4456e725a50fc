"""The quota of a client by a lookup of all eight levels, to compare `QuotaLevels` with (KIP-13, KIP-55, KIP-546).

Each key is looked up for itself: a client's `producer_byte_rate` may come from its user, and its `request_percentage`
from the default of all clients. A quota that is not a number limits nobody.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

from barnabas.kraft.metadata.image import ClientQuotas, QuotaEntity
from barnabas.runtime.quotas.source import CLIENT_ID_TAG, USER_TAG


class QuotaLevel(IntEnum):
    """The kind of entity that a quota belongs to; the first that has a value counts."""

    USER_AND_CLIENT = 0
    USER_AND_DEFAULT_CLIENT = 1
    USER = 2
    DEFAULT_USER_AND_CLIENT = 3
    DEFAULT_USER_AND_DEFAULT_CLIENT = 4
    DEFAULT_USER = 5
    CLIENT = 6
    DEFAULT_CLIENT = 7


class QuotaMatch(NamedTuple):
    """The quota of a client for one key."""

    value: float
    level: QuotaLevel


_ANY_CLIENT = (CLIENT_ID_TAG, None)
_ANY_USER = (USER_TAG, None)
_DEFAULT_BOTH: QuotaEntity = (_ANY_CLIENT, _ANY_USER)
_DEFAULT_USER: QuotaEntity = (_ANY_USER,)
_DEFAULT_CLIENT: QuotaEntity = (_ANY_CLIENT,)


def quota_for(quotas: ClientQuotas, user: str, client_id: str, key: str) -> QuotaMatch | None:
    """The quota that counts for a client; None if it has none. `user` is the name of its principal."""
    if not quotas:
        return None
    this_client, this_user = (CLIENT_ID_TAG, client_id), (USER_TAG, user)
    entities: tuple[QuotaEntity, ...] = (
        (this_client, this_user),
        (_ANY_CLIENT, this_user),
        (this_user,),
        (this_client, _ANY_USER),
        _DEFAULT_BOTH,
        _DEFAULT_USER,
        (this_client,),
        _DEFAULT_CLIENT,
    )
    for level, entity in enumerate(entities):
        values = quotas.get(entity)
        if values is not None:
            value = values.get(key)
            if value is not None:
                return QuotaMatch(math.inf if math.isnan(value) else value, QuotaLevel(level))
    return None
