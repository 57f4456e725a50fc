"""Core: whole requests of every API and version, and the same request with one field changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from barnabas.cluster.hostile.aims import AIMS, Aim
from barnabas.cluster.hostile.arguments import Arguments, Place
from barnabas.cluster.hostile.bodies import Body, draw_body
from barnabas.cluster.hostile.knowledge import Knowledge, structs_of
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import EncodeError, MalformedMessage
from barnabas.protocol.schema import FieldSpec, Message, Struct, decode, encode, parse_versions
from barnabas.runtime.simulated.chance import Stream

MOST_BYTES = 256 << 10
"""Maximum size of a request."""
MANY = 300
"""Elements of the rare array that is long: one of them, again and again."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A request that is ready to be sent."""

    api: ApiKey
    version: int
    message: Message
    body: bytes
    """Body of the frame, after its header."""
    is_poison: bool = False
    """A Produce of nothing but a batch that no leader may take."""

    @classmethod
    def of(cls, message: Message, version: int) -> Drawn:
        """A request that was not drawn."""
        return cls(ApiKey(message.API_KEY), version, message, encode(message, version))

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version}"


class Requests:
    """Draws requests."""

    def __init__(self, chance: Stream, knowledge: Knowledge, wall_ms: Callable[[], int]) -> None:
        self._chance = chance
        self._wall_ms = wall_ms
        self._knowledge = knowledge
        self._arguments = Arguments(chance, knowledge)

    def draw(self, listener: str, api: ApiKey | None = None) -> Drawn:
        """One that the listener serves: "broker" or "controller"."""
        while True:
            spec = API_SPECS[api or self._api(listener)]
            version = self._chance.randint(spec.min_version, spec.max_version)
            drawn = self._encoded(spec.key, version, self._message(spec.key, version))
            if drawn is not None and len(drawn.body) <= MOST_BYTES:
                return drawn

    def _api(self, listener: str) -> ApiKey:
        """Mostly one that the nodes serve: what they do not serve ends the connection."""
        served = self._knowledge.served.get(listener)
        return self._chance.choice(served if served and self._chance.random() < 0.99 else _KNOWN[listener])

    def changed(self, drawn: Drawn) -> Drawn:
        """The same with other values in one of its structs; the very same if they do not fit."""
        try:
            message: Message = decode(API_SPECS[drawn.api].request_type(), drawn.body, drawn.version)
        except MalformedMessage:
            return drawn  # well-formed, and longer than is taken here
        target = self._chance.choice(list(structs_of(message)))
        plain = [
            spec for spec in _fields_in(type(target), drawn.version) if not (spec.type.element or spec.type.struct)
        ]
        if plain and drawn.api is not ApiKey.PRODUCE:
            spec = self._chance.choice(plain)
            setattr(target, spec.name, self._value(drawn.api, drawn.version, target, spec))
        return self._encoded(drawn.api, drawn.version, message) or drawn

    def _encoded(self, api: ApiKey, version: int, message: Message) -> Drawn | None:
        poison = self._with_records(message) if api is ApiKey.PRODUCE else False
        try:
            return Drawn(api, version, message, encode(message, version), poison)
        except EncodeError:
            return None  # a string that this version cannot carry, or a null where there is none

    def _message(self, api: ApiKey, version: int) -> Message:
        kind = API_SPECS[api].request_type()
        message = kind()
        self._fill(api, version, message)
        return message

    def _fill(self, api: ApiKey, version: int, struct: Struct) -> None:
        for spec in _fields_in(type(struct), version):
            setattr(struct, spec.name, self._value(api, version, struct, spec))

    def _value(self, api: ApiKey, version: int, struct: Struct, spec: FieldSpec) -> Any:
        if self._may_be_null(api, version, spec):
            return None
        element = spec.type.element
        if element is not None:
            return self._array(api, version, struct, spec)
        if spec.type.struct is not None:
            inner = spec.type.struct()
            self._fill(api, version, inner)
            return inner
        return self._arguments.value(self._place(api, version, struct, spec, spec.type.name))

    def _may_be_null(self, api: ApiKey, version: int, spec: FieldSpec) -> bool:
        if not spec.nullable or version not in _range(spec.nullable) or self._chance.random() >= 0.2:
            return False
        # Null often means everything, or is the cluster's own: only requests that read may have it.
        return AIMS[api] is Aim.EVERYBODY or spec.name in {"replicas", "transactional_id", "name", "reason", "rack_id"}

    def _array(self, api: ApiKey, version: int, struct: Struct, spec: FieldSpec) -> list[Any]:
        element = spec.type.element
        assert element is not None
        count = self._chance.choice((0, 1, 1, 1, 2, 3))
        place = self._place(api, version, struct, spec, element.name)
        values: list[Any] = []
        for _ in range(count):
            if element.struct is None:
                values.append(self._arguments.value(place))
            else:
                inner = element.struct()
                self._fill(api, version, inner)
                values.append(inner)
        if values and self._chance.random() < 0.01:
            values *= MANY
        return values

    def _place(self, api: ApiKey, version: int, struct: Struct, spec: FieldSpec, wire_type: str) -> Place:
        flexible_from = API_SPECS[api].flexible_from
        is_flexible = flexible_from is not None and version >= flexible_from and not spec.classic
        return Place(AIMS[api], type(struct).__name__, spec, is_flexible, wire_type)

    def _with_records(self, message: Any) -> bool:
        """Gives each partition of a Produce its batch; whether there is one alone, and it is poison."""
        bodies: list[Body] = []
        for topic in message.topic_data:
            for partition in topic.partition_data:
                body = draw_body(self._chance, self._wall_ms(), self._arguments.producer())
                partition.records = memoryview(body.data)
                bodies.append(body)
        return len(bodies) == 1 and bodies[0].is_poison


_KNOWN = {
    listener: tuple(spec.key for spec in API_SPECS.values() if listener in spec.listeners)
    for listener in ("broker", "controller")
}

_range = cache(parse_versions)


@cache
def _fields_in(kind: type[Struct], version: int) -> tuple[FieldSpec, ...]:
    return tuple(spec for spec in kind.FIELDS if version in _range(spec.versions))
