"""Users on a simulated cluster with access control lists: a client id says who a client is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import trio

from barnabas.protocol.messages.create_acls import CreateAclsRequest
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel
from barnabas.runtime.identity import Principal
from barnabas.runtime.request import Request
from barnabas.runtime.response_slot import ResponseSlot
from barnabas.runtime.server import Handle
from barnabas.runtime.steps import Steps
from tests.broker.apis.rig import Rig
from tests.broker.authorization.rows import rights_in
from tests.broker.authorization.state import creation

ANSWER_MS = 60_000


class Named:
    """Hands requests on in the name of the user that the client id says."""

    def __init__(self, handle: Handle, others: Mapping[str, str]) -> None:
        """`others`: users by client id."""
        self._handle = handle
        self._others = others

    def __call__(self, request: Request, slot: ResponseSlot) -> Steps | None:
        client_id = request.client_id or ""
        if client_id in self._others:
            request.principal = Principal(self._others[client_id])
        elif client_id.startswith("user:"):
            request.principal = Principal(client_id.removeprefix("user:"))
        return self._handle(request, slot)


def name_users(rig: Rig, node: int = 1, others: Mapping[str, str] | None = None) -> None:
    server: Any = rig.broker(node).server
    server._service = replace(server._service, handle=Named(server._service.handle, others or {}))


class User:
    """A connection of one user to a broker."""

    def __init__(self, rig: Rig, name: str, node: int = 1) -> None:
        self.name = name
        self._channel = Channel(rig.world, rig.nursery, rig.name(node), rig.port(node), client_id=f"user:{name}")

    async def ask(self, request: Message, version: int | None = None) -> Any:
        return await self._channel.call(request, timeout_ms=ANSWER_MS, version=version)

    def close(self) -> None:
        self._channel.close()


async def user_who_may(rig: Rig, rights: str, name: str = "alice") -> User:
    """`rights` as in `rows.py`, for example `topic t READ + group g READ`."""
    await create_acls(rig, CreateAclsRequest(creations=[creation(name, right) for right in rights_in(rights)]))
    name_users(rig)
    return User(rig, name)


async def create_acls(rig: Rig, request: CreateAclsRequest) -> None:
    answer = await rig.ask(1, request, 3)
    assert not any(it.error_code for it in answer.results), answer
    await trio.sleep(1)  # virtual: the nodes follow the metadata log
