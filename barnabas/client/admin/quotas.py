"""Quotas of users, client ids and IP addresses (KIP-546, KIP-612)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from barnabas.client.admin.calls import Anywhere, Part, Question
from barnabas.client.admin.results import Results, changed, refusal
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import alter_client_quotas as altering
from barnabas.protocol.messages import describe_client_quotas as describing

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
_KINDS = (USER, CLIENT_ID, IP)


@dataclass(frozen=True, slots=True)
class ClientQuotaEntity:
    """Owner of a quota: a type (`user`, `client-id`, `ip`) with a name, or with None for the default of all others."""

    entries: tuple[tuple[str, str | None], ...]
    """In the order user, client-id, ip."""

    def __post_init__(self) -> None:
        # Brokers list the types of an entity in any order.
        object.__setattr__(self, "entries", tuple(sorted(self.entries, key=lambda entry: _order(entry[0]))))

    @classmethod
    def of(cls, *, user: str | None = "", client_id: str | None = "", ip: str | None = "") -> ClientQuotaEntity:
        """From the given names; None is the default of a type."""
        named = ((USER, user), (CLIENT_ID, client_id), (IP, ip))
        return cls(tuple((kind, name) for kind, name in named if name != ""))

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name or 'default'}" for kind, name in self.entries)


def _order(kind: str) -> tuple[int, str]:
    return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), kind)


class Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class ClientQuotaFilter:
    """Filter of entities: they match every component, and, if `strict`, have no other."""

    components: tuple[tuple[str, Match, str | None], ...] = ()
    """(type, match, name); the name is for EXACT only."""
    strict: bool = False


EVERYBODY = ClientQuotaFilter()


class Quotas(Part):
    """Methods for quotas."""

    async def describe_client_quotas(
        self, matching: ClientQuotaFilter = EVERYBODY
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Quotas of all entities that match, by key (`producer_byte_rate`, …)."""

        def ask(_: int) -> describing.DescribeClientQuotasRequest:
            components = [
                describing.ComponentData(entity_type=kind, match_type=how, match=name if how is Match.EXACT else None)
                for kind, how, name in matching.components
            ]
            return describing.DescribeClientQuotasRequest(components=components, strict=matching.strict)

        def read(
            response: describing.DescribeClientQuotasResponse,
        ) -> dict[ClientQuotaEntity, dict[str, float]] | KafkaError:
            return refusal(response.error_code, response.error_message, "quotas") or {
                _entity(entry.entity): {it.key: it.value for it in entry.values} for entry in response.entries or ()
            }

        return await self._calls.one("quotas", ask, read)

    async def alter_client_quotas(
        self,
        changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[ClientQuotaEntity, None]:
        """Set quotas by key; None removes one."""

        def ask(some: list[ClientQuotaEntity], _: int) -> altering.AlterClientQuotasRequest:
            entries = [
                altering.RequestEntryData(
                    entity=[altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.entries],
                    ops=[
                        altering.OpData(key=key, value=float(value or 0), remove=value is None)
                        for key, value in changes[entity].items()
                    ],
                )
                for entity in some
            ]
            return altering.AlterClientQuotasRequest(entries=entries, validate_only=validate_only)

        def read(
            response: altering.AlterClientQuotasResponse, keys: list[ClientQuotaEntity]
        ) -> Iterator[tuple[ClientQuotaEntity, KafkaError | None]]:
            asked = {frozenset(key.entries): key for key in keys}
            for entry in response.entries:
                key = asked.get(frozenset(_entity(entry.entity).entries))
                if key is not None:
                    yield key, refusal(entry.error_code, entry.error_message, f"quotas of {key}")

        question = Question[ClientQuotaEntity, None]("quotas of", ask, read)
        return changed(await self._calls.ask(changes, Anywhere(), question), raise_errors)


def _entity(parts: Iterable[Any]) -> ClientQuotaEntity:
    return ClientQuotaEntity(tuple((it.entity_type, it.entity_name) for it in parts))
