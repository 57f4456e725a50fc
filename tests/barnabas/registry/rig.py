"""A registry without a network: its API over a topic that is a list, and an election that is decided."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from barnabas.registry.api import RegistryApi
from barnabas.registry.errors import RegistryError
from barnabas.registry.http_side import ApiRequest, ApiResponse
from barnabas.registry.records import Change, decode
from barnabas.registry.running import formats
from barnabas.registry.service import RegistryService
from barnabas.registry.state import RegistryState


class ListStore:
    """A topic in memory: what is written is encoded, decoded and applied at once."""

    def __init__(self, records: Sequence[tuple[bytes, bytes | None]] = ()) -> None:
        self.state = RegistryState()
        self.records: list[tuple[bytes, bytes | None]] = []
        for key, value in records:
            self.add(key, value)

    def add(self, key: bytes, value: bytes | None) -> str:
        self.records.append((key, value))
        return self.state.apply(decode(key, value))

    async def write(self, changes: Sequence[Change]) -> None:
        for each in changes:
            self.add(*each.encode())

    async def catch_up(self) -> None: ...


class Decided:
    """An election that this registry has won, unless a test says otherwise."""

    group_id = "schema-registry"
    generation = 1
    leads = True
    leader_url: str | None = None

    async def settle(self) -> None: ...


class Rig:
    """A registry; `ask` is one request."""

    def __init__(self, records: Sequence[tuple[bytes, bytes | None]] = ()) -> None:
        self.store = ListStore(records)
        self.election = Decided()
        self.passed_on: list[tuple[str, str]] = []
        service = RegistryService(self.store, formats(), self.election)  # type: ignore[arg-type]
        self._api = RegistryApi(service, self._forward)

    async def _forward(self, url: str, request: ApiRequest) -> ApiResponse:
        self.passed_on.append((url, request.target))
        return ApiResponse.of({"from": "the leader"})

    async def ask(self, method: str, target: str, body: object = None, *, forwards: bool = True) -> tuple[int, Any]:
        """The status, and the body from JSON."""
        path, _, query = target.partition("?")
        words = tuple(each for each in path.split("/") if each)
        pairs = dict(each.partition("=")[::2] for each in query.split("&") if each)
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        request = ApiRequest(method, words, pairs, data, target, forwards)
        try:
            response = await self._api.answer(request)
        except RegistryError as error:
            return error.status, {"error_code": error.error_code, "message": error.message}
        return response.status, json.loads(response.body)

    async def register(self, subject: str, schema: str, **fields: Any) -> int:
        status, answer = await self.ask("POST", f"/subjects/{subject}/versions", {"schema": schema, **fields})
        assert status == 200, answer
        number: int = answer["id"]
        return number


def record(*fields: str, name: str = "R") -> str:
    """An Avro record of fields such as `a:int` and `a:int=0`."""
    written = []
    for each in fields:
        label, _, rest = each.partition(":")
        kind, has_default, default = rest.partition("=")
        written.append({"name": label, "type": kind} | ({"default": json.loads(default)} if has_default else {}))
    return json.dumps({"type": "record", "name": name, "fields": written}, separators=(",", ":"))
